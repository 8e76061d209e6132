"""Every client gets every kind of refusal of the fair call queue many times, and no application gets an error.

No record is lost or doubled, and producers keep their order, except for those in ``_MAY_REORDER``.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka
import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.persistent import (
    Consumer,
    IsWanted,
    Producer,
    aiokafka_producer,
    consume_with_aiokafka,
    consume_with_kafka_python,
    consume_with_librdkafka,
    kafka_python_producer,
    librdkafka_producer,
    manage_with_kafka_python,
    manage_with_librdkafka,
)
from tests.end_to_end.support.processes import scratch
from tests.end_to_end.support.proxy import Proxy

_REFUSING: Final = "tests.end_to_end.support.refusing"
_PROGRAM: Final = Path(__file__).parent / "java" / "Refused.java"
_MUTATIONS: Final = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS)
# A fetch returns one batch.
_RECORDS, _RECORDS_IN_BATCH = 200, 5
_METADATA_FRAMES = "kafka_quota_proxy_frames_total"
# Metadata requests of a client at its start. Refusals must not cause more.
_METADATA_OF_A_CLIENT = 4


class _Kind(NamedTuple):
    is_idempotent: bool
    in_flight: int


_KINDS: Final = {
    "idempotent-1": _Kind(True, 1),
    "idempotent-5": _Kind(True, 5),
    "plain-1": _Kind(False, 1),
    "plain-5": _Kind(False, 5),
}
_PRODUCERS: Final[dict[str, Producer]] = {
    **{
        f"librdkafka-{name}": librdkafka_producer(
            {"enable.idempotence": kind.is_idempotent, "max.in.flight": kind.in_flight}
        )
        for name, kind in _KINDS.items()
    },
    **{
        f"kafka-python-{name}": kafka_python_producer(
            {"enable_idempotence": kind.is_idempotent, "max_in_flight_requests_per_connection": kind.in_flight}
        )
        for name, kind in _KINDS.items()
    },
    # It never has more than one request in flight for a partition.
    "aiokafka-idempotent": aiokafka_producer({"enable_idempotence": True}),
    "aiokafka-plain": aiokafka_producer({}),
}
_JAVA_PRODUCERS: Final = {f"java-{name}": kind for name, kind in _KINDS.items()}
_ALL_PRODUCERS: Final = (*_PRODUCERS, *_JAVA_PRODUCERS)
_CONSUMERS: Final[dict[str, Consumer]] = {
    "librdkafka-consumer": consume_with_librdkafka,
    "kafka-python-consumer": consume_with_kafka_python,
    "aiokafka-consumer": consume_with_aiokafka,
}
_ALL_CONSUMERS: Final = (*_CONSUMERS, "java-consumer")
# There are three, because each sends its three kinds of requests in turn.
_JAVA_ADMINS: Final = tuple(f"java-admin-{number}" for number in range(3))
_KAFKA_PYTHON_ADMINS: Final = tuple(f"kafka-python-admin-{number}" for number in range(3))
# librdkafka's request versions do not have THROTTLING_QUOTA_EXCEEDED, so its requests wait instead.
_NEVER_REFUSED: Final = "librdkafka-admin"
_ADMINS: Final = {
    _NEVER_REFUSED: manage_with_librdkafka,
    **dict.fromkeys(_KAFKA_PYTHON_ADMINS, manage_with_kafka_python),
}
_ALL_CLIENTS: Final = (*_ALL_PRODUCERS, *_ALL_CONSUMERS, *_JAVA_ADMINS, *_ADMINS)
# These reorder records at a broker's own errors too. Java and kafka-python put retries in front of other batches, and
# librdkafka sends later batches while it waits.
_MAY_REORDER: Final = frozenset({"java-plain-5", "kafka-python-plain-5", "librdkafka-plain-1", "librdkafka-plain-5"})

_Refusals = Counter[tuple[str, int]]


class _Meeting:
    """Runs all clients through a proxy, each until it was refused often enough."""

    def __init__(self, kafka: Kafka, proxy: Proxy, folder: Path, wanted: int) -> None:
        self._kafka = kafka
        self._proxy = proxy
        self._folder = folder
        self._wanted = wanted
        self.topic = create_topic(kafka, partitions=len(_ALL_PRODUCERS))
        self.acknowledged: dict[str, int] = {}

    @property
    def refusals(self) -> _Refusals:
        """Return the number of refusals of each client-id and API."""
        lines = (line.split() for line in self._proxy.log.splitlines() if line.startswith("refused "))
        return Counter((client_id, int(api_key)) for _, client_id, api_key in lines)

    def hold(self, patience_s: float) -> None:
        """Run all clients. Raises an application's error."""
        filled, address = _filled_topic(self._kafka), self._proxy.address()
        with ThreadPoolExecutor(len(_ALL_CLIENTS)) as pool:
            sent = {
                one: pool.submit(produce, address, self.topic, _partition(one), one, self._is_wanted(one))
                for one, produce in _PRODUCERS.items()
            }
            running: list[Future[int] | Future[None]] = [
                *sent.values(),
                *(
                    pool.submit(consume, address, filled, one, _RECORDS, self._is_wanted(one))
                    for one, consume in _CONSUMERS.items()
                ),
                *(pool.submit(manage, address, one, self._is_wanted(one)) for one, manage in _ADMINS.items()),
                pool.submit(self._run_java, filled, patience_s),
            ]
            deadline = time.monotonic() + patience_s
            while not all(one.done() for one in running):
                has_failed = any(one.done() and one.exception() for one in running)
                self._end(_ALL_CLIENTS if has_failed or time.monotonic() > deadline else self._who_met_it())
                time.sleep(0.2)
            for one in running:
                one.result()
        self.acknowledged |= {client_id: one.result() for client_id, one in sent.items()}

    def _is_wanted(self, client_id: str) -> IsWanted:
        return lambda: not (self._folder / client_id).exists()

    def _end(self, clients: tuple[str, ...]) -> None:
        for client_id in clients:
            (self._folder / client_id).touch()

    def _who_met_it(self) -> tuple[str, ...]:
        wanted, refusals = self._wanted, self.refusals
        found = [one for one in _ALL_PRODUCERS if refusals[one, ApiKey.PRODUCE] >= wanted]
        found += [one for one in _ALL_CONSUMERS if refusals[one, ApiKey.FETCH] >= wanted]
        for admins in (_JAVA_ADMINS, _KAFKA_PYTHON_ADMINS):
            if all(sum(refusals[one, api] for one in admins) >= wanted for api in _MUTATIONS):
                found += admins
        return (*found, _NEVER_REFUSED) if len(found) == len(_ALL_CLIENTS) - 1 else tuple(found)

    def _run_java(self, filled: str, patience_s: float) -> None:
        clients = [
            f"produce:{one}:{self.topic}:{_partition(one)}:{str(kind.is_idempotent).lower()}:{kind.in_flight}"
            for one, kind in _JAVA_PRODUCERS.items()
        ]
        clients += [f"consume:java-consumer:{filled}:{_RECORDS}", *(f"manage:{one}" for one in _JAVA_ADMINS)]
        out = self._kafka.run_java(
            str(_PROGRAM), self._proxy.address(), self._folder, *clients, timeout_s=patience_s + 60
        )
        counts = dict(line.split() for line in out.splitlines())
        self.acknowledged |= {client_id: int(counts[client_id]) for client_id in _JAVA_PRODUCERS}


def _partition(client_id: str) -> int:
    return _ALL_PRODUCERS.index(client_id)


def _filled_topic(kafka: Kafka) -> str:
    topic = create_topic(kafka)
    with raw_client(kafka.listener(DIRECT).port) as client:
        for first in range(0, _RECORDS, _RECORDS_IN_BATCH):
            client.produce(topic, record_batch([b"%d" % n for n in range(first, first + _RECORDS_IN_BATCH)]))
    return topic


def _written(kafka: Kafka, topic: str) -> dict[str, list[int]]:
    """Return the records of each producer in the order of its partition, read directly from the broker."""
    found: dict[str, list[int]] = {one: [] for one in _ALL_PRODUCERS}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused", **QUIET})
    try:
        starts = [
            confluent_kafka.TopicPartition(topic, _partition(one), confluent_kafka.OFFSET_BEGINNING) for one in found
        ]
        left = sum(consumer.get_watermark_offsets(one, timeout=30)[1] for one in starts)
        consumer.assign(starts)
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"{left} records were not read"
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None, message.error()
                found[_ALL_PRODUCERS[message.partition() or 0]].append(int(message.value() or b""))
                left -= 1
    finally:
        consumer.close()
    return found


def _meet(kafka: Kafka, *, wanted: int, patience_s: float) -> None:
    settings = {"fair_call_queue": {"backoff.enable": True}}
    with Proxy(settings, kafka, module=_REFUSING) as proxy, scratch("refused") as folder:
        meeting = _Meeting(kafka, proxy, folder, wanted)
        meeting.hold(patience_s)
        refusals, metadata = meeting.refusals, proxy.metrics().total(_METADATA_FRAMES, api="Metadata")
    written = _written(kafka, meeting.topic)

    assert {one: refusals[one, ApiKey.PRODUCE] >= wanted for one in _ALL_PRODUCERS} == dict.fromkeys(
        _ALL_PRODUCERS, True
    )
    assert {one: refusals[one, ApiKey.FETCH] >= wanted for one in _ALL_CONSUMERS} == dict.fromkeys(_ALL_CONSUMERS, True)
    for admins in (_JAVA_ADMINS, _KAFKA_PYTHON_ADMINS):
        assert min(sum(refusals[one, api] for one in admins) for api in _MUTATIONS) >= wanted
    assert not [api for one, api in refusals if one == _NEVER_REFUSED]

    assert metadata <= _METADATA_OF_A_CLIENT * len(_ALL_CLIENTS)
    assert {one: sorted(numbers) for one, numbers in written.items()} == {
        one: list(range(count)) for one, count in meeting.acknowledged.items()
    }
    assert {one for one, numbers in written.items() if numbers != sorted(numbers)} <= _MAY_REORDER


def test_refusals_reach_no_application(kafka_4: Kafka) -> None:
    _meet(kafka_4, wanted=20, patience_s=150)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_thousand_refusals_reach_no_application(kafka_4: Kafka) -> None:
    _meet(kafka_4, wanted=1_000, patience_s=2_400)
