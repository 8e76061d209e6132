"""The limit of changed entities per second, so that a client in a loop floods neither the disk nor other proxies.

A token bucket like that of KIP-599: a request passes as a whole while the bucket is not below zero, and may take it
below once. At most ten seconds' worth of changes is saved up.
"""

from math import ceil
from typing import Final

from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

_SAVED_MS: Final = 10_000


class ChangeLimit:
    """The limit of one proxy; None: there is none. ``now_ms`` is of a monotonic clock."""

    def __init__(self, changes_per_second: float | None, *, now_ms: int) -> None:
        self._rate = changes_per_second
        self._bucket = (
            None
            if changes_per_second is None
            else TokenBucket(burst_ms=_SAVED_MS, byte_rate_limit=changes_per_second, now_ms=now_ms)
        )

    def wait_ms(self, *, now_ms: int) -> int:
        """Return how long it is until a request may pass; 0: it may now. The bucket does not change."""
        if self._bucket is None or self._rate is None:
            return 0
        tokens = self._bucket.peek(byte_rate_limit=self._rate, now_ms=now_ms)
        # Rounded, so that the last digits of a float do not become a millisecond.
        return max(0, ceil(round(-tokens / self._rate * 1_000, 6)))

    def record(self, changes: int, *, now_ms: int) -> None:
        """Take changed entities from the bucket."""
        if self._bucket is not None and self._rate is not None:
            self._bucket.record(changes, byte_rate_limit=self._rate, now_ms=now_ms)
