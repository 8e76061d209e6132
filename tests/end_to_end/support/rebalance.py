"""Moves partitions between brokers with Kafka's own tool, and measures the moves in the brokers' files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from tests.end_to_end.support.artifacts import KAFKA_2_8
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import (
    PRODUCE,
    PRODUCE_VERSION,
    produce_body,
    raw_client,
    read_produce,
    record_batch,
)
from tests.end_to_end.support.kafka import DIRECT, Broker, Kafka
from tests.end_to_end.support.old_kafka import OldKafka
from tests.end_to_end.support.processes import scratch, wait_until
from tests.end_to_end.support.proxy import Proxy, Settings
from tests.end_to_end.support.watch import Watch

_IN_FLIGHT: Final = 8
# Batches differ, so that compression and mixed-up partitions are detected.
_DIFFERENT_BATCHES: Final = 4
_STARTS_UP_S: Final = 2.0


@contextlib.contextmanager
def behind_proxies(
    version: str, settings: Settings, *, config: Mapping[str, str | int] | None = None, jmx: bool = False
) -> Iterator[Bed]:
    """Run three brokers that reach each other only through a proxy. Brokers of 2.8 have no JMX port."""
    with (
        _three_brokers(version, inter_broker_proxied=True, config=config, jmx=jmx) as kafka,
        Proxy(settings, kafka) as proxy,
    ):
        _wait_for_each_other(kafka)
        yield Bed(kafka, proxy)


@contextlib.contextmanager
def without_proxies(version: str) -> Iterator[Kafka]:
    """Run three brokers without a proxy."""
    with _three_brokers(version, inter_broker_proxied=False, config=None) as kafka:
        _wait_for_each_other(kafka)
        yield kafka


def _three_brokers(
    version: str, *, inter_broker_proxied: bool, config: Mapping[str, str | int] | None, jmx: bool = False
) -> Kafka:
    if version == KAFKA_2_8:
        return OldKafka(nodes=3, inter_broker_proxied=inter_broker_proxied, config=config)
    return Kafka(version, nodes=3, proxied=(), inter_broker_proxied=inter_broker_proxied, config=config, jmx=jmx)


def _wait_for_each_other(kafka: Kafka) -> None:
    # A client that connects earlier may not see all brokers.
    wait_until(lambda: knows_its_brokers(kafka), timeout_s=60, what="the brokers know each other")


def knows_its_brokers(kafka: Kafka) -> bool:
    """Return whether clients see every broker."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    return len(client.list_topics(timeout=30).brokers) == len(kafka.brokers)


class Bed(NamedTuple):
    kafka: Kafka
    proxy: Proxy


class Sample(NamedTuple):
    """The size of a topic at one broker at one time."""

    at_s: float  # time.monotonic
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Load:
    """A topic with records. All its partitions are on the same brokers."""

    kafka: Kafka
    topic: str
    partitions: int
    size_bytes: int

    def on(self, broker: Broker) -> int:
        """Return the bytes of records at a broker."""
        return sum(_size(file) for partition in range(self.partitions) for file in _segments(broker, self, partition))

    def digests(self, broker: Broker) -> list[str]:
        """Return the SHA-256 of the records of each partition at a broker."""
        return [_digest(_segments(broker, self, partition)) for partition in range(self.partitions)]


def load(
    kafka: Kafka,
    *,
    on: Sequence[int],
    size_bytes: int,
    record_bytes: int,
    partitions: int = 4,
    config: dict[str, str] | None = None,
) -> Load:
    """Create a topic on these brokers, the leader first, and write to it directly at the leader.

    Each record is a batch of its own, because the oldest message format has larger batches only with compression.
    """
    topic = create_topic(kafka, partitions=partitions, replicas=on, config=config)
    leader = broker_of(kafka, on[0])
    bodies = [
        produce_body(topic, record_batch([os.urandom(record_bytes)]), acks=1, partition=partition)
        for _ in range(_DIFFERENT_BATCHES)
        for partition in range(partitions)
    ]
    made = Load(kafka=kafka, topic=topic, partitions=partitions, size_bytes=size_bytes)
    with raw_client(leader.listeners[DIRECT].port) as client:
        unanswered = 0
        for body in islice(cycle(bodies), size_bytes // record_bytes):
            client.send(PRODUCE, PRODUCE_VERSION, body)
            unanswered += 1
            if unanswered == _IN_FLIGHT:
                unanswered -= 1
                assert read_produce(client.receive().body).error_code == 0
        for _ in range(unanswered):
            assert read_produce(client.receive().body).error_code == 0
    return made


def broker_of(kafka: Kafka, node_id: int) -> Broker:
    return next(broker for broker in kafka.brokers if broker.node_id == node_id)


@dataclass(kw_only=True)
class Reassignment:
    """Moves all partitions of a load to other brokers with ``kafka-reassign-partitions.sh``."""

    load: Load
    to: Sequence[int]
    throttle: int | None = None  # bytes per second, as --throttle
    _plan: str = field(init=False)

    def __post_init__(self) -> None:
        moves = [
            {"topic": self.load.topic, "partition": partition, "replicas": list(self.to)}
            for partition in range(self.load.partitions)
        ]
        self._plan = json.dumps({"version": 1, "partitions": moves})

    def execute(self, *options: str) -> str:
        """Start the move, or change its throttle if the option ``--additional`` is given. Return the tool's output."""
        throttle = () if self.throttle is None else ("--throttle", str(self.throttle))
        return self._tool("--execute", *throttle, *options)

    def verify(self) -> str:
        """Run ``--verify``, which removes the throttle after a complete move. Return the tool's output."""
        return self._tool("--verify")

    def is_done(self) -> bool:
        """Return whether every partition is on exactly the target brokers, and all replicas are in sync."""
        client = AdminClient({"bootstrap.servers": self.load.kafka.bootstrap_servers, **QUIET})
        found = client.list_topics(self.load.topic, timeout=30).topics[self.load.topic].partitions
        wanted = set(self.to)
        return all(set(one.replicas) == wanted == set(one.isrs) for one in found.values())

    def wait(self, *, timeout_s: float) -> None:
        wait_until(self.is_done, timeout_s=timeout_s, what=f"{self.load.topic} is on {self.to}", poll_s=0.2)

    def _tool(self, *arguments: str) -> str:
        kafka = self.load.kafka
        package = "kafka.admin" if kafka.version == KAFKA_2_8 else "org.apache.kafka.tools.reassign"
        where = ("--bootstrap-server", kafka.bootstrap_servers)
        with scratch("reassignment") as directory:
            plan = directory / "plan.json"
            plan.write_text(self._plan)
            return kafka.run_java(
                f"{package}.ReassignPartitionsCommand", *where, "--reassignment-json-file", plan, *arguments
            )


class Growth(Watch):
    """The bytes of a load in a broker's data directory, sampled ten times a second in a ``with`` block."""

    def __init__(self, load: Load, broker: Broker) -> None:
        super().__init__()
        self.samples: list[Sample] = []
        self._load = load
        self._broker = broker

    def wait_for(self, size_bytes: float, *, timeout_s: float) -> None:
        """Wait until the broker has this many bytes of the load."""
        wait_until(
            lambda: bool(self.samples) and self.samples[-1].size_bytes >= size_bytes,
            timeout_s=timeout_s,
            what=f"broker {self._broker.node_id} has {size_bytes:,.0f} bytes of {self._load.topic}",
        )

    def rate(self, *, since_s: float | None = None, until_s: float | None = None) -> float:
        """Return the bytes per second between two times of ``time.monotonic``.

        By default, the first two seconds and the first and the last tenth of the bytes do not count.
        """
        steps = self.steps()
        if since_s is None:
            a_tenth_s = next(at for at, size in steps if size >= self._load.size_bytes / 10)
            since_s = max(steps[0].at_s + _STARTS_UP_S, a_tenth_s)
        if until_s is None:
            until_s = next(at for at, size in steps if size >= self._load.size_bytes * 0.9)
        inside = [step for step in steps if since_s <= step.at_s <= until_s]
        if len(inside) < 3:
            raise AssertionError(f"no steady part: {self._load.size_bytes:,} bytes came in {len(steps)} steps")
        return statistics.linear_regression(*zip(*inside, strict=True)).slope

    def steps(self) -> list[Sample]:
        """Return the samples at which the size had grown."""
        return [after for before, after in zip(self.samples, self.samples[1:], strict=False) if after[1] > before[1]]

    def _look(self) -> None:
        self.samples.append(Sample(time.monotonic(), self._load.on(self._broker)))


def _segments(broker: Broker, load: Load, partition: int) -> list[Path]:
    return sorted((broker.data / f"{load.topic}-{partition}").glob("*.log"))


def _size(file: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # a replica that moves away may disappear at any time
        return file.stat().st_size
    return 0


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as data:
            while chunk := data.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
