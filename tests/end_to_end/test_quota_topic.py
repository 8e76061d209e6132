"""The publisher of the quota topic, with a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from kafka_quota_proxy.config.quota_record import News, Rule, Share, encode
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.quota_topic import Found, QuotaTopic
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.kafka import Kafka

pytestmark = pytest.mark.proof

RULE = Rule(user="alice", limits={"producer_byte_rate": 1_000.0})
SHARE = Share(proxy="p1", user="alice", limits={"producer_byte_rate": 2_000.0})
NEWS = News(published_ms=1_767_225_600_000, lease_ms=8_000)

COMPACTED = {"cleanup.policy": "compact"}


@contextmanager
def begun(kafka: Kafka, name: str) -> Iterator[tuple[QuotaTopic, Found]]:
    topic = QuotaTopic(kafka.bootstrap_servers, name, delivery_ms=5_000)
    try:
        yield topic, topic.begin()
    finally:
        topic.end()


def test_topic_is_created_with_one_partition_and_its_records_are_read(kafka_4: Kafka) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"

    with begun(kafka_4, name) as (topic, nothing):
        topic.publish([RULE, SHARE, Share(proxy="p2", user="alice", limits=SHARE.limits), NEWS])
        topic.publish([Share(proxy="p2", user="alice")])
        # The publisher ignores the records of another writer.
        key, value = encode(Rule(user="bob", limits={"producer_byte_rate": 5.0}))
        topic._topic.run(topic._producer.send_and_wait(name, key=key, value=value), timeout_s=30)
        topic._topic.run(topic._producer.send_and_wait(name, key=b"garbage", value=b"\xff"), timeout_s=30)
        topic.publish([NEWS])
        topic.check_alone()
    with begun(kafka_4, name) as (again, found):
        again.check_alone()

    admin = AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers, **QUIET})
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    config = admin.describe_configs([resource])[resource].result(timeout=30)
    assert config["cleanup.policy"].value == "compact"
    assert nothing == Found(rules=(), shares=(), lease_ms=None)
    assert found == Found(rules=(RULE,), shares=(SHARE,), lease_ms=8_000)


def test_two_writers_of_one_topic_are_detected(kafka_4: Kafka) -> None:
    name = create_topic(kafka_4, config=COMPACTED)
    with begun(kafka_4, name) as (first, _), begun(kafka_4, name) as (second, _):
        first.publish([NEWS])
        first.check_alone()

        with pytest.raises(PipelineError, match="another balance --follow"):
            second.check_alone()


def test_publisher_refuses_a_topic_with_several_partitions(kafka_4: Kafka) -> None:
    name = create_topic(kafka_4, partitions=2, config=COMPACTED)

    with pytest.raises(PipelineError, match=f"{name}: has 2 partitions"), begun(kafka_4, name):
        pass


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_topic_with_a_retention_that_deletes_rules_is_refused(kafka_4: Kafka, policy: str) -> None:
    name = create_topic(kafka_4, config={"cleanup.policy": policy})

    with pytest.raises(PipelineError, match=f"{name}: has cleanup.policy={policy}"), begun(kafka_4, name):
        pass
