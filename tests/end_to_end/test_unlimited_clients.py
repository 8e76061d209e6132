"""A client that no rule limits is in the log of a proxy that runs as in production, with real clients and Kafka."""

from __future__ import annotations

import json
from typing import Final

import confluent_kafka

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_RATES: Final = {"producer_byte_rate": "10MB", "consumer_byte_rate": "10MB"}
_WITHIN_S: Final = 70.0
_NOT_LIMITED: Final = "not limited: "


def produce_and_consume(proxy: Proxy, topic: str, client_id: str) -> None:
    connection = {"bootstrap.servers": proxy.address(), "client.id": client_id}
    producer = confluent_kafka.Producer(connection)
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    settings = {**connection, "group.id": client_id, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
    finally:
        consumer.close()


def logged(proxy: Proxy) -> list[tuple[str, str]]:
    """Return the level and the message of each line about unlimited clients."""
    records = [json.loads(line) for line in proxy.log.splitlines() if line.startswith("{")]
    return [(one["level"], one["message"]) for one in records if one["message"].startswith(_NOT_LIMITED)]


def test_log_names_the_clients_that_no_rule_limits(kafka_4: Kafka) -> None:
    topic = create_topic(kafka_4)
    settings = {"quotas": [{"client-id": "my-app", **_RATES}], "log": {"format": "json"}}

    with Proxy(settings, kafka_4) as proxy:
        for client_id in ("my-app", "myapp", "other\nline"):
            produce_and_consume(proxy, topic, client_id)
        # On a slow machine the last client may come after the first line, and is then in the second one.
        wait_until(lambda: "other" in str(logged(proxy)), timeout_s=_WITHIN_S, what="the log names the clients")

        assert {level for level, _ in logged(proxy)} == {"info"}
        assert ", ".join(message.removeprefix(_NOT_LIMITED) for _, message in logged(proxy)) == (
            "user='ANONYMOUS' client-id='myapp' (no rule applies to it; did you mean client-id='my-app'?), "
            "user='ANONYMOUS' client-id='other\\nline' (no rule applies to it)"
        )


def test_log_is_silent_about_clients_that_rules_limit(kafka_4: Kafka) -> None:
    topic = create_topic(kafka_4)
    rules = [{"client-id": "my-app", **_RATES}, {"client-id": "writer", "request_rate": 1_000_000}]
    # With testing, each client is logged at once.
    with Proxy({"quotas": rules, "testing": True, "log": {"format": "json"}}, kafka_4) as proxy:
        for client_id in ("my-app", "writer", "stranger"):
            produce_and_consume(proxy, topic, client_id)
        wait_until(lambda: bool(logged(proxy)), timeout_s=_WITHIN_S, what="the log names the last client")

        assert [message.partition(" client-id=")[2].partition(" ")[0] for _, message in logged(proxy)] == ["'stranger'"]
