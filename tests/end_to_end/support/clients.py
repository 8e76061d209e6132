"""Real clients of Kafka, each driven in the same way."""

from __future__ import annotations

import uuid

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.end_to_end.support.kafka import Kafka


def create_topic(kafka: Kafka, *, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """Make a topic of a new name, directly at the broker, and return the name once it has leaders."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    wanted = NewTopic(topic, partitions, min(3, len(kafka.brokers)), config=config or {})
    admin.create_topics([wanted])[topic].result(timeout=30)
    return topic
