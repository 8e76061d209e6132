"""Determines when each interval of the usage log started, in Unix time.

Each start is later than the one before, even if the wall clock steps. If the wall clock steps forward, there is a gap
between two intervals. If it steps back, each interval starts only half its length after the one before, so that
intervals overlap, until the wall clock has caught up.
"""

from typing import Final, NamedTuple

# The two clocks may differ by this much, because they are read one after the other and rounded, and NTP slews one.
_JITTER_MS: Final = 20


class Span(NamedTuple):
    """Holds the start and the length of one interval of the usage log."""

    start_ms: int  # Unix time
    interval_ms: int  # at least 1


class Timeline:
    """Divides time into the consecutive intervals of the usage log.

    In all methods, ``wall_ms`` is the current Unix time, and ``now_ms`` the current time of a monotonic clock.
    """

    def __init__(self, *, wall_ms: int, now_ms: int) -> None:
        self._end_ms = wall_ms  # the end of the last interval
        self._least_ms = 0  # the earliest start of the next interval
        self._now_ms = now_ms

    def start_after(self, start_ms: int) -> None:
        """Make all further intervals start after ``start_ms``, the start of the last interval in the log."""
        self._least_ms = max(self._least_ms, start_ms + 1)

    def roll(self, *, wall_ms: int, now_ms: int) -> Span:
        """End the current interval, begin the next, and return the interval that has ended."""
        interval_ms = max(now_ms - self._now_ms, 1)
        by_wall_ms = wall_ms - self._end_ms
        if abs(by_wall_ms - interval_ms) <= _JITTER_MS and by_wall_ms > 0:
            start_ms, interval_ms = self._end_ms, by_wall_ms
        else:
            start_ms = wall_ms - interval_ms
        start_ms = max(start_ms, self._least_ms)
        self._end_ms = start_ms + interval_ms
        self._least_ms = start_ms + max(interval_ms // 2, 1)
        self._now_ms = now_ms
        return Span(start_ms, interval_ms)
