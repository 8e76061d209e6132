"""Tests one bucket: charges, waits and room. ``test_vectors`` has the cases of Kafka's own tests."""

from itertools import accumulate
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import (
    Shaping,
)
from tests.support.quota_manager import STARTS_MS, bucket_of_alice, manager_of, replace_rules, rule

INT32_MAX = 2**31 - 1


# -- charging --


def test_every_charge_is_counted() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))

    assert bucket.charge(10_000, now_ms=0) == 0
    assert bucket.charge(1_000, now_ms=700) == 300

    assert (bucket.amount, bucket.requests, bucket.last_record_ms) == (11_000, 2, 700)
    assert bucket.rate.total == 11_000


@pytest.mark.parametrize("shaping", Shaping)
def test_max_throttle_time_bounds_the_wait_but_not_the_debt(shaping: Shaping) -> None:
    for max_ms, wait_ms in ((None, 90_000), (25_000, 25_000), (90_000, 90_000), (90_001, 90_000)):
        manager = manager_of(rule("alice"), shaping=shaping, burst_ms=10_000, max_throttle_time_ms=max_ms)
        bucket = bucket_of_alice(manager)

        owed_ms = bucket.charge(100_000, now_ms=0)

        assert owed_ms == 90_000
        assert min(owed_ms, bucket.max_throttle_time_ms) == wait_ms, max_ms


@pytest.mark.parametrize("shaping", Shaping)
def test_usage_over_the_limit_is_waited_for_once(shaping: Shaping) -> None:
    for start_ms in STARTS_MS:
        bucket = bucket_of_alice(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000), start_ms)

        waits_ms = [bucket.charge(12_000, now_ms=start_ms), bucket.charge(0, now_ms=start_ms + 11_000)]

        assert waits_ms == [2_000, 0], start_ms


@given(
    limit=st.floats(1_000, 1e9),
    elapsed_ms=st.integers(10_000, 10_990),
    wait_ms=st.integers(1, 900),
    start_ms=st.sampled_from(STARTS_MS),
)
def test_rate_is_at_the_limit_after_the_wait(limit: float, elapsed_ms: int, wait_ms: int, start_ms: int) -> None:
    """The formula assumes a full window from which no sample leaves during the wait."""
    bucket = bucket_of_alice(manager_of(rule("alice", limit=limit)), start_ms)
    bucket.charge(1, now_ms=start_ms)
    bucket.charge(1, now_ms=start_ms + 999)
    size_bytes = round(limit * (elapsed_ms + wait_ms) / 1_000)

    waited_ms = bucket.charge(size_bytes, now_ms=start_ms + elapsed_ms)

    assert abs(waited_ms - wait_ms) <= 3
    window_ms = elapsed_ms + waited_ms
    one_millisecond_more = (window_ms + 1) / window_ms
    assert bucket.rate.peek(now_ms=start_ms + window_ms) <= limit * one_millisecond_more
    assert bucket.rate.peek(now_ms=start_ms + window_ms) * one_millisecond_more >= limit


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


@pytest.mark.parametrize("shaping", Shaping)
def test_requests_in_flight_take_room(shaping: Shaping) -> None:
    bucket = bucket_of_alice(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000))

    bucket.in_flight = 9_000

    assert bucket.has_room(1_000, now_ms=0)
    assert not bucket.has_room(1_001, now_ms=0)


# -- pacing --


@given(
    limit=st.sampled_from([1_000.0, 10_485_760.0]),
    burst_ms=st.sampled_from([100, 1_000, 5_000]),
    start_ms=st.sampled_from(STARTS_MS),
    requests=st.lists(st.tuples(st.integers(1, 2_000_000), st.sampled_from([0, 0, 7, 3_000])), min_size=1, max_size=30),
)
def test_paced_client_keeps_its_quota_in_any_interval(
    limit: float, burst_ms: int, start_ms: int, requests: list[tuple[int, int]]
) -> None:
    bucket = bucket_of_alice(manager_of(rule("alice", limit=limit), shaping=Shaping.PACED, burst_ms=burst_ms), start_ms)
    now_ms = start_ms
    sent: list[tuple[int, int]] = []
    for size_bytes, rest_ms in requests:
        now_ms += rest_ms
        sent.append((now_ms, size_bytes))
        now_ms += bucket.charge(size_bytes, now_ms=now_ms)

    burst = limit * burst_ms / 1_000
    one_millisecond = limit / 1_000
    for first, (begin_ms, _) in enumerate(sent):
        sums = accumulate(size_bytes for _, size_bytes in sent[first:])
        for (end_ms, size_bytes), passed in zip(sent[first:], sums, strict=True):
            assert passed <= burst + limit * (end_ms - begin_ms) / 1_000 + size_bytes + one_millisecond


# -- counting --


def test_client_counts_as_throttled_for_as_long_as_its_requests_are_held() -> None:
    manager = manager_of(rule("alice"), max_throttle_time_ms=25_000)
    bucket = bucket_of_alice(manager)
    bucket.silence(bucket.charge(100_000, now_ms=0), now_ms=0)
    bucket.throttled(25_000, now_ms=0)
    history = bucket.throttling.history
    assert history is not None

    assert history.is_throttled(now_ms=80_000)
    assert bucket.throttling.time_ms == 25_000

    replace_rules(manager, rule("alice", limit=1e9))
    bucket_of_alice(manager, now_ms=40_000)
    assert not history.is_throttled(now_ms=41_002)


def test_throttled_requests_are_counted_as_enforced_or_observed() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))

    bucket.throttled(40, now_ms=0)
    bucket.throttled(60, now_ms=1_000)
    bucket.observe(7, took_ms=0, now_ms=2_000)

    assert bucket.throttling.requests == 2
    assert bucket.throttling.time_ms == 100
    assert bucket.throttling.observed_time_ms == 7
    assert bucket.throttling.average_ms.peek(now_ms=2_000) == 50
    assert isnan(bucket.throttling.average_ms.peek(now_ms=61_000))


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
