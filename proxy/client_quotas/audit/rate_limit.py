"""Limits how many entities are changed per second, so that a busy client floods neither the disk nor other proxies.

The limit is a token bucket as in KIP-599. While the number of tokens is not negative, the next request is accepted,
however many changes it has, and may make the number negative. At most the tokens of ten seconds are saved up.
"""

from math import ceil
from typing import Final

from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

_SAVED_MS: Final = 10_000


class ChangeLimit:
    """The limit on changes at one proxy. If ``changes_per_second`` is None, there is no limit.

    ``now_ms`` is the time of a monotonic clock, here and in the methods.
    """

    def __init__(self, changes_per_second: float | None, *, now_ms: int) -> None:
        self._rate = changes_per_second
        self._bucket = (
            None
            if changes_per_second is None
            else TokenBucket(burst_ms=_SAVED_MS, byte_rate_limit=changes_per_second, now_ms=now_ms)
        )

    def wait_ms(self, *, now_ms: int) -> int:
        """Return how many milliseconds must pass before the next request is accepted, or 0. This takes no tokens."""
        if self._bucket is None or self._rate is None:
            return 0
        tokens = self._bucket.peek(byte_rate_limit=self._rate, now_ms=now_ms)
        # The value is rounded first, so that a rounding error of a float does not become a millisecond.
        return max(0, ceil(round(-tokens / self._rate * 1_000, 6)))

    def record(self, changes: int, *, now_ms: int) -> None:
        """Take one token for each changed entity."""
        if self._bucket is not None and self._rate is not None:
            self._bucket.record(changes, byte_rate_limit=self._rate, now_ms=now_ms)
