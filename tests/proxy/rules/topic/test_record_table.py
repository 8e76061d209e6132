"""Tests the records of each entity: rules hide settings, and values remain when the topic is read again."""

from kafka_quota_proxy.proxy.rules.model import Entity
from kafka_quota_proxy.proxy.rules.topic.record_table import EntityLimits, RecordTable

A, B, X = (Entity(user) for user in ("a", "b", "x"))
P, C = "producer_byte_rate", "consumer_byte_rate"


def table(*records: tuple[Entity, str, object], most: int = 10) -> RecordTable:
    one = RecordTable(most)
    for offset, (entity, key, value) in enumerate(records):
        one.put(entity, key, value, offset)
    return one


def test_values_are_carried_over_unless_deleted() -> None:
    before = table((A, P, 1.0), (A, C, 2.0), (B, P, 3.0))
    one = table((B, P, 9.0))
    one.remember_deletion(before, A, C)

    for entity, key in ((A, P), (A, C), (B, P), (X, P)):
        one.carry_over(before, entity, key)

    assert {entity: one.limits(entity) for entity in one} == {
        B: EntityLimits({P: 9.0}, 0),
        A: EntityLimits({P: 1.0}, 0),
    }
    one.forget_deletions()
    one.carry_over(before, A, C)
    assert one.limits(A) == EntityLimits({P: 1.0, C: 2.0}, 1)
