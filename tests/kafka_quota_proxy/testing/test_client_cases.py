"""The cases that authors of Kafka clients need from a broker that throttles, with the fixture and the embedded broker.

Of the clients here, librdkafka and aiokafka ignore throttle times, and kafka-python waits for them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest

from kafka_quota_proxy.testing import ThrottlingProxy
from tests.end_to_end.support.frames import (
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    produce_body,
    record_batch,
    string,
)

pytestmark = pytest.mark.kafka

ID: Final = "app"
BATCH: Final = record_batch([b"0"])
# A client that is throttled twice would need twice the time.
ONCE: Final = 1.9


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").rstrip("]")


@contextmanager
def raw_client(proxy: ThrottlingProxy, topic: str) -> Iterator[RawClient]:
    """Open a client that ignores throttle times. Its first request creates the topic."""
    with closing(RawClient(int(proxy.bootstrap_servers.rpartition(":")[2]), client_id=ID)) as client:
        ask_metadata(client, topic)
        yield client


def ask_metadata(client: RawClient, topic: str) -> int:
    """Send Metadata v4, and return the throttle time. The request: array of topic names, then may-create."""
    body = client.ask(METADATA, 4, b"\0\0\0\1" + string(topic) + b"\1").body
    return int.from_bytes(body[:4])


class Librdkafka:
    """The settings of a client, with callbacks that keep its throttle events and what its statistics say of them."""

    def __init__(self, proxy: ThrottlingProxy, **settings: object) -> None:
        self.events: list[tuple[str, int, float]] = []
        self.statistics: list[dict[str, float]] = []
        self.settings: dict[str, Any] = {
            "bootstrap.servers": proxy.bootstrap_servers,
            "client.id": ID,
            "statistics.interval.ms": 100,
            "throttle_cb": lambda event: self.events.append((event.broker_name, event.broker_id, event.throttle_time)),
            "stats_cb": self._keep,
            **settings,
        }

    def _keep(self, text: str) -> None:
        self.statistics += [one["throttle"] for one in json.loads(text)["brokers"].values() if one["nodeid"] >= 0]


def read_all(proxy: ThrottlingProxy, topic: str) -> Counter[int]:
    """Read the numbers in a topic until there are no more. Return how often each one came."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": proxy.bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: Counter[int] = Counter()
    with closing(consumer):
        while (message := consumer.poll(20)) is not None:
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found[int(message.value() or b"")] += 1
    raise AssertionError(f"the end did not come, after {len(found)} records")


def serve(producer: confluent_kafka.Producer, *, seconds: float) -> None:
    """Call the callbacks that are due in this time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        producer.poll(0.05)


def seconds_of(act: Callable[[], object]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


def test_librdkafka_is_told_the_broker_the_time_and_the_end(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    client = Librdkafka(kafka_throttle)
    producer = confluent_kafka.Producer(client.settings)
    errors: list[object] = []
    kafka_throttle.next(1, api="Produce", throttle_time_ms=0)
    kafka_throttle.next(2, api="Produce", throttle_time_ms=150)
    for number in range(5):
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
    serve(producer, seconds=0.3)

    assert errors == [None] * 5
    broker = kafka_throttle.bootstrap_servers, 1
    assert client.events == [(*broker, 0.15), (*broker, 0.15), (*broker, 0.0)]
    told = [one for one in client.statistics if one["cnt"]]
    assert {(one["min"], one["avg"], one["max"]) for one in told} == {(150, 150, 150)}
    assert (sum(one["cnt"] for one in told), sum(one["sum"] for one in told)) == (2, 300)
    assert client.statistics[-1]["cnt"] == 0


def test_idempotent_producer_neither_loses_nor_doubles_a_record(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    client = Librdkafka(kafka_throttle, **{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 5})
    producer = confluent_kafka.Producer(client.settings)
    errors: list[object] = []
    kafka_throttle.next(40, api="Produce", throttle_time_ms=10)
    for number in range(500):
        producer.produce(topic, str(number), partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0

    assert errors == [None] * 500
    assert [one.throttle_time_ms for one in kafka_throttle.observed(ID)] == [10] * 40
    assert read_all(kafka_throttle, topic) == Counter(range(500))


def test_requests_that_are_already_sent_wait_too(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    with raw_client(kafka_throttle, topic) as client:
        kafka_throttle.next(1, api="Produce", throttle_time_ms=400)
        for _ in range(3):
            client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, BATCH, acks=1))
        client.receive()
        silent_s = seconds_of(client.receive)
        then_s = seconds_of(client.receive)

    assert 0.39 < silent_s < 0.4 * ONCE
    assert then_s < 0.35


def test_client_that_waits_by_itself_waits_once(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    with raw_client(kafka_throttle, topic) as client:
        kafka_throttle.next(1, api="Produce", throttle_time_ms=400)
        assert client.produce(topic, BATCH).throttle_time_ms == 400
        time.sleep(0.4)
        assert seconds_of(lambda: client.produce(topic, BATCH)) < 0.35

    producer = kafka_python.KafkaProducer(bootstrap_servers=kafka_throttle.bootstrap_servers, client_id=ID)
    with closing(producer):
        kafka_throttle.next(1, api="Produce", throttle_time_ms=700)
        producer.send(topic, b"0").get(20)
        assert 0.65 < seconds_of(lambda: producer.send(topic, b"1").get(20)) < 0.7 * ONCE
        assert producer.metrics()["producer-metrics"]["throttle-time-max"] == 700


async def test_client_that_ignores_the_time_is_silenced(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_throttle.bootstrap_servers, client_id=ID) as producer:
        await producer.send_and_wait(topic, b"0")
        kafka_throttle.next(1, api="Produce", throttle_time_ms=500)
        await producer.send_and_wait(topic, b"1")
        began_s = time.monotonic()
        await producer.send_and_wait(topic, b"2")

    assert 0.45 < time.monotonic() - began_s < 0.5 * ONCE


def test_throttled_fetch_has_its_records(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    with raw_client(kafka_throttle, topic) as client:
        client.produce(topic, BATCH)
        kafka_throttle.next(1, api="Fetch", throttle_time_ms=50, topic=topic)
        throttled, free = (client.fetch(topic, offset=0, max_bytes=1_000) for _ in range(2))

    assert (throttled.throttle_time_ms, free.throttle_time_ms) == (50, 0)
    assert throttled.records == free.records != b""


def test_time_of_a_long_poll_is_not_in_the_field(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    with raw_client(kafka_throttle, topic) as client:
        kafka_throttle.next(1, api="Fetch", throttle_time_ms=0, client_id=ID)
        kafka_throttle.next(1, api="Fetch", throttle_time_ms=20, client_id=ID)
        told = []
        for _ in range(2):
            began_s = time.monotonic()
            told.append(client.fetch(topic, offset=0, max_bytes=1, max_wait_ms=300).throttle_time_ms)
            assert time.monotonic() - began_s > 0.25

    assert told == [0, 20]


def test_responses_of_other_requests_are_throttled_too(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    with raw_client(kafka_throttle, topic) as client:
        kafka_throttle.next(2, api="Metadata", throttle_time_ms=30)
        assert client.produce(topic, BATCH).throttle_time_ms == 0
        assert [ask_metadata(client, topic) for _ in range(3)] == [30, 30, 0]
        kafka_throttle.next(2, throttle_time_ms=40)
        assert ask_metadata(client, topic) == 40
        assert client.produce(topic, BATCH).throttle_time_ms == 40
        assert client.produce(topic, BATCH).throttle_time_ms == 0


def test_produce_without_acknowledgement_counts_for_no_order(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    with raw_client(kafka_throttle, topic) as client:
        kafka_throttle.next(1, api="Produce", throttle_time_ms=60)
        for _ in range(3):
            client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, BATCH, acks=0))
        assert [client.produce(topic, BATCH).throttle_time_ms for _ in range(2)] == [60, 0]


def test_count_is_exact_over_many_connections(kafka_throttle: ThrottlingProxy, topic: str) -> None:
    def told_ms(_: int) -> list[int]:
        with raw_client(kafka_throttle, topic) as client:
            return [client.produce(topic, BATCH).throttle_time_ms for _ in range(25)]

    told_ms(0)
    kafka_throttle.next(70, api="Produce", throttle_time_ms=3, client_id=ID)
    with ThreadPoolExecutor(8) as threads:
        found = Counter(one for each in threads.map(told_ms, range(8)) for one in each)

    assert found == {3: 70, 0: 130}
    assert kafka_throttle.observed(ID).throttle_time_ms == 210
