"""Counts the usage of one entity (a user, a client-id, or both), and how often and how long it was throttled."""

from dataclasses import dataclass, field
from operator import add, sub
from typing import Final, NamedTuple

from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.rate import Average
from kafka_quota_proxy.proxy.quota.shadow_bucket import ShadowBucket
from kafka_quota_proxy.proxy.quota.throttle_history import ThrottleHistory


class UsageTotals(NamedTuple):
    """What was counted since the start of the proxy. ``amount`` is in the unit of the quota, for example in bytes.

    The fields with ``observed`` in their names count what enforcement would have done while limits were only observed.
    """

    amount: int = 0
    requests: int = 0
    throttled_requests: int = 0
    throttle_time_ms: int = 0
    observed_throttle_time_ms: int = 0
    observed_throttled_requests: int = 0

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Return these totals plus ``other``, field by field."""
        return UsageTotals(*map(add, self, other))

    def minus(self, other: "UsageTotals") -> "UsageTotals":
        """Return these totals minus ``other``, field by field."""
        return UsageTotals(*map(sub, self, other))


NO_USAGE: Final = UsageTotals()


@dataclass(slots=True, eq=False, repr=False)
class ThrottleTotals:
    """Counts throttled requests, and the time for which clients had to wait.

    ``observed_requests`` and ``observed_time_ms`` count what enforcement would have done while the limit was only
    observed.

    Attributes:
        average_ms: The mean throttle time, Kafka's metric ``throttle-time``.
        shadow: The state that the bucket would have if its limit, which is only observed, were enforced. It is None
            until the usage first exceeds the limit.
        history: When clients were throttled. It is None until a request is throttled.
    """

    requests: int = 0
    time_ms: int = 0
    observed_requests: int = 0
    observed_time_ms: int = 0
    average_ms: Average = field(default_factory=Average)
    shadow: ShadowBucket | None = None
    history: ThrottleHistory | None = None

    def count(self, wait_ms: int, *, held_until_ms: int, now_ms: int) -> int:
        """Count one throttled request, and return by how much ``time_ms`` grows. It counts overlapping waits once.

        Until ``held_until_ms`` the proxy holds the requests that follow.
        """
        self.requests += 1
        self.average_ms.record(wait_ms, now_ms=now_ms)
        if self.history is None:
            self.history = ThrottleHistory(now_ms=now_ms)
        added_ms = self.history.record(wait_ms, held_until_ms=held_until_ms, now_ms=now_ms)
        self.time_ms += added_ms
        return added_ms

    def count_observed(self, waits_ms: list[int], *, max_wait_ms: int) -> None:
        """Count the waits of requests that enforcement would have throttled, each up to ``max_wait_ms``."""
        self.observed_requests += len(waits_ms)
        self.observed_time_ms += sum(min(wait_ms, max_wait_ms) for wait_ms in waits_ms)


@dataclass(slots=True, eq=False, repr=False)
class EntityUsage:
    """What was charged to one entity (a user, a client-id, or both) for one kind of quota.

    Attributes:
        last_record_ms: The time of the last charge.
        amount: The sum of all charges.
        requests: The number of charges.
        throttling: The throttled requests.
        logged: The part of ``totals`` that the usage log has read.
    """

    last_record_ms: int
    amount: int = 0
    requests: int = 0
    throttling: ThrottleTotals = field(default_factory=ThrottleTotals)
    logged: UsageTotals = NO_USAGE
    # The value of ``used_s`` and ``amount`` when the limit changed last, and the limit. These are one tuple, because a
    # scrape of the metrics reads them in another thread.
    _used: tuple[float, int, float] = (0.0, 0, float(UNLIMITED))

    @property
    def totals(self) -> UsageTotals:
        """The amount, the number of requests and the throttling since the start of the proxy."""
        throttling = self.throttling
        return UsageTotals(
            self.amount,
            self.requests,
            throttling.requests,
            throttling.time_ms,
            throttling.observed_time_ms,
            throttling.observed_requests,
        )

    @property
    def used_s(self) -> float:
        """The usage divided by the limit, in seconds. It grows by 1 per second while an entity uses its whole limit."""
        before_s, amount_before, limit = self._used
        return before_s + (self.amount - amount_before) / limit if limit < UNLIMITED else before_s

    def set_limit(self, limit: float) -> None:
        """Divide later usage by this limit in ``used_s``. Earlier usage remains divided by the limit of its time."""
        if limit != self._used[2]:
            self._used = (self.used_s, self.amount, limit)
