"""Keeps each user's recent cost, which decides the level of the user's requests (``DecayRpcScheduler`` in Hadoop).

The fair call queue serves level 0 most often. A user's cost is the sum of the costs of the user's requests. At the end
of each period, a sweep multiplies the cost of every user by the decay factor. It then compares each user's share of the
costs of all users with the thresholds of the levels, and so determines the user's level until the next sweep. The level
of a user that is new since the last sweep follows from the user's cost so far.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

# The identity that all users beyond `max_identities` share.
OVERFLOW: Final = "<shared>"
# An average this small becomes 0 in a window without responses (HADOOP-14166).
_NOTHING_MS: Final = 0.0001
# A shorter time without sweeps is no pause, however short the period is. An idle proxy checks once a second.
_NO_PAUSE_MS: Final = 2_000
# After this many sweeps no cost is left.
_MOST_SWEEPS_AT_ONCE: Final = 64
# The most periods of decay after a pause. More would make heavy users and light users alike.
_MOST_PERIODS_FORGOTTEN: Final = 3


class Average(Enum):
    """How an average response time follows from the one before and a period's mean; f is the decay factor."""

    HADOOP = "hadoop"  # f * last + mean of whole ms, which tends to mean / (1 - f): by default twice the true value
    NORMALISED = "normalised"  # f * last + (1 - f) * mean


class Pause(Enum):
    """How users' costs decay if several periods have passed since they last did, for example in an idle proxy."""

    EVERY_PERIOD = "every-period"  # one sweep for each period, one after the other
    ONCE = "once"  # one sweep with the factor f^k for k periods, where k is bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayOptions:
    """How users' costs decay, and how they determine the levels (priorities) of requests. The defaults are Hadoop's.

    Attributes:
        levels: The number of levels. Level 0 is served most often.
        period_ms: The time from one decay of all costs to the next.
        decay_factor: The part of each cost that remains after a decay, above 0 and below 1.
        thresholds: The shares of the costs of all users from which on a user has level 1, level 2 and so on. None gives
            ``default_thresholds``.
        service_users: Users that are always in level 0. Their cost does not count in the shares of other users.
        cost_scale: A factor for all costs. With Hadoop's 1, a decay truncates a cost of 1 to 0, and forgets its user.
        max_identities: How many users have a cost of their own. All other users share one cost. None sets no limit.
        pause: How costs decay when several periods have passed since they last did.
        utilisation_floor: While a broker has less than this part of the requests that it may have at a time, all
            requests have level 0.
        is_backoff_by_response_time: Whether requests are refused while their level or a higher one is slow.
        response_time_thresholds_ms: The average response time above which each level is slow. None gives 10 s, 20 s and
            so on.
        average: How the average response time of a level is computed.
        is_backoff_inclusive: Whether requests of the slow level itself are also refused, as in Hadoop's code. Otherwise
            only requests of the levels below it are refused, as in Hadoop's guide.
        min_samples: The number of responses that a level needs in a period. With fewer responses, its mean response
            time counts as 0. With Hadoop's 1, a single slow request makes a level slow.
    """

    levels: int = 4
    period_ms: int = 5_000
    decay_factor: float = 0.5
    thresholds: Sequence[float] | None = None
    service_users: frozenset[str] = frozenset()
    cost_scale: int = 1
    max_identities: int | None = None
    pause: Pause = Pause.EVERY_PERIOD
    utilisation_floor: float = 0.0
    is_backoff_by_response_time: bool = False
    response_time_thresholds_ms: Sequence[float] | None = None
    average: Average = Average.HADOOP
    is_backoff_inclusive: bool = True
    min_samples: int = 1


def default_thresholds(levels: int) -> tuple[float, ...]:
    """Return Hadoop's shares of all costs at which level 1 and so on begin: 1/8, 1/4 and 1/2 with four levels."""
    return tuple(2.0**level / 2.0 ** (levels - 1) for level in range(levels - 1))


def default_response_time_thresholds_ms(levels: int) -> tuple[int, ...]:
    """Return Hadoop's limits on the average response time: 10 s for level 0, 20 s for level 1, and so on."""
    return tuple(10_000 * (level + 1) for level in range(levels))


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
    is_service_user: bool


class Totals(NamedTuple):
    """The sums of all charges (``raw``) and of what decay has left of them (``decayed``), service users apart."""

    decayed: float = 0
    raw: float = 0
    service_decayed: float = 0
    service_raw: float = 0


class _Cost:
    """One user's charges (``raw``), and what decay has left of them (``decayed``), times ``cost_scale``."""

    __slots__ = ("decayed", "is_service_user", "raw")

    def __init__(self, *, is_service_user: bool) -> None:
        self.decayed = 0
        self.raw = 0
        self.is_service_user = is_service_user


class DecayScheduler:
    """Assigns each user of one listener a priority level by the cost of its requests, which decays over time.

    For each level, ``average_response_ms`` contains the average response time at the end of the last period, and
    ``last_window_counts`` contains the number of responses in that period.

    Raises:
        ValueError: If an option is out of its range.
    """

    __slots__ = (
        "_backs_off",
        "_begins",
        "_costs",
        "_counts",
        "_decayed",
        "_floor",
        "_levels",
        "_lowest",
        "_raw",
        "_scale",
        "_service_decayed",
        "_service_raw",
        "_sums",
        "_unit_us",
        "average_response_ms",
        "last_window_counts",
        "next_sweep_ms",
        "options",
    )

    def __init__(self, options: DecayOptions, *, now_ms: int) -> None:
        levels = options.levels
        self.options = options
        # The share of cost at which each level from 1 on begins. If a later threshold is smaller than an earlier one,
        # the smaller one counts for both levels.
        thresholds = _checked_thresholds(options)
        self._begins = [min(thresholds[level:]) for level in range(levels - 1)]
        self._floor = options.utilisation_floor
        self._lowest = levels - 1
        self._scale = options.cost_scale
        self.next_sweep_ms = now_ms + options.period_ms
        self._costs: dict[str, _Cost] = {}
        self._decayed = self._raw = self._service_decayed = self._service_raw = 0
        self._levels: dict[str, int] = {}
        self._counts = [0] * levels
        self._unit_us = 1_000 if options.average is Average.HADOOP else 1
        self._sums = [0] * levels  # of response times, in the unit
        self.average_response_ms = [0.0] * levels
        self.last_window_counts = [0] * levels
        self._backs_off = [False] * levels

    def __len__(self) -> int:
        """Return the number of users that have a cost, including service users, which are always in level 0."""
        return len(self._costs)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The shares of all users' costs from which on a user has level 1, 2 and so on, in ascending order."""
        return tuple(self._begins)

    @property
    def totals(self) -> Totals:
        """The sums of the costs of all users, divided by ``cost_scale``, the factor for all costs."""
        scale = self.options.cost_scale
        return Totals(
            self._decayed / scale, self._raw / scale, self._service_decayed / scale, self._service_raw / scale
        )

    @property
    def levels(self) -> dict[str, int]:
        """The level that the last decay of the costs gave each user, by identity. The dictionary is a copy."""
        return dict(self._levels)

    def level(self, identity: str, in_flight: int = 1, slots: int = 1) -> int:
        """Return the level of a user's next request to a broker.

        ``in_flight`` is how many of the broker's ``slots`` are in use. While the part of the slots in use is below
        ``utilisation_floor``, the level of every user is 0.
        """
        if in_flight < self._floor * slots:
            return 0
        level = self._levels.get(identity)
        return self._level_of_new(identity) if level is None else level

    def charge(self, identity: str, cost: int) -> None:
        """Charge ``cost`` to the user ``identity``."""
        entry = self._costs.get(identity)
        if entry is None:
            entry = self._entry_of_new(identity)
        cost *= self._scale
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

        ``queue_us`` and ``taken_us`` are the request's times in the queue and at the broker, in microseconds. With
        ``Average.HADOOP``, whole milliseconds of each are added.
        """
        if level > self._lowest:
            level = self._lowest
        self._counts[level] += 1
        self._sums[level] += queue_us // self._unit_us + taken_us // self._unit_us

    def backs_off(self, level: int) -> bool:
        """Return whether requests of ``level`` are refused now, because this or a higher level is slow."""
        return self._backs_off[min(level, self._lowest)]

    def sweep_if_due(self, *, now_ms: int) -> bool:
        """Reduce all costs by the decay factor for each period that has ended. Returns False if none has ended."""
        options = self.options
        if now_ms < self.next_sweep_ms:
            return False
        periods = 1 + (now_ms - self.next_sweep_ms) // options.period_ms
        self.next_sweep_ms += periods * options.period_ms
        is_once = options.pause is Pause.ONCE
        bound = _MOST_PERIODS_FORGOTTEN if is_once else _MOST_SWEEPS_AT_ONCE
        singly = 0 if is_once else min(periods, bound) - 1
        for _ in range(singly):
            self._sweep(options.decay_factor)
        counted = min(periods, max(bound, _NO_PAUSE_MS // options.period_ms))
        self._sweep(options.decay_factor ** (counted - singly))
        return True

    def sweep(self) -> None:
        """Reduce all costs by the decay factor now, and update the levels and the average response times."""
        self._sweep(self.options.decay_factor)

    def take_over(self, other: "DecayScheduler") -> None:
        """Add the costs of ``other``, an earlier scheduler, to this new scheduler."""
        scale = self.options.cost_scale / other.options.cost_scale
        costs = other._costs  # noqa: SLF001  another one of the same class
        for identity, theirs in costs.items():
            entry = self._costs.get(identity)
            if entry is None:
                entry = self._entry_of_new(identity)
            entry.raw += int(theirs.raw * scale)
            entry.decayed += int(theirs.decayed * scale)
        self._decay(1.0)

    def standing(self, identity: str) -> Standing:
        """Return the cost of the user ``identity``, the user's share of all users' costs, and the user's level."""
        key = self._key(identity)
        entry = self._costs.get(key)
        scale = self.options.cost_scale
        decayed, raw = (entry.decayed, entry.raw) if entry else (0, 0)
        is_service_user = identity in self.options.service_users
        share = 0.0 if is_service_user else self._share(decayed)
        cached = self._levels.get(key)
        return Standing(
            identity, decayed / scale, raw / scale, share, self.level(identity), cached, is_service_user=is_service_user
        )

    def top(self, count: int) -> list[Standing]:
        """Return the costs and levels of up to ``count`` users with charges (``raw``), the most charges first."""
        heaviest = heapq.nlargest(count, list(self._costs.items()), key=lambda item: item[1].raw)
        return [self.standing(identity) for identity, entry in heaviest if entry.raw > 0]

    def _share(self, decayed: int) -> float:
        return decayed / self._decayed if self._decayed > 0 else 0.0

    def _level_of_share(self, share: float) -> int:
        return bisect_right(self._begins, share)

    def _level_of_new(self, identity: str) -> int:
        if identity in self.options.service_users:
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
        if identity in self._costs or identity in self.options.service_users:
            return identity
        most = self.options.max_identities
        return OVERFLOW if most is not None and len(self._costs) >= most else identity

    def _entry_of_new(self, identity: str) -> _Cost:
        key = self._key(identity)
        entry = self._costs.get(key)
        if entry is None:
            entry = self._costs[key] = _Cost(is_service_user=key in self.options.service_users)
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
        begins, total = self._begins, decayed if decayed > 0 else math.inf
        self._levels = {
            identity: 0 if entry.is_service_user else bisect_right(begins, entry.decayed / total)
            for identity, entry in self._costs.items()
        }

    def _average(self, factor: float) -> None:
        """Update the average response time of each level, and decide at which levels requests are refused."""
        options = self.options
        weight, per_ms = 1.0 - factor if options.average is Average.NORMALISED else 1.0, 1_000 // self._unit_us
        for level, count in enumerate(self._counts):
            mean_ms = self._sums[level] / count / per_ms if count >= max(1, options.min_samples) else 0.0
            last_ms = self.average_response_ms[level]
            is_any = last_ms > _NOTHING_MS or mean_ms > _NOTHING_MS
            self.average_response_ms[level] = factor * last_ms + weight * mean_ms if is_any else 0.0
        self.last_window_counts = self._counts
        self._counts = [0] * options.levels
        self._sums = [0] * options.levels
        self._backs_off = self._back_off()

    def _back_off(self) -> list[bool]:
        options = self.options
        if not options.is_backoff_by_response_time:
            return [False] * options.levels
        thresholds_ms = options.response_time_thresholds_ms or default_response_time_thresholds_ms(options.levels)
        slow = [average > most for average, most in zip(self.average_response_ms, thresholds_ms, strict=True)]
        return [any(slow[: level + options.is_backoff_inclusive]) for level in range(options.levels)]


def _checked_thresholds(options: DecayOptions) -> tuple[float, ...]:
    """Return the cost shares at which level 1 and so on begin. Raises ``ValueError`` if an option is out of range."""
    levels = options.levels
    if levels < 1:
        raise ValueError(f"there must be a level, not {levels}")
    if options.period_ms <= 0:
        raise ValueError(f"a period must be longer than {options.period_ms} ms")
    if not 0 < options.decay_factor < 1:
        raise ValueError(f"a decay factor must be above 0 and below 1, not {options.decay_factor}")
    if options.cost_scale < 1:
        raise ValueError(f"a cost scale must be at least 1, not {options.cost_scale}")
    times_ms = options.response_time_thresholds_ms
    if times_ms is not None and (len(times_ms) != levels or min(times_ms) <= 0):
        raise ValueError(f"{levels} levels need as many response time thresholds above 0, not {tuple(times_ms)}")
    thresholds = default_thresholds(levels) if options.thresholds is None else tuple(options.thresholds)
    if len(thresholds) != levels - 1:
        raise ValueError(f"{levels} levels need {levels - 1} thresholds, not {len(thresholds)}")
    return thresholds
