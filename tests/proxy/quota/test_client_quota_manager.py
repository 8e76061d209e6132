"""Tests the look-up, rule changes and expiry of a manager's buckets. tests/oracles compares it with Kafka's."""

import pytest

from kafka_quota_proxy.config.model import (
    DEFAULT,
    QuotaRule,
    Shaping,
)
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS, ClientQuotaManager
from tests.support.quota_manager import bucket_of_alice, manager_of, replace_rules, rule


def test_without_a_limit_each_user_and_client_id_has_a_bucket() -> None:
    """In Kafka the tags of an unlimited bucket depend on which kinds of rules exist."""
    manager = manager_of(rule(client_id="other"))

    buckets = [manager.bucket(user=user, client_id="etl", now_ms=0) for user in ("alice", "bob", "alice")]

    assert [bucket.tags for bucket in buckets] == [("alice", "etl"), ("bob", "etl"), ("alice", "etl")]
    assert buckets[0] is buckets[2]
    assert len(manager) == 2


def test_change_of_shaping_keeps_the_usage() -> None:
    manager = manager_of(rule("alice"))
    bucket = bucket_of_alice(manager)
    bucket.charge(20_000, now_ms=0)
    assert bucket.shaping is Shaping.SAMPLED

    replace_rules(manager, rule("alice"), shaping=Shaping.PACED, burst_ms=2_000)
    paced = [bucket_of_alice(manager).shaping, bucket.charge(3_000, now_ms=0)]
    replace_rules(manager, rule("alice"), shaping=Shaping.PACED, burst_ms=500)
    burst_ms = 500
    shorter = [bucket_of_alice(manager).has_room(burst_ms, now_ms=9_000), bucket.has_room(burst_ms + 1, now_ms=9_000)]
    replace_rules(manager, rule("alice"))
    sampled = [bucket_of_alice(manager, 9_000).shaping, bucket.charge(0, now_ms=9_000)]

    assert paced == [Shaping.PACED, 1_000]
    assert shorter == [True, False]
    assert sampled == [Shaping.SAMPLED, 13_000]


def test_paced_bucket_keeps_its_debt_when_its_limit_changes() -> None:
    manager = manager_of(rule("alice"), shaping=Shaping.PACED)
    bucket_of_alice(manager).charge(3_000, now_ms=0)

    replace_rules(manager, rule("alice", limit=4_000.0), shaping=Shaping.PACED)

    assert bucket_of_alice(manager).charge(0, now_ms=0) == 500


@pytest.mark.parametrize(("limit", "free_ms"), [(1_000.0, 2_000), (500.0, 4_000)])
def test_paced_bucket_owes_longer_if_its_limit_was_lowered_while_clients_waited(limit: float, free_ms: int) -> None:
    manager = manager_of(rule("alice"), shaping=Shaping.PACED)
    bucket = bucket_of_alice(manager)
    bucket.silence(bucket.charge(3_000, now_ms=0), now_ms=0)

    replace_rules(manager, rule("alice", limit=limit), shaping=Shaping.PACED)
    bucket_of_alice(manager, now_ms=2_000)

    assert bucket.is_free(1, now_ms=2_000) is (free_ms == 2_000)
    assert bucket.is_free(1, now_ms=free_ms)
    assert not bucket.is_free(1, now_ms=free_ms - 1)


def test_rule_shaping_overrides_the_managers() -> None:
    manager = manager_of(rule("alice", shaping=Shaping.PACED), rule("bob"), rule("carol", shaping=Shaping.SAMPLED))

    shapes = [manager.bucket(user=user, client_id="", now_ms=0).shaping for user in ("alice", "bob", "carol")]

    assert shapes == [Shaping.PACED, Shaping.SAMPLED, Shaping.SAMPLED]


def test_max_throttle_time_can_change() -> None:
    manager = manager_of(rule("alice"), max_throttle_time_ms=1_000)
    first = manager.record_and_get_throttle_time_ms(100_000, user="alice", client_id="etl", now_ms=0)

    replace_rules(manager, rule("alice"), max_throttle_time_ms=2_000)
    second = manager.record_and_get_throttle_time_ms(0, user="alice", client_id="etl", now_ms=0)
    replace_rules(manager, rule("alice"))
    third = manager.record_and_get_throttle_time_ms(0, user="alice", client_id="etl", now_ms=0)

    assert [first, second, third] == [1_000, 2_000, 90_000]


def test_look_ups_between_slices_of_expiry_are_safe() -> None:
    manager = manager_of(rule(DEFAULT))
    users = [f"user-{number}" for number in range(2_500)]
    old = {user: manager.bucket(user=user, client_id="etl", now_ms=0) for user in users}
    now_ms = EXPIRES_AFTER_MS + 1
    slices = manager.expire_slices(now_ms=now_ms)

    forgotten = [next(slices)]
    again = manager.bucket(user=users[0], client_id="etl", now_ms=now_ms)
    waiting = manager.bucket(user=users[-1], client_id="etl", now_ms=now_ms)
    waiting.charge(1, now_ms=now_ms)
    newcomer = manager.bucket(user="newcomer", client_id="etl", now_ms=now_ms)
    forgotten.extend(slices)

    assert forgotten == [1_000, 1_000, 499]
    assert again is not old[users[0]]
    assert waiting is old[users[-1]]
    assert sorted(bucket.tags.user for bucket in manager) == sorted([users[0], users[-1], "newcomer"])
    assert manager.bucket(user="newcomer", client_id="etl", now_ms=now_ms) is newcomer


def test_overlapping_expiries_remove_each_bucket_once() -> None:
    manager = manager_of(rule(DEFAULT))
    for number in range(1_500):
        manager.bucket(user=f"user-{number}", client_id="etl", now_ms=0)
    slices = manager.expire_slices(now_ms=EXPIRES_AFTER_MS + 1)
    first = next(slices)

    rest = manager.expire(now_ms=EXPIRES_AFTER_MS + 1)

    assert [first, rest, sum(slices)] == [1_000, 500, 0]


def test_cache_of_look_ups_is_bounded() -> None:
    """All client-ids of alice are charged to one bucket, so memory must not grow with their number."""
    manager = manager_of(rule("alice"))

    for number in range(100_001):
        manager.bucket(user="alice", client_id=str(number), now_ms=0)

    assert len(manager) == 1
    assert len(manager._resolved) == 1
    assert manager.bucket(user="alice", client_id="0", now_ms=0) is bucket_of_alice(manager)


# -- debt without a limit (tests/oracles has sampled windows, beside Kafka) --


def in_debt() -> ClientQuotaManager:
    """Return a manager where alice owes something for four seconds, and nobody keeps her bucket."""
    manager = manager_of(rule("alice"), shaping=Shaping.PACED)
    bucket = bucket_of_alice(manager)
    bucket.silence(bucket.charge(5_000, now_ms=0), now_ms=0)
    return manager


def test_paced_limit_that_comes_back_unused_begins_full() -> None:
    manager = in_debt()
    assert not bucket_of_alice(manager, 1_000).is_free(1, now_ms=1_000)

    replace_rules(manager, shaping=Shaping.PACED)
    replace_rules(manager, rule("alice"), shaping=Shaping.PACED)

    bucket = bucket_of_alice(manager, 1_000)
    assert bucket.is_free(1, now_ms=1_000)
    assert bucket.tokens(now_ms=1_000) == 1_000


def test_paid_debts_take_no_memory() -> None:
    manager = in_debt()
    assert len(manager._debtors) == 1

    manager.expire(now_ms=3_999)
    assert len(manager._debtors) == 1
    manager.expire(now_ms=4_000)
    assert len(manager) == 1
    assert not manager._debtors


def test_first_limit_counts_usage_under_rules_of_that_kind() -> None:
    """Only bob has a rule when alice sends 25,000 B. A second later alice gets 1,000 B/s. Measured with Kafka 4.3."""
    manager = manager_of(rule("bob"))
    assert manager.record_and_get_throttle_time_ms(20_000, user="alice", client_id="etl", now_ms=0) == 0
    assert manager.record_and_get_throttle_time_ms(5_000, user="alice", client_id="web", now_ms=0) == 0

    replace_rules(manager, rule("bob"), rule("alice"))

    assert manager.record_and_get_throttle_time_ms(0, user="alice", client_id="etl", now_ms=1_000) == 15_000


@pytest.mark.parametrize(
    ("before", "first"),
    [
        pytest.param([], rule("alice", "etl"), id="no rule"),
        pytest.param([rule("bob")], rule("alice", "etl"), id="rules of users"),
        pytest.param([rule(client_id="web")], rule("alice"), id="rules of client-ids"),
    ],
)
def test_first_limit_starts_empty_if_kafka_names_another_bucket(before: list[QuotaRule], first: QuotaRule) -> None:
    manager = manager_of(*before)
    bucket_of_alice(manager).charge(25_000, now_ms=0)

    replace_rules(manager, *before, first)

    assert bucket_of_alice(manager, 1_000).charge(0, now_ms=1_000) == 0


def test_first_limit_counts_usage_from_before_other_rules_came() -> None:
    manager = manager_of(rule("bob"))
    bucket_of_alice(manager).charge(25_000, now_ms=0)

    replace_rules(manager, rule("bob"), rule(client_id="web"))
    bucket_of_alice(manager).charge(1_000, now_ms=0)
    replace_rules(manager, rule("bob"), rule(client_id="web"), rule("alice"))

    assert bucket_of_alice(manager, 1_000).charge(0, now_ms=1_000) == 15_000


def test_restored_limit_counts_earlier_usage() -> None:
    for limited in [rule("alice"), rule("alice", "etl")]:
        manager = manager_of(rule("bob"), limited)
        bucket_of_alice(manager).charge(10_000, now_ms=0)

        replace_rules(manager, rule("bob"))
        bucket_of_alice(manager).charge(15_000, now_ms=0)
        replace_rules(manager, rule("bob"), limited)

        # If only users have rules, Kafka charges alice's bucket, and not that of (alice, etl).
        assert bucket_of_alice(manager, 1_000).charge(1_000, now_ms=1_000) == (
            16_000 if limited.client_id is None else 1_000
        ), limited


def test_unlimited_samples_expire_with_their_buckets() -> None:
    manager = manager_of(rule("bob"))
    bucket_of_alice(manager).charge(25_000, now_ms=0)
    assert len(manager._kafka_rates) == 1

    manager.expire(now_ms=EXPIRES_AFTER_MS + 1)

    assert len(manager) == len(manager._kafka_rates) == 0


def test_unlimited_bucket_shows_its_own_rate() -> None:
    manager = manager_of(rule("bob"))

    bucket_of_alice(manager).charge(10_000, now_ms=0)
    manager.bucket(user="alice", client_id="web", now_ms=0).charge(5_000, now_ms=0)

    assert bucket_of_alice(manager).rate.peek(now_ms=0) == 1_000
