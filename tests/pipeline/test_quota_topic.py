"""The publisher of the quota topic, without a Kafka. tests/end_to_end/test_quota_topic.py uses a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition

from kafka_quota_proxy.config.quota_record import News, Rule, encode
from kafka_quota_proxy.pipeline import quota_topic
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.quota_topic import QuotaTopic

NEWS = News(published_ms=1_767_225_600_000, lease_ms=8_000)


class FakeConsumer:
    """A consumer that returns no record on every second poll, as a real one may."""

    def __init__(self, messages: list[SimpleNamespace]) -> None:
        self._messages = messages
        self._at = self._polls = 0

    async def end_offsets(self, partitions: list[object]) -> dict[object, int]:
        return dict.fromkeys(partitions, len(self._messages))

    async def position(self, _: object) -> int:
        return self._at

    async def getmany(self, *, timeout_ms: int) -> dict[object, list[SimpleNamespace]]:
        assert timeout_ms > 0
        self._polls += 1
        if self._polls % 2 or self._at == len(self._messages):
            return {}
        self._at += 1
        return {TopicPartition("quotas", 0): [self._messages[self._at - 1]]}

    async def stop(self) -> None:
        pass


def message(publisher: bytes | None, record: News | Rule = NEWS) -> SimpleNamespace:
    key, value = encode(record)
    return SimpleNamespace(key=key, value=value, headers=[("balance", publisher)] if publisher else [])


@pytest.fixture
def quotas() -> Iterator[QuotaTopic]:
    quotas = QuotaTopic("127.0.0.1:1", "quotas", delivery_ms=100)
    yield quotas
    quotas.end()


def test_another_publisher_is_found_after_own_records(quotas: QuotaTopic) -> None:
    quotas._consumer = FakeConsumer([message(quotas._id), message(None), message(quotas._id), message(b"another")])

    with pytest.raises(PipelineError, match="another balance --follow"):
        quotas.check_alone()


def test_own_records_and_plain_rules_are_no_other_publisher(quotas: QuotaTopic) -> None:
    rule = Rule(user="bob", limits={"producer_byte_rate": 5.0})
    quotas._consumer = FakeConsumer([message(quotas._id), message(None, rule)])

    quotas.check_alone()


class FakeProducer:
    """A producer without acknowledgements, in a cluster with one topic."""

    def __init__(self, configs: list[tuple[str, str]] | None = None) -> None:
        self.client = self
        self.is_stopped = False
        self._configs = configs

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.is_stopped = True

    async def close(self) -> None:
        pass

    def get_random_node(self) -> int:
        return 1

    async def send(self, *words: Any, **_: Any) -> Any:  # noqa: ANN401
        if isinstance(words[1], MetadataRequest):
            return SimpleNamespace(topics=[(0, "quotas", False, [()])])
        if isinstance(words[1], DescribeConfigsRequest):
            return SimpleNamespace(resources=[(0, None, 2, "quotas", self._configs)])
        return asyncio.get_running_loop().create_future()


def test_a_record_without_acknowledgement_is_not_sent_later(quotas: QuotaTopic) -> None:
    producer = quotas._producer = FakeProducer()

    with pytest.raises(PipelineError, match=r"kafka://127.0.0.1:1/quotas: TimeoutError: no answer within 0.1 s"):
        quotas.publish([NEWS])

    assert producer.is_stopped


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([("cleanup.policy", "delete")], "has cleanup.policy=delete, and rules and shares would expire"),
        ([("cleanup.policy", "compact,delete")], "has cleanup.policy=compact,delete"),
        ([], "grant DESCRIBE_CONFIGS"),  # the broker's response to a client without that permission
    ],
)
def test_a_topic_in_which_rules_would_expire_is_refused(
    configs: list[tuple[str, str]], said: str, quotas: QuotaTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reached() -> None: ...

    monkeypatch.setattr(quota_topic, "AIOKafkaProducer", lambda **_: FakeProducer(configs))
    monkeypatch.setattr(quotas._topic, "wait_for_broker", reached)

    with pytest.raises(PipelineError, match=said):
        quotas.begin()
