"""``shaping: paced``: a token bucket, which makes a client's flow even to the second.

Kafka has the same arithmetic (``TokenBucket``), but only for controller mutations. Its byte quotas average over eleven
seconds: a client that sends as fast as it can gets eleven seconds' worth at once, then silence.
"""


class TokenBucket:
    """The bytes that may pass now. Negative tokens are owed: the client waits afterwards, as with Kafka's quotas.

    Args:
        burst_ms: How much an idle client saves up, in milliseconds of its quota; above 0.
        byte_rate_limit: Bytes per second that flow in.
        now_ms: The time. The bucket starts full.

    Source: ``org.apache.kafka.common.metrics.stats.TokenBucket``, which starts full only because epoch times are large.
    """

    __slots__ = ("_last_ms", "_tokens", "burst_ms")

    def __init__(self, *, burst_ms: int, byte_rate_limit: float, now_ms: int) -> None:
        self.burst_ms = burst_ms
        self._tokens = burst_ms / 1000 * byte_rate_limit
        self._last_ms = now_ms

    def copy(self) -> "TokenBucket":
        """Return a copy."""
        other = TokenBucket(burst_ms=self.burst_ms, byte_rate_limit=0.0, now_ms=self._last_ms)
        other._tokens = self._tokens
        return other

    def record(self, value: int, *, byte_rate_limit: float, now_ms: int) -> float:
        """Take ``value`` bytes, or put back negative ones; return the tokens left, negative if bytes are owed."""
        burst = self.burst_ms / 1000 * byte_rate_limit
        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)
        if tokens > burst:
            tokens = burst
        tokens -= value
        self._tokens = tokens if tokens < burst else burst
        self._last_ms = now_ms
        return self._tokens

    def refill(self, *, byte_rate_limit: float, now_ms: int) -> None:
        """Fill the bucket, as after a long time without traffic."""
        self._tokens = self.burst_ms / 1000 * byte_rate_limit
        self._last_ms = now_ms

    def absorb(self, other: "TokenBucket", *, byte_rate_limit: float, now_ms: int) -> None:
        """Take out the tokens that ``other`` lacks: both have passed bytes of one flow."""
        burst = other.burst_ms / 1000 * byte_rate_limit
        left = other.peek(byte_rate_limit=byte_rate_limit, now_ms=now_ms)
        self._tokens = self.peek(byte_rate_limit=byte_rate_limit, now_ms=now_ms) - (burst - left)
        self._last_ms = now_ms

    def full_at_ms(self, *, byte_rate_limit: float) -> float:
        """Return when the bucket will be full if no bytes pass."""
        missing = self.burst_ms / 1000 * byte_rate_limit - self._tokens
        return self._last_ms + max(0.0, missing) / byte_rate_limit * 1000

    def peek(self, *, byte_rate_limit: float, now_ms: int) -> float:
        """Return the tokens at ``now_ms``. Changes nothing."""
        burst = self.burst_ms / 1000 * byte_rate_limit
        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)
        return tokens if tokens < burst else burst
