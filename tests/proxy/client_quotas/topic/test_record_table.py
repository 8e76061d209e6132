"""Tests the records of each entity: rules hide settings, and values remain when the topic is read again."""

from kafka_quota_proxy.config.quota_record import TERMS
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import RULE, EntityLimits, RecordTable

P, C = "producer_byte_rate", "consumer_byte_rate"


def table(*records: tuple[str, str, object], most: int = 10) -> RecordTable[str]:
    one: RecordTable[str] = RecordTable(most)
    for offset, (entity, key, value) in enumerate(records):
        one.put(entity, key, value, offset)
    return one


def test_settings_are_one_rule_with_its_terms() -> None:
    one = table(("a", P, 1.0), ("a", C, 2.0), ("a", TERMS, {"expires": 7}), ("a", C, None))

    assert one.limits("a") == EntityLimits({P: 1.0}, 2, {"expires": 7})
    assert one.limits("b") is None


def test_terms_without_limits_limit_nothing() -> None:
    one = table(("a", P, 1.0), ("a", TERMS, {"expires": 7}), ("a", P, None))

    assert one.limits("a") is None
    assert len(one) == 1


def test_a_rule_hides_settings() -> None:
    one = table(("a", P, 1.0), ("a", RULE, {C: 3.0}))

    assert one.limits("a") == EntityLimits({C: 3.0}, 1, is_published=True)
    one.put("a", RULE, {}, 2)
    assert one.limits("a") == EntityLimits({P: 1.0}, 0)
    one.put("a", P, None, 3)
    assert list(one) == []


def test_the_table_refuses_entities_above_its_bound() -> None:
    one = table(("a", P, 1.0), ("b", P, 1.0), most=2)

    assert not one.put("c", P, 1.0, 2)
    assert one.put("c", P, None, 3)
    assert one.put("a", C, 1.0, 4)
    assert list(one) == ["a", "b"]


def test_values_are_carried_over_unless_deleted() -> None:
    before = table(("a", P, 1.0), ("a", C, 2.0), ("b", P, 3.0))
    one = table(("b", P, 9.0))
    one.remember_deletion(before, "a", C)

    for entity, key in (("a", P), ("a", C), ("b", P), ("x", P)):
        one.carry_over(before, entity, key)

    assert {entity: one.limits(entity) for entity in one} == {
        "b": EntityLimits({P: 9.0}, 0),
        "a": EntityLimits({P: 1.0}, 0),
    }
    one.forget_deletions()
    one.carry_over(before, "a", C)
    assert one.limits("a") == EntityLimits({P: 1.0, C: 2.0}, 1)
