"""The metrics of rules from a topic."""

from math import isnan
from time import monotonic_ns

from config.model import QuotaRule, QuotasFrom
from config.quota_record import News, QuotaRecord, RecordFault, Rule, Share, decode
from proxy.metrics.quota_topic import families
from proxy.quota_topic.state import Seen
from proxy.quota_topic.watcher import QuotaTopic
from tests.support.playbook import Playbook

PREFIX = "kafka_quota_proxy_quotas_topic_"


def values(topic: QuotaTopic) -> dict[str, float]:
    return {family.name.removeprefix(PREFIX): dict(family.samples)[""] for family in families(topic)}


def test_they_tell_what_the_topic_has_and_how_it_stands() -> None:
    topic = QuotaTopic(
        QuotasFrom(), "p1", [QuotaRule(user="filed")], on_changes=lambda _: None, reader=lambda tell: Playbook(tell)
    )
    assert isnan(values(topic)["news_age_seconds"])
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
    seen = [Seen(offset, 0, record) for offset, record in enumerate(records)]
    topic.state.take(seen, since_ms=now_ms - 3_000, now_ms=now_ms, wall_ms=0)
    topic.state.changes()
    topic.is_connected, topic.failures, topic.state.lease_ends = True, 4, 6

    found = values(topic)

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


def test_without_a_topic_there_are_none() -> None:
    assert list(families(None)) == []
