"""Tests of the rule that is suggested for a misspelt client name."""

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.nearest_rule import guess_words, nearest_rule
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables


def found(client: Tags, *rules: QuotaRule) -> str | None:
    rule = nearest_rule(RuleTables(ProxyConfig(listeners=(), quotas=rules)), client)
    return None if rule is None else guess_words(rule)


def limited(user: str | None, client_id: str | None) -> QuotaRule:
    return QuotaRule(user=user, client_id=client_id, producer_byte_rate=1.0)


def test_a_client_id_is_compared_before_a_user_in_any_case() -> None:
    rules = (limited(None, "Reports"), limited("alice", None), limited("bob", "etl"), limited("alice", "etl"))

    assert found(Tags("alice", "etk"), *rules) == "did you mean user='alice' client-id='etl'?"
    assert found(Tags("carol", "etk"), *rules) == "did you mean user='bob' client-id='etl'?"
    assert found(Tags("alcie", "report"), *rules) == "did you mean client-id='Reports'?"
    assert found(Tags("ALCIE", "backup"), *rules) == "did you mean user='alice'?"
    assert found(Tags("carol", "backup"), *rules) is None


def test_defaults_and_many_rules_are_no_guess() -> None:
    default = QuotaRule(user=DEFAULT, producer_byte_rate=1.0)

    assert found(Tags("alice", "etl"), default) is None
    assert found(Tags("alice", "etl"), *(limited(None, f"etl{number}") for number in range(201))) is None
