"""Keeps each user's recent cost, which decides the level of the user's requests (``DecayRpcScheduler`` in Hadoop).

The fair call queue serves level 0 most often. A user's cost is the sum of the costs of the user's requests. At the end
of each period, a sweep multiplies the cost of every user by the decay factor. It then compares each user's share of the
costs of all users with the thresholds of the levels, and so determines the user's level until the next sweep. The level
of a user that is new since the last sweep follows from the user's cost so far.
"""

import heapq
import math
from bisect import bisect_right
from typing import Final, NamedTuple

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue, SchedulerImpl

# The identity that all users beyond `max_identities` share.
OVERFLOW: Final = "<shared>"
# An average this small becomes 0 in a window without responses (HADOOP-14166).
_NOTHING_MS: Final = 0.0001
# A shorter time without sweeps is no pause, however short the period is. An idle proxy checks once a second.
_NO_PAUSE_MS: Final = 2_000
# The most periods of decay after a pause. More would make heavy users and light users alike.
_MOST_PERIODS_FORGOTTEN: Final = 3
# A factor for all costs. Without it, a decay would truncate a cost of 1 to 0, and forget its user.
_SCALE: Final = 1_000
# With fewer responses in a period, a level counts as idle. Otherwise a single slow request would make it slow.
_LEAST_RESPONSES: Final = 10


class Standing(NamedTuple):
    """A user's cost, its share of all costs, and its level.

    ``raw`` is the sum of all charges, and ``decayed`` is what the sweeps have left of it. ``cached_level`` is the level
    from the last sweep, or None for a new user. ``level`` is the level of the user's next request.
    """

    identity: str
    decayed: float
    raw: float
    share: float
    level: int
    cached_level: int | None


class Totals(NamedTuple):
    """The sums of all charges (``raw``) and of what decay has left of them (``decayed``), service users apart."""

    decayed: float = 0
    raw: float = 0
    service_decayed: float = 0
    service_raw: float = 0


class _Cost:
    """One user's charges (``raw``), and what decay has left of them (``decayed``), times ``_SCALE``."""

    __slots__ = ("decayed", "is_service_user", "raw")

    def __init__(self, *, is_service_user: bool) -> None:
        self.decayed = 0
        self.raw = 0
        self.is_service_user = is_service_user


class DecayScheduler:
    """Assigns each user of one listener a priority level by the cost of its requests, which decays over time.

    For each level, ``average_response_ms`` contains the average response time at the end of the last period.
    ``thresholds`` are the shares of all users' costs from which on a user has level 1, 2 and so on, in ascending order.
    ``utilisation_floor`` is the part of a broker's slots below which every user has level 0. It is infinite with
    ``SchedulerImpl.DEFAULT``.
    """

    __slots__ = (
        "_backs_off",
        "_costs",
        "_counts",
        "_decayed",
        "_levels",
        "_lowest",
        "_raw",
        "_service_decayed",
        "_service_raw",
        "_settings",
        "_sums_us",
        "average_response_ms",
        "next_sweep_ms",
        "thresholds",
        "utilisation_floor",
    )

    def __init__(self, settings: FairCallQueue, *, now_ms: int) -> None:
        levels = settings.levels
        self._settings = settings
        self.thresholds = settings.thresholds
        self.utilisation_floor = settings.utilisation_floor
        if settings.scheduler_impl is SchedulerImpl.DEFAULT:
            self.utilisation_floor = math.inf
        self._lowest = levels - 1
        self.next_sweep_ms = now_ms + settings.period_ms
        self._costs: dict[str, _Cost] = {}
        self._decayed = self._raw = self._service_decayed = self._service_raw = 0
        self._levels: dict[str, int] = {}
        self._counts = [0] * levels
        self._sums_us = [0] * levels  # of response times
        self.average_response_ms = [0.0] * levels
        self._backs_off = [False] * levels

    def __len__(self) -> int:
        """Return the number of users that have a cost, including service users, which are always in level 0."""
        return len(self._costs)

    @property
    def totals(self) -> Totals:
        """The sums of the costs of all users."""
        return Totals(
            self._decayed / _SCALE, self._raw / _SCALE, self._service_decayed / _SCALE, self._service_raw / _SCALE
        )

    def level(self, identity: str, in_flight: int = 1, slots: int = 1) -> int:
        """Return the level of a user's next request to a broker.

        ``in_flight`` is how many of the broker's ``slots`` are in use. While the part of the slots in use is below
        ``utilisation_floor``, the level of every user is 0.
        """
        if in_flight < self.utilisation_floor * slots:
            return 0
        level = self._levels.get(identity)
        return self._level_of_new(identity) if level is None else level

    def charge(self, identity: str, cost: int) -> None:
        """Charge ``cost`` to the user ``identity``."""
        entry = self._costs.get(identity)
        if entry is None:
            entry = self._entry_of_new(identity)
        cost *= _SCALE
        entry.raw += cost
        entry.decayed += cost
        if entry.is_service_user:
            self._service_raw += cost
            self._service_decayed += cost
        else:
            self._raw += cost
            self._decayed += cost

    def add_response_time(self, level: int, *, queue_us: int, taken_us: int) -> None:
        """Record the response time of one request of ``level``, for the average response time of this level.

        ``queue_us`` and ``taken_us`` are the request's times in the queue and at the broker, in microseconds.
        """
        if level > self._lowest:
            level = self._lowest
        self._counts[level] += 1
        self._sums_us[level] += queue_us + taken_us

    def backs_off(self, level: int) -> bool:
        """Return whether requests of ``level`` are refused now, because a higher level is slow."""
        return self._backs_off[min(level, self._lowest)]

    def sweep_if_due(self, *, now_ms: int) -> bool:
        """Reduce all costs by the decay factor for each period that has ended. Returns False if none has ended.

        After a pause, the costs decay in one step, for a bounded number of periods.
        """
        settings = self._settings
        if now_ms < self.next_sweep_ms:
            return False
        periods = 1 + (now_ms - self.next_sweep_ms) // settings.period_ms
        self.next_sweep_ms += periods * settings.period_ms
        bound = max(_MOST_PERIODS_FORGOTTEN, _NO_PAUSE_MS // settings.period_ms)
        self._sweep(settings.decay_factor ** min(periods, bound))
        return True

    def sweep(self) -> None:
        """Reduce all costs by the decay factor now, and update the levels and the average response times."""
        self._sweep(self._settings.decay_factor)

    def take_over(self, other: "DecayScheduler") -> None:
        """Add the costs of ``other``, an earlier scheduler, to this new scheduler."""
        costs = other._costs  # noqa: SLF001  another one of the same class
        for identity, theirs in costs.items():
            entry = self._costs.get(identity)
            if entry is None:
                entry = self._entry_of_new(identity)
            entry.raw += theirs.raw
            entry.decayed += theirs.decayed
        self._decay(1.0)

    def standing(self, identity: str) -> Standing:
        """Return the cost of the user ``identity``, the user's share of all users' costs, and the user's level."""
        key = self._key(identity)
        entry = self._costs.get(key)
        decayed, raw = (entry.decayed, entry.raw) if entry else (0, 0)
        share = 0.0 if identity in self._settings.service_users else self._share(decayed)
        cached = self._levels.get(key)
        return Standing(identity, decayed / _SCALE, raw / _SCALE, share, self.level(identity), cached)

    def top(self, count: int) -> list[Standing]:
        """Return the costs and levels of up to ``count`` users with charges (``raw``), the most charges first."""
        heaviest = heapq.nlargest(count, list(self._costs.items()), key=lambda item: item[1].raw)
        return [self.standing(identity) for identity, entry in heaviest if entry.raw > 0]

    def _share(self, decayed: int) -> float:
        return decayed / self._decayed if self._decayed > 0 else 0.0

    def _level_of_share(self, share: float) -> int:
        return bisect_right(self.thresholds, share)

    def _level_of_new(self, identity: str) -> int:
        if identity in self._settings.service_users:
            return 0
        key = self._key(identity)
        level = self._levels.get(key)
        if level is None:
            entry = self._costs.get(key)
            level = self._level_of_share(self._share(entry.decayed) if entry else 0.0)
        return level

    def _key(self, identity: str) -> str:
        """Return the identity under which the cost of ``identity`` is kept.

        If ``identity`` is new and ``max_identities`` users already have a cost of their own, it is ``OVERFLOW``, which
        all further users share.
        """
        if identity in self._costs or identity in self._settings.service_users:
            return identity
        most = self._settings.max_identities
        return OVERFLOW if most is not None and len(self._costs) >= most else identity

    def _entry_of_new(self, identity: str) -> _Cost:
        key = self._key(identity)
        entry = self._costs.get(key)
        if entry is None:
            entry = self._costs[key] = _Cost(is_service_user=key in self._settings.service_users)
        return entry

    def _sweep(self, factor: float) -> None:
        self._decay(factor)
        self._average(factor)

    def _decay(self, factor: float) -> None:
        """Multiply all costs by ``factor``, forget users whose cost becomes 0, and update the levels of users."""
        decayed = raw = service_decayed = service_raw = 0
        gone = []
        for identity, entry in self._costs.items():
            entry.decayed = left = int(entry.decayed * factor)
            if entry.is_service_user:
                service_raw += entry.raw
                service_decayed += left
            else:
                raw += entry.raw
                decayed += left
            if not left:
                gone.append(identity)
        # The cost of a forgotten user stays in the raw total until the next sweep, as in Hadoop.
        for identity in gone:
            del self._costs[identity]
        self._decayed, self._raw = decayed, raw
        self._service_decayed, self._service_raw = service_decayed, service_raw
        # This is `_level_of_share` inlined for speed, because the event loop is blocked during a sweep.
        thresholds, total = self.thresholds, decayed if decayed > 0 else math.inf
        self._levels = {
            identity: 0 if entry.is_service_user else bisect_right(thresholds, entry.decayed / total)
            for identity, entry in self._costs.items()
        }

    def _average(self, factor: float) -> None:
        """Update the average response time of each level, and decide at which levels requests are refused."""
        for level, count in enumerate(self._counts):
            mean_ms = self._sums_us[level] / count / 1_000 if count >= _LEAST_RESPONSES else 0.0
            last_ms = self.average_response_ms[level]
            is_any = last_ms > _NOTHING_MS or mean_ms > _NOTHING_MS
            self.average_response_ms[level] = factor * last_ms + (1 - factor) * mean_ms if is_any else 0.0
        self._counts = [0] * self._settings.levels
        self._sums_us = [0] * self._settings.levels
        self._backs_off = self._back_off()

    def _back_off(self) -> list[bool]:
        settings = self._settings
        if not settings.backoff_responsetime_enable:
            return [False] * settings.levels
        most_ms = settings.backoff_responsetime_thresholds_ms
        slow = [average > most for average, most in zip(self.average_response_ms, most_ms, strict=True)]
        return [any(slow[:level]) for level in range(settings.levels)]
