"""Every client in front of a broker with few slots: nothing is lost, doubled or reordered by waiting in the queue."""

from __future__ import annotations

import pytest

from tests.end_to_end.support.clients import (
    Aiokafka,
    Client,
    Java,
    KafkaPython,
    Librdkafka,
    create_topic,
    end_offset,
)
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

_RECORDS = 20_000
_CLIENTS: dict[str, Client | None] = {
    "Java": None,
    "librdkafka": Librdkafka(settings={"max.in.flight": 5}),
    "aiokafka": Aiokafka(),
    "kafka-python": KafkaPython(),
}


@pytest.mark.parametrize("max_in_flight", [1, 4, "adaptive"])
@pytest.mark.parametrize("name", _CLIENTS)
def test_each_record_arrives_once_in_order_byte_for_byte(name: str, max_in_flight: int | str, kafka_4: Kafka) -> None:
    client = _CLIENTS[name] or Java(kafka=kafka_4)
    topic = create_topic(kafka_4)

    with Proxy({"fair_call_queue": {"max_in_flight": max_in_flight}}, kafka_4) as proxy:
        client.produce(proxy.address(), topic, client_id="queued", count=_RECORDS)
        client.consume(proxy.address(), topic, client_id="queued", count=_RECORDS)

    assert end_offset(kafka_4, topic) == _RECORDS
