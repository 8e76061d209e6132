"""When each interval of the usage log began, in Unix time, of which no two are the same and none is before the last.

The length of an interval is measured on a clock that does not step. Where it begins the wall clock says, which may: a
step forward leaves a gap. After a step back the starts go on from where they were, at half the speed, until the wall
clock has caught up with them; until then intervals overlap. So a reader in order of time sees nothing come late, and
who adds up by the second sees at most twice of what there was, never an hour's worth in one.
"""

from typing import Final, NamedTuple

# The two clocks are read one after the other, rounded, and NTP slews one of them.
_JITTER_MS: Final = 20


class Span(NamedTuple):
    """An interval."""

    start_ms: int  # Unix time
    interval_ms: int  # at least 1


class Timeline:
    """Ends an interval and begins the next, which leaves no time out between them.

    Args:
        wall_ms: Unix time now.
        now_ms: The time on the clock that does not step.
    """

    def __init__(self, *, wall_ms: int, now_ms: int) -> None:
        self._end_ms = wall_ms  # of the last interval
        self._least_ms = 0  # that the next may start at
        self._now_ms = now_ms

    def start_after(self, start_ms: int) -> None:
        """Start no interval at ``start_ms`` or before it: such are in the log already."""
        self._least_ms = max(self._least_ms, start_ms + 1)

    def roll(self, *, wall_ms: int, now_ms: int) -> Span:
        """Return the interval that ends now."""
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
