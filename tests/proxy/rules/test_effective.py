"""Tests which rules of a configuration file and a store are in force."""

from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import Address, IpRule, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.rules import effective as module
from kafka_quota_proxy.proxy.rules.effective import EffectiveRules, ListedRule
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule

LISTENER = Listener(name="a", bind=Address(host="h", port=1), upstream=Address(host="u", port=1))


def config(*quotas: QuotaRule, ips: tuple[IpRule, ...] = ()) -> ProxyConfig:
    return ProxyConfig(listeners=(LISTENER,), quotas=quotas, ip_quotas=ips)


def rule(limit: float) -> StoredRule:
    return StoredRule(limits={"producer_byte_rate": limit})


def ip_rule(limit: float) -> StoredRule:
    return StoredRule(limits={"connection_creation_rate": limit})


NOW_MS = 1_800_000_000_000
FILED = QuotaRule(user="filed", producer_byte_rate=1.0, connections=7, source="f.yaml:3")


def test_rule_of_the_file_hides_a_stored_one_and_is_reported() -> None:
    in_force = EffectiveRules(config(), name="quotas.d", now_ms=NOW_MS)
    in_force.change([Change(Entity("filed"), rule(2.0)), Change(Entity(ip="10.0.0.7"), ip_rule(5.0))], now_ms=NOW_MS)
    ip = IpRule(ip="10.0.0.7", connection_creation_rate=9.0, source="f.yaml:4")

    changes = in_force.follow_file(config(FILED, ips=(ip,)), now_ms=NOW_MS)

    assert changes == QuotaChanges({("filed", None): FILED}, {"10.0.0.7": ip})
    assert in_force.quotas == (FILED,)
    assert in_force.ip_quotas == (ip,)
    assert in_force.rules[Entity("filed")].limits["producer_byte_rate"] == 1.0
    assert in_force.overruled == 2
    assert in_force.double(Entity("filed")) == (
        "f.yaml:3: user filed has quotas in quotas.d, too; those of the file apply"
    )
    assert in_force.change([Change(Entity("filed"), rule(3.0))], now_ms=NOW_MS) == ({}, {})
    # The rule of the store is in force once the file has none.
    rules, ips = in_force.follow_file(config(), now_ms=NOW_MS)
    assert list(rules.values()) == list(in_force.quotas)
    assert list(ips.values()) == list(in_force.ip_quotas)
    assert not in_force.overruled
    assert [found.limits.get("producer_byte_rate") for found in in_force.quotas] == [3.0]
    assert in_force.ip_quotas == (IpRule(ip="10.0.0.7", connection_creation_rate=5.0, source="quotas.d"),)


def test_hidden_rules_are_listed_behind_effective_ones() -> None:
    in_force = EffectiveRules(config(), name="quotas.d", now_ms=NOW_MS)
    same, other = Entity(ip="::1"), Entity(ip="::2")
    stored = {Entity("filed"): rule(2.0), same: ip_rule(5.0), other: ip_rule(6.0)}
    in_force.change(map(Change._make, stored.items()), now_ms=NOW_MS)
    assert [one.can_change for one in in_force.listed()] == [True] * 3

    ip = IpRule(ip="::1", connection_creation_rate=9.0, source="f.yaml:4")
    in_force.follow_file(config(FILED, ips=(ip,)), now_ms=NOW_MS)

    filed, address, *behind = in_force.listed()
    assert [(one.entity, one.source, one.can_change) for one in (filed, address)] == [
        (Entity("filed"), "f.yaml:3", False),
        (Entity(ip="::1"), "f.yaml:4", False),
    ]
    assert behind == [
        ListedRule(Entity("filed"), rule(2.0), "quotas.d", False, "f.yaml:3"),
        ListedRule(same, ip_rule(5.0), "quotas.d", False, "f.yaml:4"),
        ListedRule(other, ip_rule(6.0), "quotas.d", True),
    ]


def test_a_change_of_the_file_costs_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    in_force = EffectiveRules(config(FILED), name="d", now_ms=NOW_MS)
    many = [Change(Entity(str(number)), rule(1.0)) for number in range(1_000)]
    in_force.change([*many, Change(Entity(ip="10.0.0.7"), ip_rule(5.0))], now_ms=NOW_MS)
    made: list[Entity] = []
    monkeypatch.setattr(module, "as_rule", lambda entity, _, *, source: made.append(entity))
    moved = replace(FILED, source="f.yaml:4")
    one = QuotaRule(user="7", producer_byte_rate=9.0, source="f.yaml:5")

    assert in_force.follow_file(config(FILED), now_ms=NOW_MS) == QuotaChanges({}, {})
    assert in_force.follow_file(config(moved, one), now_ms=NOW_MS) == QuotaChanges(
        {("filed", None): moved, ("7", None): one}, {}
    )
    assert made == []
    in_force.follow_file(config(), now_ms=NOW_MS)
    assert made == [Entity("7")]


def test_expired_rule_of_the_file_still_hides_a_stored_one() -> None:
    filed = replace(FILED, expires_ms=NOW_MS + 10)
    in_force = EffectiveRules(config(filed), name="quotas.d", now_ms=NOW_MS)
    assert in_force.quotas == (filed,)
    assert in_force.schedule.next_ms == NOW_MS + 10

    assert in_force.advance(9, now_ms=NOW_MS + 10) == ({("filed", None): None}, {})

    assert not in_force.quotas
    # The expired rule is still listed with its source, and no rule of the store replaces it.
    assert in_force.rules[Entity("filed")].limits["producer_byte_rate"] == 1.0
    assert in_force.sources == {Entity("filed"): "f.yaml:3"}
    assert in_force.change([Change(Entity("filed"), rule(5.0))], now_ms=NOW_MS + 11) == ({}, {})
    assert not in_force.quotas
