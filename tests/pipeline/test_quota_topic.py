"""The publisher's side of the quota topic, without a Kafka. With one: tests/end_to_end/test_quota_topic.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_quota_proxy.config.quota_record import News, Rule, encode
from kafka_quota_proxy.pipeline import quota_topic
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.quota_topic import QuotaTopic

NEWS = News(published_ms=1_767_225_600_000, lease_ms=8_000)


class FakeConsumer:
    """Answers a poll with one record, and each other one with none, as a real one does while a fetch is under way."""

    def __init__(self, messages: list[SimpleNamespace]) -> None:
        self._messages = messages
        self._at = self._polls = 0

    def end_offsets(self, places: list[object]) -> dict[object, int]:
        return dict.fromkeys(places, len(self._messages))

    def position(self, _: object) -> int:
        return self._at

    def poll(self, *, timeout_ms: int) -> dict[str, list[SimpleNamespace]]:
        assert timeout_ms > 0
        self._polls += 1
        if self._polls % 2 or self._at == len(self._messages):
            return {}
        self._at += 1
        return {"place": [self._messages[self._at - 1]]}


def message(publisher: bytes | None, record: News | Rule = NEWS) -> SimpleNamespace:
    key, value = encode(record)
    return SimpleNamespace(key=key, value=value, headers=[("balance", publisher)] if publisher else [])


def topic() -> QuotaTopic:
    return QuotaTopic("127.0.0.1:1", "quotas", delivery_ms=5_000)


def test_another_publisher_is_found_after_own_records() -> None:
    quotas = topic()
    quotas._consumer = FakeConsumer([message(quotas._id), message(None), message(quotas._id), message(b"another")])

    with pytest.raises(PipelineError, match="another balance --follow"):
        quotas.check_alone()


def test_own_records_and_plain_rules_are_no_other_publisher() -> None:
    quotas = topic()
    rule = Rule(user="bob", limits={"producer_byte_rate": 5.0})
    quotas._consumer = FakeConsumer([message(quotas._id), message(None, rule)])

    quotas.check_alone()


class FakeAdmin:
    """A cluster with one topic."""

    def __init__(self, configs: dict[str, object]) -> None:
        self._configs = configs

    def describe_topics(self, names: list[str]) -> list[dict[str, object]]:
        return [{"name": name, "error_code": 0, "partitions": [{}]} for name in names]

    def describe_configs(self, _: object, *, config_filter: str) -> dict[str, object]:
        assert config_filter == "all"  # else a policy that is the brokers' own is left out
        return {"topic": {"quotas": self._configs}}

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"cleanup.policy": {"value": "delete"}}, "has cleanup.policy=delete, and rules and shares would expire"),
        ({"cleanup.policy": {"value": "compact,delete"}}, "has cleanup.policy=compact,delete"),
        ({}, "grant DESCRIBE_CONFIGS"),  # as a cluster answers whoever may not know
    ],
)
def test_a_topic_in_which_rules_would_expire_is_refused(
    configs: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_topic, "KafkaAdminClient", lambda **_: FakeAdmin(configs))

    with pytest.raises(PipelineError, match=said):
        topic().begin()
