"""Who uses how much of late, and so which level a user's requests get (``DecayRpcScheduler`` in Hadoop).

A user's cost is multiplied by the decay factor in every sweep. Its share of the cost of all users, compared with a
threshold for each level, gives its level, which holds until the next sweep; who came since the last one has no level
yet and gets it from what it has cost so far. The time comes as a number; between two sweeps nothing needs to be woken.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

# All users for whom there is no place of their own.
SHARED: Final = "<shared>"
# A window without slow responses ends what was left of earlier ones (HADOOP-14166).
_NOTHING_MS: Final = 0.0001
# A scheduler is looked at with each request and once a second. Only longer times are pauses, however short a period is.
_NO_PAUSE_MS: Final = 2_000
# Unlike Hadoop, a machine that slept for a day does not wake up to a day of sweeps, after which nothing is left anyway.
_MOST_SWEEPS_AT_ONCE: Final = 64
# After a pause: half of a half of a half is forgotten enough, while who was heavy is still told from who was not.
_MOST_PERIODS_FORGOTTEN: Final = 3


class Average(Enum):
    """How the response times of a window become part of their average; f is the decay factor."""

    HADOOP = "hadoop"  # f * last + mean: in the long run the mean / (1 - f), twice as much as is true
    NORMALISED = "normalised"  # f * last + (1 - f) * mean


class Pause(Enum):
    """What happens to costs when several periods have passed since the last sweep."""

    EVERY_PERIOD = "every-period"  # a sweep for each, one after the other
    ONCE = "once"  # one sweep with f^k, for k periods, three or those of two seconds at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayOptions:
    """How costs decay and what levels they make. The defaults are Hadoop's.

    Attributes:
        levels: how many.
        period_ms: from one sweep to the next.
        decay_factor: f, what is left of a cost after a sweep; above 0 and below 1.
        thresholds: the share of all cost from which on a user is in level 1, 2, ...; None: 2^i / 2^(n-1).
        service_users: always in level 0; what they cost is no part of what others have a share of.
        cost_scale: what a cost is multiplied by, since a sweep cuts fractions off. 1 in Hadoop: a user of one request
            is forgotten by the next sweep.
        max_identities: how many users are told apart, service users aside; None: any number, as in Hadoop. All
            others are one.
        pause: what happens after a pause.
        utilisation_floor: while a broker has less than this part of its slots in use everybody is in level 0; 0: never.
        is_backoff_by_response_time: a level that is slow makes others back off.
        response_time_thresholds_ms: from which average on a level is slow; None: 10 s, 20 s, ...
        average: how the average is made.
        is_backoff_inclusive: a slow level backs off itself, as in Hadoop's code; in its guide, only those below it do.
        min_samples: in a window with fewer responses a level counts as idle. 1 in Hadoop: one slow request will do.
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
    """Return Hadoop's: each level begins at twice the share of the one before it, the last one at a half."""
    return tuple(2.0**level / 2.0 ** (levels - 1) for level in range(levels - 1))


def default_response_time_thresholds_ms(levels: int) -> tuple[int, ...]:
    """Return Hadoop's: 10 s more for each level."""
    return tuple(10_000 * (level + 1) for level in range(levels))


class Standing(NamedTuple):
    """Why a user is in its level. Costs are in units of one request's cost, as charged.

    ``cached_level`` is the one of the last sweep, None for who came since; ``level`` the one of its next request.
    """

    identity: str
    decayed: float
    raw: float
    share: float
    level: int
    cached_level: int | None
    is_service_user: bool


class Totals(NamedTuple):
    """Sums over all users. ``raw`` falls when users are forgotten."""

    decayed: float = 0
    raw: float = 0
    service_decayed: float = 0
    service_raw: float = 0


class _Cost:
    """What one user has cost: all of it, and what is left of it."""

    __slots__ = ("decayed", "is_service_user", "raw")

    def __init__(self, *, is_service_user: bool) -> None:
        self.decayed = 0
        self.raw = 0
        self.is_service_user = is_service_user


class DecayScheduler:
    """The costs of all users of one listener, their levels, and how fast each level is served.

    Attributes:
        options: how it decides.
        next_sweep_ms: when the next sweep is due.
        average_response_ms: of each level, as of the last sweep.
        last_window_counts: how many responses each level had in the window that the last sweep ended.

    Raises:
        ValueError: an option out of its range.
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
        "_sums_us",
        "average_response_ms",
        "last_window_counts",
        "next_sweep_ms",
        "options",
    )

    def __init__(self, options: DecayOptions, *, now_ms: int) -> None:
        levels = options.levels
        self.options = options
        # Where each level begins. Thresholds need not ascend, and then the lowest level that matches counts.
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
        self._sums_us = [0] * levels
        self.average_response_ms = [0.0] * levels
        self.last_window_counts = [0] * levels
        self._backs_off = [False] * levels

    def __len__(self) -> int:
        """Return how many users have a cost, service users included."""
        return len(self._costs)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The share of all cost from which on a user is in level 1, 2, ..., ascending: a lower level wins."""
        return tuple(self._begins)

    @property
    def totals(self) -> Totals:
        """What all users have cost."""
        scale = self.options.cost_scale
        return Totals(
            self._decayed / scale, self._raw / scale, self._service_decayed / scale, self._service_raw / scale
        )

    @property
    def levels(self) -> dict[str, int]:
        """The levels that the last sweep gave, by identity; a copy."""
        return dict(self._levels)

    def level(self, identity: str, in_flight: int = 1, slots: int = 1) -> int:
        """Return the level of a request that ``identity`` now makes.

        Args:
            identity: whose it is.
            in_flight: how many of its broker's slots are in use.
            slots: how many there are.
        """
        if in_flight < self._floor * slots:
            return 0
        level = self._levels.get(identity)
        return self._level_of_new(identity) if level is None else level

    def charge(self, identity: str, cost: int) -> None:
        """Add ``cost`` to what ``identity`` has cost. One of 0 makes it known all the same, until the next sweep."""
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

    def add_response_time(self, level: int, response_us: int) -> None:
        """Count one response of ``level``: how long it was queued and served, in microseconds.

        A level that there is no more counts as the lowest. Unlike Hadoop, a millisecond begun is not cut off.
        """
        if level > self._lowest:
            level = self._lowest
        self._counts[level] += 1
        self._sums_us[level] += response_us

    def backs_off(self, level: int) -> bool:
        """Whether a request of ``level`` is to be refused because it, or what is above it, is served too slowly."""
        return self._backs_off[min(level, self._lowest)]

    def sweep_if_due(self, *, now_ms: int) -> bool:
        """Sweep if a period is over, for as many as are; say whether. A clock that goes back does nothing."""
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
        """Let one period pass for costs, levels and response times, whatever the time."""
        self._sweep(self.options.decay_factor)

    def take_over(self, other: "DecayScheduler") -> None:
        """Go on from the costs of ``other``, under the options of this scheduler, which is new.

        Unlike Hadoop, where all are new users after a change. Response times begin anew: their levels may be others.
        """
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
        """Return why ``identity`` is in its level."""
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
        """Return the ``count`` users of the greatest raw cost, the greatest first; none of no cost."""
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
        """Return under whose name ``identity`` is known: its own, or, where there is no place, that of all others."""
        if identity in self._costs or identity in self.options.service_users:
            return identity
        most = self.options.max_identities
        return SHARED if most is not None and len(self._costs) >= most else identity

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
        """Multiply all costs, forget who has none left, and give the others their levels."""
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
        # What they cost is still in the raw total, until the next sweep, as in Hadoop.
        for identity in gone:
            del self._costs[identity]
        self._decayed, self._raw = decayed, raw
        self._service_decayed, self._service_raw = service_decayed, service_raw
        # Written out: this is what all else stands still for.
        begins, total = self._begins, decayed if decayed > 0 else math.inf
        self._levels = {
            identity: 0 if entry.is_service_user else bisect_right(begins, entry.decayed / total)
            for identity, entry in self._costs.items()
        }

    def _average(self, factor: float) -> None:
        """Make the response times of this window part of the averages, and decide who backs off."""
        options = self.options
        weight = 1.0 - factor if options.average is Average.NORMALISED else 1.0
        for level, count in enumerate(self._counts):
            mean_ms = self._sums_us[level] / count / 1_000 if count >= max(1, options.min_samples) else 0.0
            last_ms = self.average_response_ms[level]
            is_any = last_ms > _NOTHING_MS or mean_ms > _NOTHING_MS
            self.average_response_ms[level] = factor * last_ms + weight * mean_ms if is_any else 0.0
        self.last_window_counts = self._counts
        self._counts = [0] * options.levels
        self._sums_us = [0] * options.levels
        self._backs_off = self._back_off()

    def _back_off(self) -> list[bool]:
        options = self.options
        if not options.is_backoff_by_response_time:
            return [False] * options.levels
        thresholds_ms = options.response_time_thresholds_ms or default_response_time_thresholds_ms(options.levels)
        slow = [average > most for average, most in zip(self.average_response_ms, thresholds_ms, strict=True)]
        return [any(slow[: level + options.is_backoff_inclusive]) for level in range(options.levels)]


def _checked_thresholds(options: DecayOptions) -> tuple[float, ...]:
    """Return the thresholds; raise ``ValueError`` if an option is out of its range."""
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
