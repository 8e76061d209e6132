"""Searches for the lowest limit of an entity under which its clients are throttled little, and wait for a short time.

The first candidate is a percentile of the entity's rates, and the last is a limit that never throttles. Each is higher
than the one before by the same factor. One replay of the log tries them all. The lowest candidate that meets the bounds
is what the entity needs, and its limit is the need times the headroom. So each candidate is replayed with headroom too.

This module does no I/O and needs no Spark.
"""

from collections.abc import Mapping
from math import ceil, floor, log
from typing import Final, NamedTuple

# A lower rate would stop a client for a long time, and ``kafka-quota-proxy check`` warns of a forgotten unit.
LEAST_LIMIT: Final = 1_000
# A candidate is at least this factor above the one before, and there are at most so many steps. For a client with
# bursts, the last candidate is about ten times the first, so the need is found to 5 %.
_LEAST_FACTOR: Final = 1.05
_MOST_STEPS: Final = 48
# A need that is hardly above the percentile counts as the percentile. A steady client under a limit of its own rate is
# throttled now and then, and does not need more than the headroom.
_RESOLUTION: Final = 1.1

Entity = tuple[str, str, str]  # the kind, the user and the client-id

PERCENTILE: Final = "percentile"
SHARE: Final = "share"
DELAY: Final = "delay"
MINIMUM: Final = "minimum"


class Replayed(NamedTuple):
    """What a replay of the log under one limit found for an entity, on the broker where each is highest."""

    throttled_share: float
    longest_delay_ms: int


class Bounds(NamedTuple):
    """The highest share of its time in which a client may be throttled, and the longest delay of a request."""

    share: float
    delay_ms: int

    def broken(self, found: Replayed) -> str | None:
        """Return the bound that a limit exceeds, or None. A delay comes first, as a replay may end at the bound."""
        if found.longest_delay_ms > self.delay_ms:
            return DELAY
        return SHARE if found.throttled_share > self.share else None


class LimitSearch:
    """Searches for the limit of one entity.

    The caller replays the log under the limits ``to_replay``, and passes the outcomes to ``take``. Then ``need`` is the
    lowest limit that meets the bounds, and ``limit`` is the need times the headroom. ``decided_by`` is what keeps the
    need from being lower.
    """

    def __init__(self, percentile: int, never_throttles: int, *, headroom: float, bounds: Bounds) -> None:
        self._headroom, self._bounds = headroom, bounds
        self._first = first = max(1, rounded_up(percentile), floor(LEAST_LIMIT / headroom))
        self._first_by = PERCENTILE if first == rounded_up(percentile) else MINIMUM
        self.need, self.decided_by = first, self._first_by
        self._found: Mapping[int, Replayed] = {}
        self._candidates = self._between(max(first, never_throttles))
        self.to_replay = {*self._candidates, *map(self._limit_for, self._candidates)}

    @property
    def limit(self) -> int:
        """The limit of the entity: what it needs, times the headroom."""
        return self._limit_for(self.need)

    def _limit_for(self, need: int) -> int:
        return max(LEAST_LIMIT, rounded_up(need * self._headroom))

    def _between(self, last: int) -> list[int]:
        """Return the candidates from the first one to ``last``, both included."""
        first = self._first
        factor = max(_LEAST_FACTOR, (last / first) ** (1 / _MOST_STEPS))
        if self._headroom >= factor:
            # The headroom is a whole number of steps. So a candidate with headroom is a later candidate.
            steps = ceil(log(self._headroom) / log(factor))
            found = [rounded_up(first * self._headroom ** (step / steps)) for step in range(steps)]
            while found[-1] < last:
                found.append(self._limit_for(found[-steps]))
        else:
            found = [first]
            while found[-1] < last:
                found.append(rounded_up(found[-1] * factor))
        return sorted({one for one in found if one < last} | {last})

    def take(self, found: Mapping[int, Replayed]) -> None:
        """Take the outcomes of ``to_replay``, by limit."""
        self._found = found
        accepted = next((one for one in self._candidates if not self._broken(one)), self._candidates[-1])
        rejected = [one for one in self._candidates if one < accepted]
        self.need = accepted
        if rejected:
            self.decided_by = self._broken(rejected[-1]) or self.decided_by
        if accepted <= _RESOLUTION * self._first and not self._bounds.broken(found[self._limit_for(self._first)]):
            self.need, self.decided_by = self._first, self._first_by

    def _broken(self, need: int) -> str | None:
        """Return the bound that a limit of ``need`` exceeds, or that the limit with headroom exceeds."""
        limits = (need, self._limit_for(need))
        return next(filter(None, (self._bounds.broken(self._found[one]) for one in limits)), None)


def rounded_up(rate: float) -> int:
    """Return ``rate`` rounded up to three significant digits."""
    whole = ceil(rate)
    step: int = 10 ** max(0, len(str(whole)) - 3)
    return -(-whole // step) * step
