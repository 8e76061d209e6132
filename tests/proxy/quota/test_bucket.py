"""Tests one bucket: charges, waits, room, requests in flight, and quotas that are only observed.

``test_vectors`` has the cases of Kafka's own tests.
"""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import (
    QuotaRule,
    Shaping,
)
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from tests.support.quota_manager import STARTS_MS, bucket_of_alice, manager_of, replace_rules, rule

INT32_MAX = 2**31 - 1


# -- charging --


def test_every_charge_is_counted() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))

    assert bucket.charge(10_000, now_ms=0) == 0
    assert bucket.charge(1_000, now_ms=700) == 300

    assert (bucket.usage.amount, bucket.usage.requests, bucket.usage.last_record_ms) == (11_000, 2, 700)
    assert bucket.rate.total == 11_000


@pytest.mark.parametrize("shaping", Shaping)
def test_max_throttle_time_bounds_the_wait_but_not_the_debt(shaping: Shaping) -> None:
    for max_ms, wait_ms in ((None, 90_000), (25_000, 25_000), (90_000, 90_000), (90_001, 90_000)):
        manager = manager_of(rule("alice"), shaping=shaping, burst_ms=10_000, max_throttle_time_ms=max_ms)
        bucket = bucket_of_alice(manager)

        owed_ms = bucket.charge(100_000, now_ms=0)

        assert owed_ms == 90_000
        assert min(owed_ms, bucket.max_throttle_time_ms) == wait_ms, max_ms


# -- room --

RoomStep = tuple[int, str, int]


@given(
    shaping=st.sampled_from(Shaping),
    limit=st.one_of(st.sampled_from([100.0, 1_000.0]), st.floats(1, 1e7)),
    start_ms=st.sampled_from(STARTS_MS),
    steps=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 1_500), st.sampled_from([999, 1_000, 1_001, 10_000, 10_999, 11_000, 11_001])),
            st.sampled_from(["charge", "charge", "charge", "rest"]),
            st.integers(0, 20_000),
        ),
        max_size=30,
    ),
    amount=st.integers(1, 20_000),
)
def test_has_room_predicts_whether_a_charge_waits(
    shaping: Shaping, limit: float, start_ms: int, steps: list[RoomStep], amount: int
) -> None:
    bucket = bucket_of_alice(manager_of(rule("alice", limit=limit), shaping=shaping), start_ms)
    now_ms = start_ms
    for pause_ms, action, size_bytes in steps:
        now_ms += pause_ms
        if action == "charge":
            bucket.charge(size_bytes, now_ms=now_ms)

    has_room = bucket.has_room(amount, now_ms=now_ms)
    wait_ms = bucket.charge(amount, now_ms=now_ms)

    if has_room:
        assert wait_ms == 0
    elif shaping is Shaping.SAMPLED:
        # A wait below half a millisecond is rounded to 0.
        assert bucket.rate.peek(now_ms=now_ms) > limit
    else:
        assert not bucket.has_room(0, now_ms=now_ms)


# -- counting --


def test_client_counts_as_throttled_for_as_long_as_its_requests_are_held() -> None:
    manager = manager_of(rule("alice"), max_throttle_time_ms=25_000)
    bucket = bucket_of_alice(manager)
    bucket.silence(bucket.charge(100_000, now_ms=0), now_ms=0)
    bucket.throttled(25_000, now_ms=0)
    history = bucket.usage.throttling.history
    assert history is not None

    assert history.is_throttled(now_ms=80_000)
    assert bucket.usage.throttling.time_ms == 25_000

    replace_rules(manager, rule("alice", limit=1e9))
    bucket_of_alice(manager, now_ms=40_000)
    assert not history.is_throttled(now_ms=41_002)


def test_throttled_requests_are_counted_as_enforced_or_observed() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))

    bucket.throttled(40, now_ms=0)
    bucket.throttled(60, now_ms=1_000)
    bucket.observe(7, took_ms=0, now_ms=2_000)

    assert bucket.usage.throttling.requests == 2
    assert bucket.usage.throttling.time_ms == 100
    assert bucket.usage.throttling.observed_time_ms == 7
    assert bucket.usage.throttling.average_ms.peek(now_ms=2_000) == 50
    assert isnan(bucket.usage.throttling.average_ms.peek(now_ms=61_000))


def test_utilisation_is_the_rate_over_the_limit() -> None:
    limited = bucket_of_alice(manager_of(rule("alice")))
    unlimited = bucket_of_alice(manager_of())
    for bucket in (limited, unlimited):
        bucket.charge(2_500, now_ms=0)

    assert limited.utilisation(now_ms=0) == 0.25
    assert unlimited.utilisation(now_ms=0) is None


# -- fetches --


def test_fetch_is_capped_at_a_window_or_a_burst() -> None:
    for limit, shaping, burst_ms, cap in (
        (1_000.0, Shaping.SAMPLED, 1_000, 10_000),
        (1_000.0, Shaping.PACED, 1_000, 1_000),
        (1_000.0, Shaping.PACED, 2_500, 2_500),
        (0.01, Shaping.SAMPLED, 1_000, 1),
        (0.01, Shaping.PACED, 1_000, 1),
        (214_748_364.7, Shaping.SAMPLED, 1_000, INT32_MAX),
        (1e12, Shaping.SAMPLED, 1_000, INT32_MAX),
        (1e12, Shaping.PACED, 1_000, INT32_MAX),
    ):
        bucket = bucket_of_alice(manager_of(rule("alice", limit=limit), shaping=shaping, burst_ms=burst_ms))

        assert bucket.max_fetch_bytes == cap, (limit, shaping, burst_ms)


@pytest.mark.parametrize("shaping", Shaping)
def test_a_late_answer_ends_only_its_own_reservation(shaping: Shaping) -> None:
    bucket = bucket_of_alice(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000))
    bucket.reserved.add(10_000, now_ms=0)
    assert not bucket.is_free(1, now_ms=9_999)
    assert bucket.is_free(10_000, now_ms=11_000)
    bucket.reserved.add(10_000, now_ms=11_000)

    bucket.reserved.settle(10_000)
    assert bucket.charge(10_000, now_ms=12_000) == 0

    assert not bucket.is_free(1, now_ms=20_999)
    assert bucket.free_at_ms(now_ms=20_000) == 21_000
    assert bucket.is_free(1, now_ms=21_000)


def test_a_late_answer_is_late_once() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    for now_ms in (0, 11_000, 12_000):
        bucket.reserved.add(10_000, now_ms=now_ms)

    bucket.reserved.settle(10_000)  # that of the first, which is over
    assert bucket.reserved.held_until_ms == 31_000
    bucket.reserved.settle(10_000)

    assert bucket.reserved.held_until_ms == 21_000


def test_an_answer_in_time_makes_room_for_the_next_request() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    for _ in range(3):
        bucket.reserved.add(4_000, now_ms=0)

    bucket.reserved.settle(4_000)

    assert not bucket.is_free(4_000, now_ms=7_999)
    assert bucket.is_free(4_000, now_ms=8_000)


def test_a_reservation_that_is_larger_than_the_quota_lasts_25_seconds() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    bucket.reserved.add(84_000_000, now_ms=0)

    assert not bucket.is_free(1, now_ms=24_999)
    assert bucket.free_at_ms(now_ms=0) == 25_000
    assert bucket.is_free(1, now_ms=25_000)


def test_the_end_of_a_large_reservation_shortens_no_other_one() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    bucket.reserved.add(8_000_000, now_ms=0)
    bucket.reserved.add(10_000, now_ms=0)

    bucket.reserved.settle(8_000_000)

    assert not bucket.is_free(1, now_ms=9_999)
    assert bucket.is_free(1, now_ms=10_000)


def bucket_of(shaping: Shaping = Shaping.SAMPLED, *, max_throttle_time_ms: int | None = None) -> Bucket:
    """Return a bucket with a limit of 500 B/s."""
    rule = QuotaRule(client_id="etl", producer_byte_rate=500.0)
    manager = ClientQuotaManager(QuotaKind.PRODUCE, [rule], shaping=shaping, max_throttle_time_ms=max_throttle_time_ms)
    return manager.bucket(user="ANONYMOUS", client_id="etl", now_ms=0)


def send(bucket: Bucket, amount: int, *, now_ms: int, took_ms: int = 0) -> None:
    """Charge a request. If it is over the limit, count the wait that it would have had."""
    wait_ms = bucket.charge(amount, now_ms=now_ms)
    if wait_ms > 0:
        bucket.observe(wait_ms, took_ms=took_ms, now_ms=now_ms)


def test_requests_during_a_wait_add_no_time() -> None:
    bucket = bucket_of()
    send(bucket, 6_000, now_ms=0)
    for now_ms in range(10, 2_000, 10):
        send(bucket, 1_000, now_ms=now_ms)

    assert bucket.usage.throttling.observed_requests == 1
    assert bucket.usage.throttling.observed_time_ms == 2_000


def test_one_held_request_passes_when_the_wait_ends() -> None:
    bucket = bucket_of()
    send(bucket, 6_000, now_ms=0)
    send(bucket, 500, now_ms=1_000)
    send(bucket, 500, now_ms=2_500)

    # 6,500 B in ten seconds are 30 % over 500 B/s, which means 3 s from 2,000 ms on. The last request would wait.
    assert bucket.usage.throttling.observed_requests == 2
    assert bucket.usage.throttling.observed_time_ms == 2_000 + 3_000


def test_slow_broker_delays_the_held_charge() -> None:
    bucket = bucket_of(Shaping.PACED)
    send(bucket, 1_000, now_ms=0)
    send(bucket, 250, now_ms=500, took_ms=400)
    send(bucket, 250, now_ms=1_400, took_ms=400)

    # A debt of 500 B takes a second. The next request is charged at 1,400 ms, when 200 B of it are paid.
    assert bucket.usage.throttling.observed_time_ms == 1_000 + 100


def test_observed_wait_is_bounded_by_max_throttle_time() -> None:
    bucket = bucket_of(max_throttle_time_ms=25_000)
    send(bucket, 100_000, now_ms=0)

    assert bucket.usage.throttling.observed_time_ms == 25_000


def test_shadow_restarts_after_a_request_with_room() -> None:
    bucket = bucket_of(Shaping.PACED)
    send(bucket, 1_000, now_ms=0)
    send(bucket, 100, now_ms=60_000)
    send(bucket, 500, now_ms=60_000)

    assert bucket.usage.throttling.observed_time_ms == 1_000 + 200


def test_first_enforced_request_within_the_limit_owes_nothing_of_the_last_observed_one() -> None:
    bucket = bucket_of()
    send(bucket, 60_000, now_ms=0)

    assert bucket.silence(bucket.charge(10, now_ms=30_000), now_ms=30_000) == 0
    assert bucket.debt(now_ms=30_000) == 0
