"""A live cluster is moved behind sidecars and back, by docs/how-to/into-production.md. Its clients get no error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4
from tests.end_to_end.support.clients import create_topic, run_java_program
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.live_clients import AiokafkaProducer, LibrdkafkaMember, LibrdkafkaProducer, LiveProducer
from tests.end_to_end.support.live_cluster import CLIENTS, PROXY_HOST, REPLICATION, Administrator, Place, Sidecar
from tests.end_to_end.support.processes import wait_until

_NAMES: Final = ("java", "librdkafka", "aiokafka")
_GROUPS: Final = ("java", "librdkafka")
_PARTITIONS: Final = 3
_EVERY_MS: Final = 50  # between two records of a producer
# A producer sends some 1 KB/s to each broker, far less than the limit of the page.
_LOWERED: Final = {"producer_byte_rate: 1MiB": "producer_byte_rate: 300"}
# As those of LibrdkafkaMember. The committed offsets are looked at while the clients run.
_MEMBER: Final = ("auto.offset.reset=earliest", "auto.commit.interval.ms=1000", "fetch.min.bytes=2000")
_PATIENCE_S: Final = 120


class LiveClients:
    """Three producers with acks=all, each with a topic, and two groups of two members, which read all topics."""

    def __init__(self, kafka: Kafka, administrator: Administrator, tmp_path: Path) -> None:
        self._kafka = kafka
        self._administrator = administrator
        self._stops = {"producer": tmp_path / "stop-producer", "group": tmp_path / "stop-group"}
        self._address = kafka.addresses(CLIENTS)
        safe = {"min.insync.replicas": "2"}
        self.topics = {name: create_topic(kafka, partitions=_PARTITIONS, config=safe) for name in _NAMES}
        common: dict[str, Any] = {"partitions": _PARTITIONS, "every_s": _EVERY_MS / 1_000}
        self.producers: dict[str, LiveProducer] = {
            "librdkafka": LibrdkafkaProducer(
                self._address, self.topics["librdkafka"], settings={"enable.idempotence": True}, **common
            ),
            "aiokafka": AiokafkaProducer(self._address, self.topics["aiokafka"], acks="all", **common),
        }
        topics = list(self.topics.values())
        self.members = [LibrdkafkaMember(self._address, topics, "librdkafka") for _ in range(2)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all clients. At the end the groups read everything before they stop."""
        with ThreadPoolExecutor(6) as pool:
            sending = [pool.submit(one.run) for one in self.producers.values()]
            reading = [pool.submit(one.run) for one in self.members]
            java_producer = pool.submit(self._java, "producer", "stream", self.topics["java"], str(_EVERY_MS))
            java_group = pool.submit(self._java, "group", "group", ",".join(self.topics.values()), "2")
            try:
                self.make_progress()
                yield
            finally:
                for producer in self.producers.values():
                    producer.stop()
                self._stops["producer"].touch()
                try:
                    for done in sending:
                        done.result()
                    self.java_producer = java_producer.result()
                    self._wait_for_groups()
                finally:
                    for member in self.members:
                        member.stop()
                    self._stops["group"].touch()
            for done in reading:
                done.result()
            self.java_group = java_group.result()

    def make_progress(self) -> None:
        """Wait until each producer has written to each partition again, and each group has committed that."""
        before = self.ends()
        wait_until(
            lambda: all(now > before[place] for place, now in self.ends().items()),
            timeout_s=_PATIENCE_S,
            what="each producer writes to each partition",
            poll_s=0.5,
        )
        self._wait_for_groups()

    def _wait_for_groups(self) -> None:
        """Wait until the groups have committed what is in the topics now."""
        ends = self.ends()
        for group in _GROUPS:
            wait_until(
                lambda group=group: self._has_committed(group, ends),  # type: ignore[misc]
                timeout_s=_PATIENCE_S,
                what=f"the group {group} reads and commits everything",
                poll_s=0.5,
            )

    def _has_committed(self, group: str, ends: dict[Place, int]) -> bool:
        committed = self._administrator.committed(group, ends)
        return all(committed[place] >= end for place, end in ends.items())

    def ends(self) -> dict[Place, int]:
        return self._administrator.ends(self.topics.values())

    def _java(self, role: str, *arguments: str) -> dict[str, int]:
        settings = {
            "producer": [f"partitions={_PARTITIONS}", "client.id=java"],
            "group": ["client.id=java-member", "group.id=java", *_MEMBER],
        }[role]
        common = [f"bootstrap.servers={self._address}", f"stop={self._stops[role]}"]
        return run_java_program(self._kafka, *arguments, *common, *settings, timeout_s=900)


def _roll(sidecars: list[Sidecar], administrator: Administrator, step: Callable[[Sidecar], None]) -> None:
    """Take a step with one broker after another."""
    for sidecar in sidecars:
        step(sidecar)
        administrator.settle()


def _throttled(sidecars: list[Sidecar], prefix: str = "") -> dict[tuple[int, str], float]:
    """Return the throttle time of each producer at each broker, in seconds."""
    family = f"kafka_quota_proxy_{prefix}throttle_seconds_total"
    return {
        (one.broker.node_id, name): one.running_proxy.metrics().total(family, kind="produce", client_id=name)
        for one in sidecars
        for name in _NAMES
    }


def _limit(sidecars: list[Sidecar]) -> None:
    """Observe the limits of the page, enforce them, and remove them again."""
    limits = [one.settings("quotas:", _LOWERED) for one in sidecars]
    for one, wanted in zip(sidecars, limits, strict=True):
        assert one.running_proxy.reload({"enforcement": "observe", **wanted})
    wait_until(
        lambda: min(_throttled(sidecars, "observed_").values()) > 0,
        timeout_s=_PATIENCE_S,
        what="each producer is over its limit",
    )
    assert set(_throttled(sidecars).values()) == {0}
    for one, wanted in zip(sidecars, limits, strict=True):
        assert one.running_proxy.reload(wanted)
    wait_until(lambda: min(_throttled(sidecars).values()) > 1, timeout_s=_PATIENCE_S, what="each producer is throttled")
    for one in sidecars:
        assert one.running_proxy.reload(one.settings("# no limits yet"))


@contextmanager
def _one_listener(version: str) -> Iterator[Kafka]:
    """A cluster whose brokers replicate over the listener that clients use."""
    config: dict[str, str | int] = {"inter.broker.listener.name": CLIENTS}
    with Kafka(version, nodes=3, proxied=(), unproxied=(CLIENTS,), config=config, logs_requests=True) as kafka:
        yield kafka


@contextmanager
def _two_listeners(version: str) -> Iterator[Kafka]:
    with Kafka(version, nodes=3, proxied=(), unproxied=(CLIENTS, REPLICATION), logs_requests=True) as kafka:
        yield kafka


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("version", "moved", "has_two_listeners"),
    [
        (KAFKA_4, 3, True),
        (KAFKA_3_9, 3, False),
    ],
)
def test_clients_are_moved_behind_sidecars_and_back_without_an_error(
    version: str, moved: int, has_two_listeners: bool, tmp_path: Path
) -> None:
    with (_two_listeners if has_two_listeners else _one_listener)(version) as kafka:
        administrator = Administrator(kafka)
        clients = LiveClients(kafka, administrator, tmp_path)
        brokers = [Sidecar(broker) for broker in kafka.brokers]
        sidecars = brokers[:moved]
        try:
            with clients.running():
                if not has_two_listeners:
                    _roll(brokers, administrator, lambda one: one.restart("# first round"))
                    _roll(brokers, administrator, lambda one: one.restart("# second round"))
                _roll(sidecars, administrator, lambda one: one.move_in(tmp_path))
                clients.make_progress()
                before = _sources(sidecars)
                clients.make_progress()
                _limit(sidecars)
                clients.make_progress()
                assert set(_sources(sidecars) - before) == {PROXY_HOST}
                metrics = [one.running_proxy.metrics() for one in sidecars]
                _roll(sidecars, administrator, Sidecar.move_out)
                clients.make_progress()
        finally:
            for one in sidecars:
                one.end()
        for each in metrics:
            names = each.label_values("kafka_quota_proxy_bytes_total", "client_id")
            assert names == {*_NAMES, "librdkafka-member", "java-member"}  # no follower: its client-id is broker-…
        _check(clients, administrator)


def _sources(sidecars: list[Sidecar]) -> Counter[str]:
    """Return the source addresses of the requests that the clients' listeners of these brokers have answered."""
    return Counter(request.source for one in sidecars for request in one.broker.requests(CLIENTS))


def _check(clients: LiveClients, administrator: Administrator) -> None:
    """Check that no client got an error, and that nothing is lost."""
    python: list[LiveProducer | LibrdkafkaMember] = [*clients.producers.values(), *clients.members]
    assert [failure for one in python for failure in one.failures] == []

    keys = {name: administrator.keys(topic) for name, topic in clients.topics.items()}
    # Idempotent producers double nothing. Java's program would have failed if a record had not been acknowledged.
    assert sorted(keys["java"]) == list(range(clients.java_producer["acknowledged"]))
    assert sorted(keys["librdkafka"]) == list(range(len(clients.producers["librdkafka"].acknowledged)))
    # aiokafka is not idempotent here. It sends a record again if the connection ends before the answer.
    assert set(keys["aiokafka"]) == clients.producers["aiokafka"].acknowledged

    ends = clients.ends()
    for group in _GROUPS:
        assert administrator.committed(group, ends) == ends
    records = {(*place, offset) for place, end in ends.items() for offset in range(end)}
    seen: Counter[tuple[str, int, int]] = sum((one.seen for one in clients.members), Counter())
    assert set(seen) == records
    assert clients.java_group["seen"] == len(records)
