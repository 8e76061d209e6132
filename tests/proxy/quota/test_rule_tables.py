"""Tests rules that brokers share. The usage of each broker is separate."""

from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import DEFAULT, IpRule, KafkaSettings, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.open_connections import Identity
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleTables, rules_of_kind

ALICE = QuotaRule(user="alice", producer_byte_rate=1_000.0, consumer_byte_rate=2_000.0)
CONFIG = ProxyConfig(listeners=(), quotas=(ALICE,), max_buckets=1)


def limit(quotas: BrokerQuotas, user: str) -> float:
    return quotas.bucket(QuotaKind.PRODUCE, principal=user, client_id="etl", now_ms=0).limit


def test_change_applies_at_each_broker_with_separate_usage() -> None:
    rules = RuleTables(CONFIG)
    first, second = BrokerQuotas(CONFIG, rules=rules), BrokerQuotas(CONFIG, rules=rules)
    bobs = QuotaRule(user="bob", producer_byte_rate=7.0, connections=2)
    address = IpRule(ip="10.0.0.1", connection_creation_rate=3.0)
    assert [limit(quotas, "bob") for quotas in (first, second)] == [float(2**63 - 1)] * 2

    changed = rules.change(QuotaChanges({("bob", None): bobs, ("alice", None): None}, {"10.0.0.1": address}))
    first.rules_changed(changed)
    second.rules_changed(changed)

    bob = Identity("bob", "etl")
    for quotas in (first, second):
        assert limit(quotas, "bob") == 7.0
        assert limit(quotas, "alice") == float(2**63 - 1)
        assert quotas.arrivals.limit_of("10.0.0.1") == 3.0
        found = quotas.connections.check(bob).found
        assert found is not None
        assert found.limit == 2
    first.connections.enter(bob, first.connections.check(bob))
    first.produce.bucket(user="bob", client_id="etl", now_ms=0).charge(5, now_ms=0)
    assert [quotas.connections.check(bob).open_now for quotas in (first, second)] == [1, 0]
    assert [
        quotas.produce.bucket(user="bob", client_id="etl", now_ms=0).usage.amount for quotas in (first, second)
    ] == [5, 0]


def test_each_broker_makes_room_for_newly_named_buckets() -> None:
    rules = RuleTables(CONFIG)
    brokers = [BrokerQuotas(CONFIG, rules=rules) for _ in range(2)]
    for quotas in brokers:
        limit(quotas, "bob")  # takes the only place for a bucket

    changed = rules.change(
        QuotaChanges({("bob", "etl"): QuotaRule(user="bob", client_id="etl", producer_byte_rate=7.0)}, {})
    )

    for quotas in brokers:
        quotas.rules_changed(changed)
        limit(quotas, "bob")
        limit(quotas, "carol")
        assert {bucket.tags.user for bucket in quotas.produce} == {"bob", "carol"}
        assert quotas.produce.overflows == 0


def test_rule_without_charged_kinds_changes_no_table() -> None:
    rules = RuleTables(CONFIG)

    changed = rules.change(QuotaChanges({("alice", "x"): QuotaRule(user="alice", client_id="x", connections=1)}, {}))

    assert (changed.tables, changed.has_connections, changed.addresses) == ({}, True, {})


@pytest.mark.parametrize(
    ("written", "is_kept"),
    [
        (QuotaRule(client_id=DEFAULT, producer_byte_rate=50.0), False),
        (QuotaRule(client_id=DEFAULT, consumer_byte_rate=60.0), True),
        (QuotaRule(user=DEFAULT, producer_byte_rate=50.0), True),
        (QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=50.0), True),
        (QuotaRule(client_id="etl", producer_byte_rate=50.0), True),
    ],
)
def test_only_a_rule_for_the_default_client_id_replaces_the_static_default(written: QuotaRule, is_kept: bool) -> None:
    kafka = KafkaSettings(quota_producer_default=700)

    rules = rules_of_kind(replace(CONFIG, quotas=(written,), kafka=kafka), QuotaKind.PRODUCE)

    assert [rule for rule in rules if rule.source] == [rule for rule in rules if rule is not written]
    assert (700.0 in [rule.limits.get("producer_byte_rate") for rule in rules]) is is_kept
    assert (written in rules) is ("producer_byte_rate" in written.limits)
