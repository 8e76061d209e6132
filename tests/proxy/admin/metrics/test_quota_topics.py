"""The metrics of rules from a topic, and of a store in one."""

from math import isnan
from time import monotonic_ns

from kafka_quota_proxy.config.model import QuotaRule, QuotasFrom
from kafka_quota_proxy.config.quota_record import News, QuotaRecord, RecordFault, Rule, Setting, Share, decode
from kafka_quota_proxy.proxy.admin.metrics.quota_sources import quota_topic_metrics
from kafka_quota_proxy.proxy.client_quotas.sources.topic_source import TopicSource
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicStore
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import TopicRecord
from tests.support.playbook import Playbook
from tests.support.topic_log import LogReader, LogWriter, TopicLog

OF_RULES = "kafka_quota_proxy_quotas_topic_"
OF_STORE = "kafka_quota_proxy_store_topic_"


def values(prefix: str, rules: TopicSource | None, store: TopicStore | None) -> dict[str, float]:
    return {family.name.removeprefix(prefix): dict(family.samples)[""] for family in quota_topic_metrics(rules, store)}


def test_a_topic_of_rules_shows_its_records_rules_and_lease() -> None:
    topic = TopicSource(
        QuotasFrom(), "p1", [QuotaRule(user="filed")], on_changes=lambda _: None, reader=lambda tell: Playbook(tell)
    )
    assert isnan(values(OF_RULES, topic, None)["news_age_seconds"])
    fault = decode(b"?", None)
    assert isinstance(fault, RecordFault)
    now_ms = monotonic_ns() // 1_000_000
    records: list[QuotaRecord | RecordFault] = [
        Rule(user="alice", limits={"connections": 5}),
        Rule(user="filed", limits={"connections": 5}),
        fault,
        Share(proxy="p1", user="alice", limits={"connections": 2}),
        News(published_ms=1, lease_ms=60_000),
    ]
    topic.state.begin()
    seen = [TopicRecord(offset, 0, record) for offset, record in enumerate(records)]
    topic.state.take(seen, since_ms=now_ms - 3_000, now_ms=now_ms, wall_ms=0)
    topic.state.changes()
    topic.is_connected, topic.failures, topic.state.lease_ends = True, 4, 6

    found = values(OF_RULES, topic, None)

    assert 3 <= found.pop("news_age_seconds") < 60
    assert found == {
        "records_total": 5.0,
        "not_understood_records_total": 1.0,
        "failures_total": 4.0,
        "connected": 1.0,
        "rules": 2.0,
        "shares": 1.0,
        "rules_in_force": 1.0,
        "lease_in_force": 1.0,
        "lease_ends_total": 6.0,
    }


def test_a_topic_that_is_the_store_shows_its_records_and_offset() -> None:
    log = TopicLog()
    topic = TopicStore("t", _nothing, None, reader=lambda tell: LogReader(log, tell), writer=LogWriter(log))
    setting = Setting(user="alice", key="producer_byte_rate", value=5.0)
    topic.state.begin()
    topic.state.take(
        [TopicRecord(0, 0, setting), TopicRecord(1, 0, decode(b"?", None)), TopicRecord(2, 0, setting)], next_offset=3
    )
    topic.state.end_reached(next_offset=3)
    topic.is_connected, topic.failures, topic.refused, topic.offset = True, 4, 5, 3

    assert values(OF_STORE, None, topic) == {
        "records_total": 3.0,
        "not_understood_records_total": 1.0,
        "failures_total": 4.0,
        "refused_changes_total": 5.0,
        "connected": 1.0,
        "entities": 1.0,
        "offset": 3.0,
        "disk_failures_total": 0.0,
    }


def test_without_topics_there_are_no_families() -> None:
    assert list(quota_topic_metrics(None, None)) == []


async def _nothing(_: object) -> None:
    """Nobody holds anything."""
