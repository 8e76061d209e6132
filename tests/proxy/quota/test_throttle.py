"""Tests how long a client waits: Kafka's formula, its rounding, and saturation where Kafka overflows."""

from fractions import Fraction
from math import floor, inf

from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.quota.throttle import MAX_THROTTLE_TIME_MS, throttle_time_ms, wait_for_tokens_ms

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
