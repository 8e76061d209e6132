"""Limits a rate with a token bucket, which spreads the usage of a client evenly over time.

The setting ``shaping: paced`` uses it for all quotas. Kafka uses the same arithmetic (``TokenBucket``) for controller
mutations only. Kafka's byte quotas limit the mean rate over eleven seconds, so a fast client sends eleven seconds'
worth of bytes at once, and must then wait.
"""


class TokenBucket:
    """A token bucket. Each token allows one byte, or one unit of another quota.

    If the tokens are negative, the client waits.

    Args:
        burst_ms: For how many milliseconds an idle client saves up tokens. It is above 0.
        byte_rate_limit: How many tokens are added per second.
        now_ms: The time. The token bucket is full at first.

    Source: ``org.apache.kafka.common.metrics.stats.TokenBucket``.
    """

    __slots__ = ("_last_ms", "_tokens", "burst_ms")

    def __init__(self, *, burst_ms: int, byte_rate_limit: float, now_ms: int) -> None:
        self.burst_ms = burst_ms
        self._tokens = burst_ms / 1000 * byte_rate_limit
        self._last_ms = now_ms

    def copy(self) -> "TokenBucket":
        """Return a copy of this token bucket."""
        other = TokenBucket(burst_ms=self.burst_ms, byte_rate_limit=0.0, now_ms=self._last_ms)
        other._tokens = self._tokens
        return other

    def record(self, value: int, *, byte_rate_limit: float, now_ms: int) -> float:
        """Take ``value`` tokens, or put them back if ``value`` is negative. Return the tokens that are left."""
        burst = self.burst_ms / 1000 * byte_rate_limit
        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)
        if tokens > burst:
            tokens = burst
        tokens -= value
        self._tokens = tokens if tokens < burst else burst
        self._last_ms = now_ms
        return self._tokens

    def refill(self, *, byte_rate_limit: float, now_ms: int) -> None:
        """Fill the token bucket, as if there had been no traffic for a long time."""
        self._tokens = self.burst_ms / 1000 * byte_rate_limit
        self._last_ms = now_ms

    def full_at_ms(self, *, byte_rate_limit: float) -> float:
        """Return the time at which the token bucket will be full if no more tokens are taken."""
        missing = self.burst_ms / 1000 * byte_rate_limit - self._tokens
        return self._last_ms + max(0.0, missing) / byte_rate_limit * 1000

    def peek(self, *, byte_rate_limit: float, now_ms: int) -> float:
        """Return the number of tokens at ``now_ms``. Changes nothing."""
        burst = self.burst_ms / 1000 * byte_rate_limit
        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)
        return tokens if tokens < burst else burst
