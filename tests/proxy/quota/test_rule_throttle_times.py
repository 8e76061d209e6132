"""Tests the sums of each rule's throttle time."""

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.quota.rule_throttle_times import RuleThrottleTimes

RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0)
HOUR_MS = 3_600_000


def throttle(quotas: BrokerQuotas, client_id: str, wait_ms: int, *, now_ms: int = 0) -> None:
    bucket = quotas.bucket(QuotaKind.PRODUCE, principal="ANONYMOUS", client_id=client_id, now_ms=now_ms)
    bucket.charge(1, now_ms=now_ms)
    quotas.throttled(bucket, wait_ms, now_ms=now_ms)


def test_the_time_of_a_rule_is_that_of_all_its_buckets_at_all_brokers() -> None:
    config = ProxyConfig(listeners=(), quotas=(RULE,))
    rules = RuleTables(config)
    first, second = BrokerQuotas(config, rules=rules), BrokerQuotas(config, rules=rules)

    throttle(first, "a", 700)
    throttle(first, "a", 1_000)  # of this, 700 ms are counted already
    throttle(first, "b", 30)
    throttle(second, "a", 5)

    assert rules.throttle_times[QuotaKind.PRODUCE].by_entity == {(None, DEFAULT): 1_035}
    assert rules.throttle_times[QuotaKind.FETCH].by_entity == {}


def test_the_time_stays_when_its_buckets_expire_and_when_the_rule_is_removed() -> None:
    config = ProxyConfig(listeners=(), quotas=(RULE,))
    quotas = BrokerQuotas(config)
    throttle(quotas, "a", 700)

    quotas.expire(now_ms=2 * HOUR_MS)
    assert len(quotas.produce) == 0
    throttle(quotas, "a", 10, now_ms=2 * HOUR_MS)
    quotas.rules.swap(RuleTables(ProxyConfig(listeners=())))

    assert quotas.rules.throttle_times[QuotaKind.PRODUCE].by_entity == {(None, DEFAULT): 710}


def test_rules_beyond_the_maximum_share_one_sum() -> None:
    times = RuleThrottleTimes(max_rules=2)
    for user in ("a", "b", "c", "d", "a"):
        times.add(QuotaRule(user=user), 100)

    assert times.by_entity == {("a", None): 200, ("b", None): 100}
    assert times.other_ms == 200
