"""The test bed itself: real Kafkas start, answer, survive a kill, and their tools can be read."""

from __future__ import annotations

import pytest

from tests.end_to_end.support import tools
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import DIRECT, Kafka


@pytest.fixture(params=["kafka_39", "kafka_4"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    chosen: Kafka = request.getfixturevalue(request.param)
    return chosen


def test_a_record_comes_back_from_a_real_broker(kafka: Kafka) -> None:
    topic = create_topic(kafka)

    with raw_client(kafka.listener(DIRECT).port) as client:
        produced = client.produce(topic, record_batch([b"one", b"two"]))
        fetched = client.fetch(topic, offset=0, max_bytes=1_000_000)

    assert produced.error_code == 0
    assert fetched.high_watermark == 2
    assert b"one" in fetched.records
    assert b"two" in fetched.records


def test_the_performance_tools_of_kafka_can_be_read(kafka: Kafka) -> None:
    topic = create_topic(kafka)

    produced = tools.producer_performance(
        kafka, bootstrap_servers=kafka.bootstrap_servers, topic=topic, records=2_000, record_size_bytes=1_000
    )
    consumed = tools.consumer_performance(kafka, bootstrap_servers=kafka.bootstrap_servers, topic=topic, records=2_000)

    assert produced.records == 2_000
    assert produced.records_per_second > 100
    assert consumed.records == 2_000
    assert consumed.size_bytes == pytest.approx(2_000_000, rel=1e-4)


def test_a_killed_broker_comes_back_with_its_ports_and_its_records(mortal_kafka: Kafka) -> None:
    topic = create_topic(mortal_kafka)
    port = mortal_kafka.listener(DIRECT).port
    with raw_client(port) as client:
        client.produce(topic, record_batch([b"kept"]), acks=-1)

    mortal_kafka.broker.kill()
    mortal_kafka.broker.restart()

    with raw_client(port) as client:
        assert b"kept" in client.fetch(topic, offset=0, max_bytes=1_000_000).records
