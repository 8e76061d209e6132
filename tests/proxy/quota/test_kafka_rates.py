"""Tests that a new limit counts earlier usage, as Kafka does for the same tags."""

import pytest

from kafka_quota_proxy.config.model import (
    QuotaRule,
)
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS
from tests.support.quota_manager import bucket_of_alice, manager_of, replace_rules, rule


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


def test_first_limit_does_not_count_usage_from_before_any_rule() -> None:
    manager = manager_of()
    manager.bucket(user="alice", client_id="", now_ms=0).charge(25_000, now_ms=0)

    replace_rules(manager, rule("bob"))
    bucket_of_alice(manager).charge(11_000, now_ms=0)
    replace_rules(manager, rule("bob"), rule("alice"))

    assert bucket_of_alice(manager, 1_000).charge(0, now_ms=1_000) == 1_000


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
