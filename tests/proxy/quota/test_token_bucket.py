"""Tests the token bucket of ``shaping: paced``. It computes as Kafka's, but is full at the start."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.quota.throttle import wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

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
