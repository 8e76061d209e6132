"""Tests one limit on replication: Kafka's measure to the millisecond, and an even flow below the limit."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.quota.rate import SimpleRate
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota

NOW_MS = 86_400_000


def quota(limit: float | None) -> ReplicationQuota:
    return ReplicationQuota(limit, samples=11, window_ms=1_000, now_ms=NOW_MS)


def test_v22_fresh_quota_is_exceeded_until_its_bytes_are_paid() -> None:
    for limit, size_bytes, after_ms, is_exceeded in [
        (100, 101, 0, True),
        (100, 101, 1_010, False),
        (1_000, 10_000, 0, True),
        (1_000, 10_000, 1_000, True),
        (1_000, 10_000, 5_000, True),
        (1_000, 10_000, 9_999, True),
        (1_000, 10_000, 10_000, False),
        (1_000, 11_000, 10_999, True),
        (1_000, 11_000, 11_000, False),
    ]:
        one = quota(limit)
        one.record(size_bytes, now_ms=NOW_MS)
        assert (one.room(now_ms=NOW_MS + after_ms) == 0) is is_exceeded, (size_bytes, after_ms)
        assert (one.room_at_ms(now_ms=NOW_MS + after_ms) > NOW_MS + after_ms) is is_exceeded, (
            limit,
            size_bytes,
            after_ms,
            is_exceeded,
        )


def test_v22_fresh_simple_rate_counts_one_window() -> None:
    for size_bytes, after_ms, rate in [
        (101, 0, 101),
        (101, 1_010, 100),
        (10_000, 1_000, 10_000),
        (10_000, 5_000, 2_000),
        (11_000, 11_000, 0),
    ]:
        one = SimpleRate(samples=11, window_ms=1_000)
        one.record(size_bytes, now_ms=NOW_MS)
        assert one.peek(now_ms=NOW_MS + after_ms) == pytest.approx(rate), (size_bytes, after_ms, rate)
        assert one.measure(now_ms=NOW_MS + after_ms) == pytest.approx(rate), (size_bytes, after_ms, rate)


def test_unlimited_quota_has_room_and_measures() -> None:
    one = quota(None)
    one.record(10**12, now_ms=NOW_MS)
    assert one.room(now_ms=NOW_MS) == inf
    assert one.room_at_ms(now_ms=NOW_MS) == NOW_MS
    assert one.rate.measure(now_ms=NOW_MS) == 10**12


def test_limit_of_zero_never_has_room() -> None:
    one = quota(0)
    assert one.room(now_ms=NOW_MS) == 0
    assert one.room_at_ms(now_ms=NOW_MS) >= NOW_MS
    one.record(1, now_ms=NOW_MS)
    assert one.room(now_ms=NOW_MS + 3_600_000) == 0


def test_room_is_a_step_and_up_to_a_quarter_second_saved() -> None:
    one = quota(1_000)
    assert one.room(now_ms=NOW_MS) == 100
    assert one.room(now_ms=NOW_MS + 200) == 300
    assert one.room(now_ms=NOW_MS + 3_600_000) == 350


def test_reserved_bytes_are_not_room_for_another_fetch() -> None:
    one = quota(1_000)
    one.reserve(100)
    assert one.room(now_ms=NOW_MS) == 0
    assert one.room_at_ms(now_ms=NOW_MS) == NOW_MS + 100
    one.settle(100, 0, now_ms=NOW_MS)  # the response was empty
    assert one.room(now_ms=NOW_MS) == 100


def test_lower_limit_cuts_saved_tokens() -> None:
    one = quota(1_000_000)
    one.room(now_ms=NOW_MS + 1_000)
    one.change(1_000, now_ms=NOW_MS + 1_000)
    assert one.room(now_ms=NOW_MS + 1_000) == 350


def test_large_response_is_paid_in_full() -> None:
    one = quota(1_000)
    one.reserve(100)
    one.settle(100, 60_000, now_ms=NOW_MS)  # the response had one record that is larger than every limit
    one.record(60_000, now_ms=NOW_MS)
    assert one.room_at_ms(now_ms=NOW_MS) == NOW_MS + 60_000
    assert one.room(now_ms=NOW_MS + 59_998) == 0
    assert one.room(now_ms=NOW_MS + 60_000) == 100


def test_reserved_bytes_count_in_kafkas_measure() -> None:
    one = quota(1_000)
    now_ms = NOW_MS + 1_000
    one.room(now_ms=now_ms)  # a quarter of a second is saved up
    one.record(900, now_ms=now_ms)  # a replica in sync
    assert one.room(now_ms=now_ms) == 200
    one.reserve(200)
    assert one.room(now_ms=now_ms) == 0
    assert one.room_at_ms(now_ms=now_ms) == now_ms + 1_100


def test_the_time_before_a_charge_does_not_pay_it() -> None:
    one = quota(1_000)
    one.settle(0, 5_000, now_ms=NOW_MS + 60_000)
    # A quarter of a second was saved up.
    assert one.room_at_ms(now_ms=NOW_MS + 60_000) == NOW_MS + 64_750


def test_many_small_refills_lose_no_time() -> None:
    one = quota(8)
    one.settle(0, 100, now_ms=NOW_MS)
    at_ms = one.room_at_ms(now_ms=NOW_MS)
    for now_ms in range(NOW_MS, at_ms - 1_000, 7):
        assert not one.room(now_ms=now_ms)
    assert one.room(now_ms=at_ms), "though the sum of the steps lacks a 10,000,000,000,000th of a byte"


def test_debt_is_paid_at_the_new_limit() -> None:
    one = quota(1_000)
    one.settle(0, 1_000_000, now_ms=NOW_MS)
    assert one.room_at_ms(now_ms=NOW_MS) == NOW_MS + 1_000_000
    one.change(10_000_000, now_ms=NOW_MS)
    assert one.room_at_ms(now_ms=NOW_MS) == NOW_MS + 100
    one.change(None, now_ms=NOW_MS)
    assert one.room(now_ms=NOW_MS) == inf
    one.change(1_000, now_ms=NOW_MS + 1)
    assert one.room(now_ms=NOW_MS + 1) == 100, "what passed without a limit is not owed"


def test_what_a_higher_limit_allowed_is_not_owed_under_a_lower_one() -> None:
    one = quota(1_000_000)
    for second in range(10):
        one.record(1_000_000, now_ms=NOW_MS + second * 1_000)
    one.change(1_000, now_ms=NOW_MS + 10_000)
    assert one.room(now_ms=NOW_MS + 10_000) == 350
    assert one.rate.peek(now_ms=NOW_MS + 10_000) == 1_000_000, "metrics show what Kafka measures"


def test_bytes_above_the_old_limit_are_owed_under_the_new_one() -> None:
    """Replicas in sync are charged, but take no tokens."""
    one = quota(1_000)
    one.record(6_000, now_ms=NOW_MS)  # 5,000 bytes above the limit
    one.change(500, now_ms=NOW_MS)
    one.change(500, now_ms=NOW_MS + 5_000)  # a reload that changes nothing forgives nothing
    assert one.room_at_ms(now_ms=NOW_MS + 5_000) == NOW_MS + 10_000
    assert one.room(now_ms=NOW_MS + 9_998) == 0
    assert one.room(now_ms=NOW_MS + 10_000) > 0
    one.record(1_000, now_ms=NOW_MS + 10_000)
    assert one.room(now_ms=NOW_MS + 10_000) == 0, "and counts again"


def test_place_in_line_lasts_until_it_is_left_or_late() -> None:
    one = quota(1_000)
    one.settle(0, 1_000, now_ms=NOW_MS)
    assert one.wait("a", 1, now_ms=NOW_MS) == NOW_MS + 1_000
    assert one.wait("b", 2, now_ms=NOW_MS) == NOW_MS + 1_100, "behind what a is given"
    one.wait("a", 9, now_ms=NOW_MS)  # "a" keeps its first ticket
    assert [one.ahead(waiter, 9, now_ms=NOW_MS) for waiter in ("a", "b", "c")] == [0, 1, 2]
    one.leave("a")
    assert [one.ahead(waiter, 9, now_ms=NOW_MS) for waiter in ("a", "b", "c")] == [1, 0, 1]
    assert one.ahead("c", 9, now_ms=NOW_MS + 1_200) == 1, "b is a little late"
    assert one.ahead("c", 9, now_ms=NOW_MS + 1_201) == 0, "b did not come"


def test_tiny_limit_has_finite_times() -> None:
    for limit in [5e-324, 1e-9, 1e-3]:
        one = quota(limit)
        one.settle(0, 10**9, now_ms=NOW_MS)
        one.record(10**9, now_ms=NOW_MS)
        assert NOW_MS + 10_000 < one.room_at_ms(now_ms=NOW_MS) <= NOW_MS + (1 << 62), limit
        assert one.room(now_ms=NOW_MS + 10_000) == 0, limit


@given(
    limit=st.integers(1, 10**8),
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 4), st.floats(0, 3)), max_size=60),
)
def test_flow_stays_below_the_rate_plus_one_response(limit: int, steps: list[tuple[int, int, float]]) -> None:
    one = quota(limit)
    now_ms = NOW_MS
    flows: list[tuple[int, int]] = []
    for pause_ms, fetches, share in steps:
        now_ms += pause_ms
        for _ in range(fetches):
            room = one.room(now_ms=now_ms)
            if not room:
                assert one.room_at_ms(now_ms=now_ms) > now_ms
                break
            taken = int(room * min(share, 1))
            one.reserve(taken)
            brought = int(room * share)  # may be above ``taken``, as a batch may be larger than the fetch asks for
            one.settle(taken, brought, now_ms=now_ms)
            one.record(brought, now_ms=now_ms)
            flows.append((now_ms, brought))
    one_response = max([0.1 * limit, *(size for _, size in flows)])
    for at, (begin_ms, _) in enumerate(flows):
        total = 0
        for end_ms, size_bytes in flows[at:]:
            total += size_bytes
            assert total <= limit * ((end_ms - begin_ms) / 1_000 + 0.25) + one_response + 1


@given(limit=st.integers(1, 10**8), sizes=st.lists(st.integers(0, 10**7), min_size=1, max_size=30))
def test_there_is_room_at_room_at_ms(limit: int, sizes: list[int]) -> None:
    one = quota(limit)
    now_ms = NOW_MS
    for size_bytes in sizes:
        one.settle(0, size_bytes, now_ms=now_ms)
        one.record(size_bytes, now_ms=now_ms)
        for _ in range(50):
            if one.room(now_ms=now_ms):
                break
            at_ms = one.room_at_ms(now_ms=now_ms)
            assert at_ms > now_ms
            now_ms = at_ms
        else:
            raise AssertionError("it was put off for ever")
