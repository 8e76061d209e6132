"""How many entities may be changed in a second, so that a program that has gone wild floods neither disk nor fleet.

A token bucket as that of KIP-599: a request passes, whole, while the bucket is not below zero, and what is taken may go
below it once; ten seconds' worth may be saved up.
"""

from math import ceil
from typing import Final

from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

_SAVED_MS: Final = 10_000


class ChangeLimit:
    """Of one proxy.

    Args:
        changes_per_second: Entities; None: no limit.
        now_ms: The time of any clock that does not step back.
    """

    def __init__(self, changes_per_second: float | None, *, now_ms: int) -> None:
        self._rate = changes_per_second
        self._bucket = (
            None
            if changes_per_second is None
            else TokenBucket(burst_ms=_SAVED_MS, byte_rate_limit=changes_per_second, now_ms=now_ms)
        )

    def wait_ms(self, *, now_ms: int) -> int:
        """Return how long it is until a request may pass; 0: it may now. Changes nothing."""
        if self._bucket is None or self._rate is None:
            return 0
        tokens = self._bucket.peek(byte_rate_limit=self._rate, now_ms=now_ms)
        # A float's last digits are no millisecond.
        return max(0, ceil(round(-tokens / self._rate * 1_000, 6)))

    def record(self, changes: int, *, now_ms: int) -> None:
        """Take it that so many entities are changed."""
        if self._bucket is not None and self._rate is not None:
            self._bucket.record(changes, byte_rate_limit=self._rate, now_ms=now_ms)
