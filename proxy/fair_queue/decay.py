"""Each user's recent cost, and the level of its requests (``DecayRpcScheduler`` in Hadoop).

Each sweep multiplies a user's cost by the decay factor. Its share of the cost of all users, compared with a threshold
for each level, gives its level, which holds until the next sweep. A user that is new since the last sweep gets its
level from its cost so far. Time is an argument; nothing has to be woken between two sweeps.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

# The identity of all users beyond `max_identities`.
OVERFLOW: Final = "<shared>"
# An average this small becomes 0 in a window without responses (HADOOP-14166).
_NOTHING_MS: Final = 0.0001
# Sweeps are checked at each request and once a second. A pause is a longer time, however short the period is.
_NO_PAUSE_MS: Final = 2_000
# After so many sweeps no cost is left. Hadoop makes all the sweeps of a day in which its machine slept.
_MOST_SWEEPS_AT_ONCE: Final = 64
# Enough decay after a pause that still keeps heavy users and light users apart.
_MOST_PERIODS_FORGOTTEN: Final = 3


class Average(Enum):
    """How the mean of a window becomes part of the average response time; f is the decay factor."""

    HADOOP = "hadoop"  # f * last + mean: converges to mean / (1 - f), twice the true value
    NORMALISED = "normalised"  # f * last + (1 - f) * mean


class Pause(Enum):
    """The decay of costs when several periods have passed since the last sweep."""

    EVERY_PERIOD = "every-period"  # a sweep for each, one after the other
    ONCE = "once"  # one sweep with f^k for k periods, at most three or as many as fit in two seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayOptions:
    """The decay of costs, and the levels. The defaults are Hadoop's.

    Attributes:
        levels: the number of levels.
        period_ms: from one sweep to the next.
        decay_factor: f, the part of a cost that a sweep leaves; above 0 and below 1.
        thresholds: the share of all cost at which level 1, 2, ... begins; None: 2^i / 2^(n-1).
        service_users: users that are always in level 0. Their cost does not count in the shares of others.
        cost_scale: a factor for all costs, since a sweep truncates. With Hadoop's 1, the next sweep forgets a user
            with one request.
        max_identities: the number of users with a cost of their own, service users aside; all others share one. None:
            any number, as in Hadoop.
        pause: the decay after a pause.
        utilisation_floor: while less than this part of a broker's slots is in use, all users are in level 0; 0: off.
        is_backoff_by_response_time: a slow level makes requests back off.
        response_time_thresholds_ms: the average above which a level is slow; None: 10 s, 20 s, ...
        average: how the average is computed.
        is_backoff_inclusive: a slow level backs off itself, as in Hadoop's code; in its guide, only the levels below.
        min_samples: a level with fewer responses in a window counts as idle. Hadoop's 1: one slow request suffices.
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
    """Return Hadoop's thresholds: each level begins at twice the share of the one before it, the last at a half."""
    return tuple(2.0**level / 2.0 ** (levels - 1) for level in range(levels - 1))


def default_response_time_thresholds_ms(levels: int) -> tuple[int, ...]:
    """Return Hadoop's thresholds: 10 s more for each level."""
    return tuple(10_000 * (level + 1) for level in range(levels))


class Standing(NamedTuple):
    """A user's cost, share and level. Costs are as charged, without the scale.

    ``cached_level`` is the level from the last sweep, None for a user that is newer; ``level`` is that of its next
    request.
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
    """One user's cost: the whole, and what decay left of it."""

    __slots__ = ("decayed", "is_service_user", "raw")

    def __init__(self, *, is_service_user: bool) -> None:
        self.decayed = 0
        self.raw = 0
        self.is_service_user = is_service_user


class DecayScheduler:
    """The costs of all users of one listener, their levels, and the response times of each level.

    ``average_response_ms`` and ``last_window_counts`` are by level, as of the last sweep.

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
        # The share at which each level begins. If thresholds do not ascend, the lowest matching level counts.
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
        """Return the number of users with a cost, service users included."""
        return len(self._costs)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The share of all cost at which level 1, 2, ... begins, ascending."""
        return tuple(self._begins)

    @property
    def totals(self) -> Totals:
        """The cost of all users."""
        scale = self.options.cost_scale
        return Totals(
            self._decayed / scale, self._raw / scale, self._service_decayed / scale, self._service_raw / scale
        )

    @property
    def levels(self) -> dict[str, int]:
        """The levels from the last sweep, by identity; a copy."""
        return dict(self._levels)

    def level(self, identity: str, in_flight: int = 1, slots: int = 1) -> int:
        """Return the level of a user's request, while ``in_flight`` of its broker's ``slots`` are in use."""
        if in_flight < self._floor * slots:
            return 0
        level = self._levels.get(identity)
        return self._level_of_new(identity) if level is None else level

    def charge(self, identity: str, cost: int) -> None:
        """Add ``cost`` to the cost of ``identity``. Even a cost of 0 makes it known until the next sweep."""
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
        """Count one response of ``level`` with its time in the queue and at the broker, in microseconds.

        A level that no longer exists counts as the lowest. Hadoop cuts off fractions of milliseconds.
        """
        if level > self._lowest:
            level = self._lowest
        self._counts[level] += 1
        self._sums_us[level] += response_us

    def backs_off(self, level: int) -> bool:
        """Whether requests of ``level`` are refused because it, or a level above it, is slow."""
        return self._backs_off[min(level, self._lowest)]

    def sweep_if_due(self, *, now_ms: int) -> bool:
        """Sweep once for each period that is over; return whether any was. A clock that goes back has no effect."""
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
        """End one period for costs, levels and response times, whatever the time."""
        self._sweep(self.options.decay_factor)

    def take_over(self, other: "DecayScheduler") -> None:
        """Copy the costs of ``other`` into this new scheduler; Hadoop forgets them after a change.

        Response times are not copied, since the levels may differ.
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
        """Return the cost, the share and the level of ``identity``."""
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
        """Return the ``count`` users with the greatest raw cost above 0, the greatest first."""
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
        """Return the identity that is charged: its own, or the common one beyond ``max_identities``."""
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
        """Multiply all costs, forget users without a cost, and assign levels to the others."""
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
        # Their cost stays in the raw total until the next sweep, as in Hadoop.
        for identity in gone:
            del self._costs[identity]
        self._decayed, self._raw = decayed, raw
        self._service_decayed, self._service_raw = service_decayed, service_raw
        # `_level_of_share` inlined: the event loop is blocked meanwhile.
        begins, total = self._begins, decayed if decayed > 0 else math.inf
        self._levels = {
            identity: 0 if entry.is_service_user else bisect_right(begins, entry.decayed / total)
            for identity, entry in self._costs.items()
        }

    def _average(self, factor: float) -> None:
        """Add the response times of this window to the averages, and decide which levels back off."""
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
    """Return the thresholds; raise ``ValueError`` if an option is out of range."""
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
