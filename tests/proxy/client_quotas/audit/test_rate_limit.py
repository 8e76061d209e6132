"""Tests how many entities may be changed in a second."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.client_quotas.audit.rate_limit import ChangeLimit


def test_burst_of_ten_seconds_passes_and_then_the_rate() -> None:
    limit = ChangeLimit(100.0, now_ms=0)

    limit.record(1_000, now_ms=0)
    assert limit.wait_ms(now_ms=0) == 0  # the limit is not exceeded yet, so one more request of any size passes
    limit.record(50, now_ms=0)
    assert limit.wait_ms(now_ms=0) == 500
    assert limit.wait_ms(now_ms=499) == 1
    assert limit.wait_ms(now_ms=500) == 0


def test_requests_behind_a_large_one_wait() -> None:
    limit = ChangeLimit(100.0, now_ms=0)

    limit.record(10_000, now_ms=0)

    assert limit.wait_ms(now_ms=0) == 90_000
    # At most the changes of ten seconds are saved up.
    limit.record(1_001, now_ms=1_000_000)
    assert limit.wait_ms(now_ms=1_000_000) == 10


def test_without_a_limit_any_number_passes() -> None:
    limit = ChangeLimit(None, now_ms=0)

    limit.record(10**9, now_ms=0)

    assert limit.wait_ms(now_ms=0) == 0


@given(
    rate=st.floats(0.01, 10_000),
    asks=st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 10_000)), max_size=30),
)
def test_no_more_passes_than_burst_and_rate_and_one_request_allow(rate: float, asks: list[tuple[int, int]]) -> None:
    limit = ChangeLimit(rate, now_ms=0)
    now_ms = passed = largest = 0
    for after_ms, changes in asks:
        now_ms += after_ms
        if limit.wait_ms(now_ms=now_ms) == 0:
            limit.record(changes, now_ms=now_ms)
            passed += changes
            largest = max(largest, changes)

        assert passed <= rate * (10 + now_ms / 1_000) + largest + 1e-6 * passed
