"""Each client moves 100,000 records (short form 30,000) under a quota: each once, in order, byte for byte."""

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

# Below each client's unlimited rate, even on a busy machine. kafka-python is ten times slower than the others.
_QUOTA, _QUOTA_OF_KAFKA_PYTHON = "1MiB", "768KiB"
_THROTTLED = "kafka_quota_proxy_throttled_requests_total"

_CLIENTS: dict[str, tuple[str, Client | None]] = {
    # Kafka 4 no longer takes message formats before Produce v3, so the frames of 0.10.1 need the older broker.
    "kafka-python of 0.10.1": ("kafka_39", KafkaPython(api_version=(0, 10, 1))),
    "kafka-python": ("kafka_4", KafkaPython()),
    "aiokafka": ("kafka_4", Aiokafka()),
    "librdkafka": ("kafka_4", Librdkafka(settings={})),
    "librdkafka, idempotent": ("kafka_39", Librdkafka(settings={"enable.idempotence": True})),
    "Java 3.9": ("kafka_39", None),
    "Java 4": ("kafka_4", None),
}
_PROOF = ("aiokafka", "librdkafka")


# 110 bytes each. Even the smaller number takes the burst and two seconds more under each quota.
@pytest.mark.parametrize("count", [30_000, pytest.param(100_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.proof if name in _PROOF else pytest.mark.long) for name in _CLIENTS]
)
def test_each_record_arrives_once_in_order_byte_for_byte(name: str, count: int, request: pytest.FixtureRequest) -> None:
    broker, driver = _CLIENTS[name]
    kafka: Kafka = request.getfixturevalue(broker)
    client: Client = driver or Java(kafka=kafka)
    topic = create_topic(kafka)
    quota = _QUOTA_OF_KAFKA_PYTHON if isinstance(client, KafkaPython) else _QUOTA
    rules = [{"client-id": "<default>", "producer_byte_rate": quota, "consumer_byte_rate": quota}]

    with Proxy({"quotas": rules, "shaping": "paced"}, kafka) as proxy:
        client.produce(proxy.address(), topic, client_id="every", count=count)
        client.consume(proxy.address(), topic, client_id="every", count=count)
        metrics = proxy.metrics()

    assert end_offset(kafka, topic) == count
    assert metrics.total(_THROTTLED, kind="produce", client_id="every") > 0
    assert metrics.total(_THROTTLED, kind="fetch", client_id="every") > 0
