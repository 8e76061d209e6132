"""``shaping: paced``: a token bucket, so that a client's flow is even to the second.

Kafka knows this arithmetic as ``TokenBucket`` and uses it for controller mutations only. Its byte quotas keep an
average over eleven seconds and nothing finer: who sends all he can gets eleven seconds' worth at once, then silence.
"""


class TokenBucket:
    """Bytes that may pass now. May go below 0: what is owed is waited for afterwards, as with Kafka's quotas.

    Args:
        burst_ms: how much an idle client may have saved up, in milliseconds of its quota; above 0.
        byte_rate_limit: bytes per second that flow in.
        now_ms: the bucket starts full.

    Source: ``org.apache.kafka.common.metrics.stats.TokenBucket``, which starts full only because epoch times are large.
    """

    __slots__ = ("_last_ms", "_tokens", "burst_ms")

    def __init__(self, *, burst_ms: int, byte_rate_limit: float, now_ms: int) -> None:
        self.burst_ms = burst_ms
        self._tokens = burst_ms / 1000 * byte_rate_limit
        self._last_ms = now_ms

    def copy(self) -> "TokenBucket":
        """Return another one with as many tokens."""
        other = TokenBucket(burst_ms=self.burst_ms, byte_rate_limit=0.0, now_ms=self._last_ms)
        other._tokens = self._tokens
        return other

    def record(self, value: int, *, byte_rate_limit: float, now_ms: int) -> float:
        """Take ``value`` bytes (negative: put back) and return what is left, negative where bytes are owed."""
        burst = self.burst_ms / 1000 * byte_rate_limit
        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)
        if tokens > burst:
            tokens = burst
        tokens -= value
        self._tokens = tokens if tokens < burst else burst
        self._last_ms = now_ms
        return self._tokens

    def refill(self, *, byte_rate_limit: float, now_ms: int) -> None:
        """Be as if nothing had been recorded for long: with all that may be saved up."""
        self._tokens = self.burst_ms / 1000 * byte_rate_limit
        self._last_ms = now_ms

    def absorb(self, other: "TokenBucket", *, byte_rate_limit: float, now_ms: int) -> None:
        """Take what ``other`` lacks from this one, too: both have let bytes of one flow pass."""
        burst = other.burst_ms / 1000 * byte_rate_limit
        left = other.peek(byte_rate_limit=byte_rate_limit, now_ms=now_ms)
        self._tokens = self.peek(byte_rate_limit=byte_rate_limit, now_ms=now_ms) - (burst - left)
        self._last_ms = now_ms

    def full_at_ms(self, *, byte_rate_limit: float) -> float:
        """Return when an idle client will have saved up all that it may."""
        missing = self.burst_ms / 1000 * byte_rate_limit - self._tokens
        return self._last_ms + max(0.0, missing) / byte_rate_limit * 1000

    def peek(self, *, byte_rate_limit: float, now_ms: int) -> float:
        """Return the bytes that may pass at ``now_ms``. Changes nothing."""
        burst = self.burst_ms / 1000 * byte_rate_limit
        return min(burst, self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000))
