"""Tests how long a client waits: Kafka's formula, rounding and token bucket, and saturation where it overflows."""

from fractions import Fraction
from itertools import accumulate
from math import floor, inf

from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.quota.throttle import MAX_THROTTLE_TIME_MS, throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

LIMITS = st.one_of(st.sampled_from([1.0, 0.5, 1_000.0, 1_024.0, 10_485_760.0]), st.floats(0.001, 1e12))
WINDOWS_MS = st.integers(1, 400_000)


@given(byte_rate=st.floats(0, 1e12), limit=LIMITS, window_ms=WINDOWS_MS)
def test_a_rate_spread_over_window_and_wait_is_the_limit(byte_rate: float, limit: float, window_ms: int) -> None:
    wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms)
    assume(wait_ms < MAX_THROTTLE_TIME_MS)

    window_bytes = Fraction(byte_rate) * window_ms
    allowed_until_half_a_millisecond_later = Fraction(limit) * (window_ms + wait_ms + Fraction(1, 2))
    allowed_until_half_a_millisecond_earlier = Fraction(limit) * (window_ms + wait_ms - Fraction(1, 2))

    # Doubles have 15 digits. The rest of the test is exact.
    slack = 1 + Fraction(1, 10**9)
    assert window_bytes <= allowed_until_half_a_millisecond_later * slack
    assert window_bytes * slack >= allowed_until_half_a_millisecond_earlier


@given(byte_rate=st.floats(0, 1e12), limit=LIMITS, window_ms=WINDOWS_MS)
def test_rate_within_the_limit_does_not_wait(byte_rate: float, limit: float, window_ms: int) -> None:
    wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms)

    assert wait_ms <= 0 or byte_rate > limit


def test_wait_saturates_at_int32() -> None:
    longest_ms = 2**31 - 1

    assert throttle_time_ms(byte_rate=longest_ms - 0.4 + 1, byte_rate_limit=1.0, window_ms=1) == longest_ms
    assert throttle_time_ms(byte_rate=longest_ms - 0.6 + 1, byte_rate_limit=1.0, window_ms=1) == longest_ms - 1
    assert throttle_time_ms(byte_rate=1e300, byte_rate_limit=1e-300, window_ms=10_000) == longest_ms
    assert throttle_time_ms(byte_rate=inf, byte_rate_limit=1.0, window_ms=10_000) == longest_ms
    assert wait_for_tokens_ms(tokens=-1e300, byte_rate_limit=1e-300) == longest_ms
    assert wait_for_tokens_ms(tokens=float(-longest_ms), byte_rate_limit=1_000.0) == longest_ms
    assert wait_for_tokens_ms(tokens=1.0 - longest_ms, byte_rate_limit=1_000.0) == longest_ms - 1


@given(tokens=st.floats(0, 1e15), limit=LIMITS)
def test_positive_tokens_do_not_wait(tokens: float, limit: float) -> None:
    assert wait_for_tokens_ms(tokens=tokens, byte_rate_limit=limit) == 0


@given(owed=st.floats(0.001, 1e12), limit=LIMITS)
def test_debt_has_flowed_in_after_the_wait(owed: float, limit: float) -> None:
    wait_ms = wait_for_tokens_ms(tokens=-owed, byte_rate_limit=limit)

    expected_ms = owed / limit * 1_000
    assert wait_ms == (MAX_THROTTLE_TIME_MS if expected_ms >= MAX_THROTTLE_TIME_MS else floor(expected_ms + 0.5))


STARTS_MS = (0, 1, 86_400_000, 1_767_225_600_000)


def test_bucket_starts_full_at_any_time() -> None:
    """Kafka's bucket starts empty at time 0, and is full at its first use only because epoch times are large."""
    for start_ms in STARTS_MS:
        bucket = TokenBucket(burst_ms=2_000, byte_rate_limit=50.0, now_ms=start_ms)

        assert bucket.peek(byte_rate_limit=50.0, now_ms=start_ms) == 100, start_ms
        assert bucket.record(160, byte_rate_limit=50.0, now_ms=start_ms) == -60, start_ms
        assert bucket.record(0, byte_rate_limit=50.0, now_ms=start_ms + 1_000) == -10, start_ms


def test_longer_burst_fills_with_time() -> None:
    bucket = TokenBucket(burst_ms=1_000, byte_rate_limit=100.0, now_ms=0)

    bucket.burst_ms = 5_000

    assert bucket.peek(byte_rate_limit=100.0, now_ms=0) == 100
    assert bucket.peek(byte_rate_limit=100.0, now_ms=3_000) == 400


@given(
    limit=st.sampled_from([1_000.0, 65_536.0, 10_485_760.0]),
    burst_ms=st.sampled_from([100, 1_000, 5_000]),
    requests=st.lists(
        st.tuples(st.integers(1, 2_000_000), st.one_of(st.just(0), st.integers(0, 8_000))), min_size=1, max_size=40
    ),
)
def test_no_interval_passes_more_than_burst_limit_and_one_request(
    limit: float, burst_ms: int, requests: list[tuple[int, int]]
) -> None:
    """The client sends as soon as it may, and sometimes rests."""
    bucket = TokenBucket(burst_ms=burst_ms, byte_rate_limit=limit, now_ms=0)
    now_ms = 0
    sent: list[tuple[int, int]] = []
    for size_bytes, rest_ms in requests:
        now_ms += rest_ms
        sent.append((now_ms, size_bytes))
        left = bucket.record(size_bytes, byte_rate_limit=limit, now_ms=now_ms)
        now_ms += wait_for_tokens_ms(tokens=left, byte_rate_limit=limit)

    burst = limit * burst_ms / 1_000
    half_a_millisecond = limit / 2_000
    for first, (start_ms, _) in enumerate(sent):
        for (end_ms, size_bytes), passed in zip(
            sent[first:], accumulate(size for _, size in sent[first:]), strict=True
        ):
            flowed_in = limit * (end_ms - start_ms) / 1_000
            assert passed <= burst + flowed_in + size_bytes + half_a_millisecond + 1e-6


def test_full_at_ms_is_when_the_bucket_is_full() -> None:
    for taken, full_at_ms in [(0, 5_000), (100, 6_000), (300, 8_000), (-50, 5_000)]:
        bucket = TokenBucket(burst_ms=2_000, byte_rate_limit=100.0, now_ms=0)
        bucket.record(taken, byte_rate_limit=100.0, now_ms=5_000)

        assert bucket.full_at_ms(byte_rate_limit=100.0) == full_at_ms, (taken, full_at_ms)
        assert bucket.peek(byte_rate_limit=100.0, now_ms=full_at_ms) == 200, (taken, full_at_ms)
