"""Compares which bucket is charged, and which limit it has, with Kafka's ``ClientQuotaManager``.

The checks of the simulation look up rules with code of their own, which is compared, too.
"""

from itertools import chain, combinations, product

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.entity import LEVELS, Entity, Tags
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable
from tests.oracles.kafka import Kafka
from tests.simulation.checks import entities as simulated
from tests.simulation.checks.settings import Settings

T = 1_767_225_600_000
# In the order of Kafka's precedence.
EIGHT: tuple[Entity, ...] = (
    ("alice", "etl"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "etl"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "etl"),
    (None, DEFAULT),
)
# The user carol and the client-id other have no rules of their own.
CONNECTIONS = tuple(product(("alice", "carol"), ("etl", "other", "")))
LIMITS = {entity: 1_000.0 + number for number, entity in enumerate(EIGHT)}


def test_each_set_of_the_eight_levels_resolves_as_in_kafka(kafka: Kafka) -> None:
    kafka.begin_client_quotas("produce")
    in_force: set[Entity] = set()
    for rules in chain.from_iterable(combinations(EIGHT, size) for size in range(len(EIGHT) + 1)):
        for entity in in_force.symmetric_difference(rules):
            kafka.limit(*entity, LIMITS[entity] if entity in rules else None, now_ms=T)
        in_force = set(rules)
        table = RuleTable(QuotaKind.PRODUCE, (rule(entity) for entity in rules))
        checks = checks_of(rules)
        for user, client_id in CONNECTIONS:
            kafkas = kafka.tags(user, client_id, now_ms=T)
            tags = Tags(kafkas.user, kafkas.client_id)
            limit = None if kafkas.limit >= UNLIMITED else kafkas.limit

            resolution = table.resolve(user=user, client_id=client_id)

            assert (resolution.tags, resolution.limit) == (tags, limit)
            assert table.limit_of_tags(user=tags.user, client_id=tags.client_id) == limit
            assert resolution.level is (None if limit is None else LEVELS[int(limit) - 1_000])
            assert checks.tags(user, client_id) == tags
            checked = checks.limit(tags)
            assert (None if checked is None else checked.rate) == limit


def test_limit_of_a_bucket_whose_rule_was_removed_is_found_by_its_tags() -> None:
    """The checks' own look-up is Kafka's, as the test above shows."""
    for rules in chain.from_iterable(combinations(EIGHT, size) for size in range(len(EIGHT) + 1)):
        before, checks = RuleTable(QuotaKind.PRODUCE, (rule(entity) for entity in rules)), checks_of(rules[1:])
        tags = {Tags(*before.tags(user=user, client_id=client_id)) for user, client_id in CONNECTIONS}

        after = RuleTable(QuotaKind.PRODUCE, (rule(entity) for entity in rules[1:]))

        for user, client_id in tags:
            checked = checks.limit((user, client_id))
            assert after.limit_of_tags(user=user, client_id=client_id) == (None if checked is None else checked.rate)


def rule(entity: Entity) -> QuotaRule:
    return QuotaRule(user=entity[0], client_id=entity[1], producer_byte_rate=LIMITS[entity])


def checks_of(rules: tuple[Entity, ...]) -> simulated.Rules:
    keys = [
        {"user": user, "client-id": client_id, simulated.PRODUCE: LIMITS[user, client_id]} for user, client_id in rules
    ]
    texts = [{key: simulated.DEFAULT if part is DEFAULT else part for key, part in one.items()} for one in keys]
    return simulated.Rules(texts, simulated.PRODUCE, Settings())
