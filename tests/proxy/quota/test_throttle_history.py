"""Tests when a client counts as throttled, for how long in the last minute, and for how long by each rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.quota.rule_throttle_times import RuleThrottleTimes
from kafka_quota_proxy.proxy.quota.throttle_history import LONGEST_PAUSE_MS, MINUTE_MS, ThrottleHistory

NOW_MS = 86_400_123


def history(*throttles: tuple[int, int]) -> ThrottleHistory:
    """Return the history of throttles, given as pairs of a time after NOW_MS and a wait."""
    one = ThrottleHistory(now_ms=NOW_MS + throttles[0][0])
    for after_ms, wait_ms in throttles:
        one.record(wait_ms, held_until_ms=0, now_ms=NOW_MS + after_ms)
    return one


def test_short_pauses_do_not_end_a_stretch() -> None:
    one = history((0, 300), (310, 300), (620 + LONGEST_PAUSE_MS - 10, 300))

    assert one.since_ms == NOW_MS
    assert one.is_throttled(now_ms=one.until_ms + LONGEST_PAUSE_MS)
    assert not one.is_throttled(now_ms=one.until_ms + LONGEST_PAUSE_MS + 1)


def test_a_longer_pause_begins_a_new_stretch() -> None:
    one = history((0, 300), (301 + LONGEST_PAUSE_MS, 300))

    assert one.since_ms == NOW_MS + 301 + LONGEST_PAUSE_MS


def test_only_the_time_that_has_passed_counts() -> None:
    one = history((0, 25_000))

    assert one.last_minute_ms(now_ms=NOW_MS + 700) == 700
    assert one.last_minute_ms(now_ms=NOW_MS + 30_000) == 25_000


def test_client_whose_requests_are_held_longer_than_it_was_told_is_throttled_until_then() -> None:
    one = ThrottleHistory(now_ms=NOW_MS)
    assert one.record(25_000, held_until_ms=NOW_MS + 70_000, now_ms=NOW_MS) == 25_000

    assert one.is_throttled(now_ms=NOW_MS + 69_000)
    assert one.last_minute_ms(now_ms=NOW_MS + 69_000) == MINUTE_MS

    # The next response tells it to wait again, and the stretch goes on.
    assert one.record(25_000, held_until_ms=NOW_MS + 100_000, now_ms=NOW_MS + 70_100) == 25_000
    assert one.since_ms == NOW_MS

    # A higher limit shortens the time for which requests are held.
    one.held_until_ms = NOW_MS + 96_000
    assert not one.is_throttled(now_ms=NOW_MS + 96_001 + LONGEST_PAUSE_MS)


@given(
    throttles=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 90_000)), min_size=1, max_size=40),
    after_ms=st.integers(0, 150_000),
)
def test_the_last_minute_is_exact_but_for_the_slot_in_which_it_begins(
    throttles: list[tuple[int, int]], after_ms: int
) -> None:
    now_ms, waits = NOW_MS, list[tuple[int, int]]()
    one = ThrottleHistory(now_ms=NOW_MS)
    for pause_ms, wait_ms in throttles:
        now_ms += pause_ms
        one.record(wait_ms, held_until_ms=0, now_ms=now_ms)
        waits.append((now_ms, now_ms + wait_ms))
    now_ms += after_ms

    exact_ms, counted_until_ms = 0, now_ms - MINUTE_MS
    for begin_ms, end_ms in waits:
        counted_from_ms = max(begin_ms, counted_until_ms)
        counted_until_ms = max(counted_until_ms, min(end_ms, now_ms))
        exact_ms += max(0, counted_until_ms - counted_from_ms)

    assert one.last_minute_ms(now_ms=now_ms) == pytest.approx(exact_ms, abs=2_000)


def test_a_minute_of_throttling_is_a_whole_minute() -> None:
    one = history(*((at_ms, 100) for at_ms in range(0, 120_000, 100)))

    assert one.last_minute_ms(now_ms=NOW_MS + 120_000) == MINUTE_MS


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
