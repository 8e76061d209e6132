"""How often and for how long one bucket throttled its clients, or would have under enforcement."""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.quota.rate import Average
from kafka_quota_proxy.proxy.quota.shadow_bucket import ShadowBucket


@dataclass(slots=True, eq=False, repr=False)
class ThrottleTotals:
    """Counts throttled requests and the time that clients waited.

    Attributes:
        average_ms: Kafka's ``throttle-time`` metric.
        shadow: While the bucket is only observed: its state as enforcement would have made it.
    """

    requests: int = 0
    time_ms: int = 0
    observed_requests: int = 0
    observed_time_ms: int = 0
    average_ms: Average = field(default_factory=Average)
    shadow: ShadowBucket | None = None
    _counted_until_ms: int = 0  # the end of the last wait

    def count(self, wait_ms: int, *, now_ms: int) -> None:
        """Count one throttled request. Waits that overlap count their common time once."""
        self.requests += 1
        self.average_ms.record(wait_ms, now_ms=now_ms)
        until_ms = now_ms + wait_ms
        if until_ms > self._counted_until_ms:
            self.time_ms += until_ms - max(now_ms, self._counted_until_ms)
            self._counted_until_ms = until_ms

    def count_observed(self, waits_ms: list[int], *, max_wait_ms: int) -> None:
        """Count requests that enforcement would have throttled, with the wait of each."""
        self.observed_requests += len(waits_ms)
        self.observed_time_ms += sum(min(wait_ms, max_wait_ms) for wait_ms in waits_ms)
