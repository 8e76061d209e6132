"""An unreachable broker costs its clients their connections. The listener stays open and logs the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.support.clients import create_topic, end_offset
from tests.end_to_end.support.frames import API_VERSIONS, raw_client, record_batch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy


@pytest.fixture
def proxy(mortal_kafka: Kafka) -> Iterator[Proxy]:
    with Proxy({}, mortal_kafka) as running:
        yield running


def test_listener_serves_again_after_its_broker_returns(mortal_kafka: Kafka, proxy: Proxy) -> None:
    topic = create_topic(mortal_kafka)
    with raw_client(proxy.port()) as client:
        client.produce(topic, record_batch([b"before"]), acks=-1)
        mortal_kafka.broker.kill()
        assert client.is_closed_by_peer()
    with raw_client(proxy.port(), timeout_s=5) as client:
        client.send(API_VERSIONS, 0, b"")
        assert client.is_closed_by_peer()

    mortal_kafka.broker.restart()

    with raw_client(proxy.port()) as client:
        assert client.produce(topic, record_batch([b"after"]), acks=-1).base_offset == 1
    assert end_offset(mortal_kafka, topic) == 2
