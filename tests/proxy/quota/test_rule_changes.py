"""Tests that changes of single rules have the same result as an update with all rules."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Default, IpRule, KafkaSettings, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.open_connections import Identity
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleTable
from tests.support.rules_in_force import change, update, update_addresses

CONFIG = ProxyConfig(listeners=(), kafka=KafkaSettings(quota_producer_default=77), max_buckets=3)
ENTITIES = st.tuples(*[st.sampled_from(["a", "b", DEFAULT, None])] * 2).filter(any)
LIMITS = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_rate", "connections"]),
    st.sampled_from([1, 1000]),
    min_size=1,
)
CHANGES = st.dictionaries(ENTITIES, st.none() | LIMITS, max_size=4)
CLIENTS = [(user, client_id) for user in "abc" for client_id in ["a", "b", "c", ""]]


def with_rules(config: ProxyConfig, changes: Mapping[Entity, QuotaRule | None]) -> ProxyConfig:
    rules: dict[Entity, QuotaRule | None] = {(rule.user, rule.client_id): rule for rule in config.quotas}
    rules.update(changes)
    return replace(config, quotas=tuple(rule for rule in rules.values() if rule is not None))


def rules_of(changes: Mapping[Entity, Mapping[str, int] | None]) -> dict[Entity, QuotaRule | None]:
    return {
        (user, client_id): None if limits is None else QuotaRule(user=user, client_id=client_id, **limits)  # type: ignore[arg-type]
        for (user, client_id), limits in changes.items()
    }


def seen_by(quotas: BrokerQuotas, now_ms: int) -> object:
    """Return everything that the rules decide: the buckets, limits and open connections of every client."""
    buckets = [
        quotas.bucket(kind, principal=user, client_id=client_id, now_ms=now_ms)
        for kind in BUCKET_KINDS
        for user, client_id in CLIENTS
    ]
    connections = [quotas.connections.check(Identity(user, client_id)) for user, client_id in CLIENTS]
    return (
        [(bucket.tags, bucket.rule, bucket.level, bucket.limit) for bucket in buckets],
        connections,
        quotas.limits_requests,
        [quotas.limits(kind) for kind in BUCKET_KINDS],
        quotas.connections.open_now(),
    )


@settings(max_examples=30)
@given(st.lists(CHANGES, max_size=6))
def test_changes_equal_an_update(all_changes: list[dict[Entity, Mapping[str, int] | None]]) -> None:
    config = CONFIG
    changed, updated = BrokerQuotas(config), BrokerQuotas(config)
    for quotas in (changed, updated):
        for user, client_id in CLIENTS:
            identity = Identity(user, client_id)
            quotas.connections.enter(identity, quotas.connections.check(identity))
    for now_ms, changes in enumerate(all_changes):
        rules = rules_of(changes)
        config = with_rules(config, rules)

        change(changed, config, rules)
        update(updated, config)

        assert seen_by(changed, now_ms) == seen_by(updated, now_ms)
        for kind in BUCKET_KINDS:
            one, other = changed.manager(kind), updated.manager(kind)
            assert set(one.table.rules()) == set(other.table.rules())
            assert (
                one._buckets._named
                == other._buckets._named
                == sum(map(one.table.names, (bucket.tags for bucket in one._buckets)))
            )


FILES = st.builds(
    replace,
    st.just(CONFIG),
    kafka=st.builds(KafkaSettings, quota_producer_default=st.sampled_from([77, 99, UNLIMITED])),
    principals=st.sampled_from([Principals(), Principals(fold=(Fold(match="a|c", to="b"),), exempt=frozenset("c"))]),
    shaping=st.sampled_from(Shaping),
    max_buckets=st.integers(1, 5),
)


@settings(max_examples=30)
@given(st.lists(st.tuples(FILES, CHANGES), max_size=6))
def test_update_with_known_changes_equals_a_full_update(
    files: list[tuple[ProxyConfig, dict[Entity, Mapping[str, int] | None]]],
) -> None:
    config = CONFIG
    followed, updated = BrokerQuotas(config), BrokerQuotas(config)
    for quotas in (followed, updated):
        for user, client_id in CLIENTS:
            identity = Identity(user, client_id)
            quotas.connections.enter(identity, quotas.connections.check(identity))
    for now_ms, (file, changes) in enumerate(files):
        rules = rules_of(changes)
        config = with_rules(replace(file, quotas=config.quotas), rules)

        update(followed, config, changes=QuotaChanges(rules, {}))
        update(updated, config)

        assert seen_by(followed, now_ms) == seen_by(updated, now_ms)
        for kind in BUCKET_KINDS:
            one, other = followed.manager(kind), updated.manager(kind)
            assert set(one.table.rules()) == set(other.table.rules())
            assert (
                one._buckets._named
                == other._buckets._named
                == sum(map(one.table.names, (bucket.tags for bucket in one._buckets)))
            )


def test_update_with_known_changes_keeps_the_tables() -> None:
    quotas = BrokerQuotas(CONFIG)
    tables = [*quotas.rules.tables.values(), quotas.rules.connections]
    before = [table.by_entity for table in tables]

    update(quotas, CONFIG, changes=QuotaChanges({}, {}))

    assert all(table.by_entity is rules for table, rules in zip(tables, before, strict=True))


@given(st.lists(st.dictionaries(st.sampled_from([DEFAULT, "10.0.0.1", "10.0.0.2"]), st.none() | st.integers(1, 3))))
def test_changed_addresses_equal_an_update(all_changes: list[dict[str | Default, int | None]]) -> None:
    changed, updated = ConnectionQuotas(CONFIG), ConnectionQuotas(CONFIG)
    rules: dict[str | Default, IpRule | None] = {}
    for now_ms, limits in enumerate(all_changes):
        for quotas in (changed, updated):
            for host in ("10.0.0.1", "10.0.0.3"):
                quotas.record_address(host, is_taken_back=True, now_ms=now_ms)
        changes = {
            ip: None if limit is None else IpRule(ip=ip, connection_creation_rate=limit) for ip, limit in limits.items()
        }
        rules |= changes

        changed.rules_changed(changed.limits.change(changes))
        update_addresses(updated, replace(CONFIG, ip_quotas=tuple(rule for rule in rules.values() if rule is not None)))

        assert sorted(changed.limits.rules()) == sorted(updated.limits.rules())
        assert changed.limits_addresses == updated.limits_addresses
        named = sum(entry.tags.client_id in changed.limits for entry in changed._addresses)
        assert changed._addresses._named == updated._addresses._named == named


@pytest.mark.parametrize("kind", [QuotaKind.PRODUCE, QuotaKind.CONNECTIONS])
@given(changes=st.lists(CHANGES, max_size=6))
def test_changed_table_resolves_as_a_new_one(
    kind: QuotaKind, changes: list[dict[Entity, Mapping[str, int] | None]]
) -> None:
    table = RuleTable(kind, ())
    standing: dict[Entity, QuotaRule | None] = {}
    for some in changes:
        rules = rules_of(some)
        standing |= rules
        for entity, rule in rules.items():
            table.put(entity, rule)

        fresh = RuleTable(kind, [rule for rule in standing.values() if rule is not None])
        for user, client_id in CLIENTS:
            assert table.resolve(user=user, client_id=client_id) == fresh.resolve(user=user, client_id=client_id)


def test_change_of_another_kind_keeps_the_generation() -> None:
    quotas = BrokerQuotas(CONFIG)
    before = quotas.generation
    rule = QuotaRule(user="a", connections=5)

    change(quotas, with_rules(CONFIG, {("a", None): rule}), {("a", None): rule})

    assert quotas.generation == before
    assert quotas.connections.table.rules() == (rule,)
