"""A test of a client gets exactly the throttle times that it asks for, with real clients and a real Kafka."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from kafka_quota_proxy.testing.control import Control
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.tools import producer_performance


def told_ms(control: Control, client_id: str) -> list[int]:
    return [one.throttle_time_ms for one in control.observed(client_id)]


@pytest.mark.proof
def test_next_responses_carry_the_time_and_the_connection_is_silent_for_it(
    kafka_4: Kafka, testing_proxy: Proxy, control: Control
) -> None:
    topic = create_topic(kafka_4)
    batch = record_batch([b"value"])
    control.order({"count": 2, "api": "Produce", "throttle_time_ms": 300, "client_id": "raw"})
    control.order({"count": 1, "api": "Fetch", "throttle_time_ms": 200, "topic": topic})

    with raw_client(testing_proxy.port()) as client:
        began_s = time.monotonic()
        told = [client.produce(topic, batch).throttle_time_ms for _ in range(4)]
        silent_s = time.monotonic() - began_s
        fetched = [client.fetch(topic, offset=0, max_bytes=1_000).throttle_time_ms for _ in range(2)]

    assert told == [300, 300, 0, 0]
    assert silent_s >= 0.6
    assert fetched == [200, 0]
    assert told_ms(control, "raw") == [300, 300, 200]


def test_java_measures_the_time(kafka_4: Kafka, testing_proxy: Proxy, control: Control) -> None:
    topic = create_topic(kafka_4)
    control.order({"count": 1, "api": "Produce", "throttle_time_ms": 700})

    produced = producer_performance(
        kafka_4,
        bootstrap_servers=testing_proxy.address(),
        topic=topic,
        records=2_000,
        record_size_bytes=100,
        throughput=1_000,
    )

    assert produced.throttle_time_max_ms == 700
    assert 0 < produced.throttle_time_avg_ms < 700
    assert produced.records == 2_000


@pytest.mark.proof
def test_librdkafka_reports_the_time_and_delivers_each_record_once(
    kafka_4: Kafka, testing_proxy: Proxy, control: Control
) -> None:
    topic = create_topic(kafka_4)
    events: list[float] = []
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": testing_proxy.address(),
            "client.id": "app",
            "throttle_cb": lambda event: events.append(event.throttle_time),
        }
    )
    control.order({"count": 3, "api": "Produce", "throttle_time_ms": 250, "client_id": "app"})
    for number in range(6):
        producer.produce(
            topic, str(number), partition=0, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        assert producer.flush(20) == 0
    producer.poll(1)

    assert failures == []
    assert max(events) == pytest.approx(0.25)
    assert told_ms(control, "app") == [250, 250, 250]
    with raw_client(testing_proxy.port()) as client:
        assert client.fetch(topic, offset=0, max_bytes=10_000).high_watermark == 6
