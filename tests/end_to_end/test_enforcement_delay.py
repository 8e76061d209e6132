"""``enforcement: delay``: the proxy holds a response for its throttle time, as brokers before 2.0 did.

Later clients wait for the announced throttle time, so they must not wait twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import aiokafka
import confluent_kafka
import pytest

from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from tests.end_to_end.support import tools
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.load import KIB
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.throttles_itself import throttles_itself

_QUOTA: Final = 128 * KIB
# Three seconds' worth of the quota. One passes at once, so each wait is two seconds.
_RECORD_BYTES: Final = 3 * _QUOTA
_RECORDS: Final = 4
_WAIT_S: Final = 2
_SETTINGS: Final = {"shaping": "paced", "max_throttle_time": None}


class Done(NamedTuple):
    """The times of a client, and the throttle time that the proxy counted."""

    first_s: float  # until the first record was acknowledged, or read
    took_s: float  # until the last
    throttled_s: float

    @property
    def share(self) -> float:
        """Return the rate after the initial burst, relative to the quota."""
        return (_RECORDS * _RECORD_BYTES - _QUOTA) / self.took_s / _QUOTA


Run = Callable[[Kafka, str, str], tuple[float, float]]  # topic and client-id, to first_s and took_s


def _send_with_aiokafka(kafka: Kafka, topic: str, client_id: str) -> tuple[float, float]:
    async def send() -> list[float]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=kafka.listener(PROXIED).advertised_address, client_id=client_id, acks=1,
            max_batch_size=2 * _RECORD_BYTES, max_request_size=2 * _RECORD_BYTES,
        )  # fmt: skip
        async with producer:
            await producer.partitions_for(topic)
            times_s = [time.monotonic()]
            for _ in range(_RECORDS):
                await producer.send_and_wait(topic, bytes(_RECORD_BYTES), partition=0)
                times_s.append(time.monotonic())
        return times_s

    times_s = asyncio.run(send())
    return times_s[1] - times_s[0], times_s[-1] - times_s[0]


def _send_with_librdkafka(kafka: Kafka, topic: str, client_id: str) -> tuple[float, float]:
    address = kafka.listener(PROXIED).advertised_address
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "client.id": client_id, "linger.ms": 0, **QUIET})
    producer.list_topics(topic, timeout=30)
    times_s = [time.monotonic()]
    for _ in range(_RECORDS):
        producer.produce(topic, bytes(_RECORD_BYTES), partition=0)
        assert producer.flush(60) == 0
        times_s.append(time.monotonic())
    return times_s[1] - times_s[0], times_s[-1] - times_s[0]


def _send_with_java(kafka: Kafka, topic: str, client_id: str) -> tuple[float, float]:
    produced = tools.producer_performance(
        kafka,
        bootstrap_servers=kafka.listener(PROXIED).advertised_address,
        topic=topic,
        records=_RECORDS,
        record_size_bytes=_RECORD_BYTES,
        properties={"client.id": client_id, "batch.size": _RECORD_BYTES, "max.in.flight.requests.per.connection": 1},
    )
    return produced.p50_ms / 1_000, produced.records / produced.records_per_second


def _read_with_aiokafka(kafka: Kafka, topic: str, client_id: str) -> tuple[float, float]:
    async def read() -> list[float]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=kafka.listener(PROXIED).advertised_address, client_id=client_id, group_id=None,
            auto_offset_reset="earliest", max_partition_fetch_bytes=_RECORD_BYTES,
        )  # fmt: skip
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        times_s = [time.monotonic()]
        async with consumer, asyncio.timeout(60):
            while len(times_s) <= _RECORDS:
                await consumer.getone()
                times_s.append(time.monotonic())
        return times_s

    times_s = asyncio.run(read())
    return times_s[1] - times_s[0], times_s[-1] - times_s[0]


def _read_with_librdkafka(kafka: Kafka, topic: str, client_id: str) -> tuple[float, float]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.listener(PROXIED).advertised_address, "client.id": client_id,
            "group.id": "unused", "max.partition.fetch.bytes": _RECORD_BYTES, "fetch.max.bytes": 2 * _RECORD_BYTES,
            "message.max.bytes": 2 * _RECORD_BYTES, **QUIET,
        }
    )  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        times_s = [time.monotonic()]
        while len(times_s) <= _RECORDS:
            assert time.monotonic() < times_s[0] + 60
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                times_s.append(time.monotonic())
    finally:
        consumer.close()
    return times_s[1] - times_s[0], times_s[-1] - times_s[0]


_PRODUCERS: Final[dict[str, Run]] = {
    "aiokafka-sends": _send_with_aiokafka,
    "librdkafka-sends": _send_with_librdkafka,
    "java-sends": _send_with_java,
}
_CONSUMERS: Final[dict[str, Run]] = {
    "aiokafka-reads": _read_with_aiokafka,
    "librdkafka-reads": _read_with_librdkafka,
}
# With this client-id responses are not delayed.
_AT_ONCE: Final = "at-once"


@pytest.fixture(scope="module")
def clients(kafka_4: Kafka) -> dict[str, Done]:
    """The results of all clients, which run at the same time, each under a quota of its own."""
    full = create_topic(kafka_4)
    with raw_client(kafka_4.listener(DIRECT).port) as client:
        for _ in range(2 * _RECORDS):
            assert client.produce(full, record_batch([bytes(_RECORD_BYTES)])).error_code == 0
    empty = create_topic(kafka_4)
    rules: list[dict[str, Any]] = [
        {"client-id": name, limit: _QUOTA, "enforcement": "delay"}
        for limit, names in (("producer_byte_rate", _PRODUCERS), ("consumer_byte_rate", _CONSUMERS))
        for name in names
    ]
    rules.append({"client-id": _AT_ONCE, "producer_byte_rate": _QUOTA})
    running = {
        **{name: (run, empty) for name, run in _PRODUCERS.items()},
        **{name: (run, full) for name, run in _CONSUMERS.items()},
        _AT_ONCE: (_send_with_aiokafka, empty),
    }
    with Proxy({**_SETTINGS, "quotas": rules}, kafka_4) as proxy, ThreadPoolExecutor(len(running)) as pool:
        ends = {name: pool.submit(run, kafka_4, topic, name) for name, (run, topic) in running.items()}
        times = {name: end.result() for name, end in ends.items()}
        metrics = proxy.metrics()
    throttled = "kafka_quota_proxy_throttle_seconds_total"
    return {name: Done(*times[name], metrics.total(throttled, client_id=name)) for name in running}


@pytest.mark.parametrize("name", _PRODUCERS)
def test_producer_sees_throttle_time_as_latency(clients: dict[str, Done], name: str) -> None:
    assert clients[name].first_s > _WAIT_S * 0.95
    assert clients[name].took_s == pytest.approx(clients[name].throttled_s, rel=0.1)
    assert clients[_AT_ONCE].first_s < _WAIT_S * 0.75


@pytest.mark.parametrize("name", [*_PRODUCERS, *_CONSUMERS])
def test_delayed_client_gets_its_quota(clients: dict[str, Done], name: str) -> None:
    assert 0.9 < clients[name].share < 1.03, clients[name]


@pytest.mark.parametrize(
    "version",
    [pytest.param(KAFKA_3_9, marks=pytest.mark.long), pytest.param(KAFKA_4_3, marks=pytest.mark.long), KAFKA_4],
)
def test_no_java_client_would_wait_twice(version: str) -> None:
    """Releases before 4.4 wait for fewer throttle times than 4.4, which the table of APIs follows."""
    says = throttles_itself(version)

    assert len(says) > 250
    assert [key for key, waits in says.items() if waits and not client_throttles_itself(*key)] == []
