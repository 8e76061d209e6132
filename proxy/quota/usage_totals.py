"""Totals that a bucket, a listener or a replication limit has counted since its start."""

from typing import Final, NamedTuple


class UsageTotals(NamedTuple):
    """Totals since the start. ``amount`` is in the unit that its kind of quota records."""

    amount: int = 0
    requests: int = 0
    throttled_requests: int = 0
    throttle_time_ms: int = 0
    observed_throttle_time_ms: int = 0
    observed_throttled_requests: int = 0

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the sum."""
        # Written out, not a loop: every evicted bucket is added to the sum of those before it.
        return UsageTotals(
            self.amount + other.amount,
            self.requests + other.requests,
            self.throttled_requests + other.throttled_requests,
            self.throttle_time_ms + other.throttle_time_ms,
            self.observed_throttle_time_ms + other.observed_throttle_time_ms,
            self.observed_throttled_requests + other.observed_throttled_requests,
        )

    def minus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the difference."""
        return UsageTotals(
            self.amount - other.amount,
            self.requests - other.requests,
            self.throttled_requests - other.throttled_requests,
            self.throttle_time_ms - other.throttle_time_ms,
            self.observed_throttle_time_ms - other.observed_throttle_time_ms,
            self.observed_throttled_requests - other.observed_throttled_requests,
        )


NO_USAGE: Final = UsageTotals()
