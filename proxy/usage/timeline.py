"""The start of each interval of the usage log, in Unix time: strictly increasing, even if the wall clock steps.

The length of an interval is measured on a monotonic clock; its start comes from the wall clock. A step forward leaves a
gap. After a step back, starts continue from the last one at half speed until the wall clock catches up; until then
intervals overlap. So no record comes late for a reader in order of time, and a sum by the second is at most twice too
high.
"""

from typing import Final, NamedTuple

# The clocks are read one after the other and rounded, and NTP slews one of them.
_JITTER_MS: Final = 20


class Span(NamedTuple):
    """An interval."""

    start_ms: int  # Unix time
    interval_ms: int  # at least 1


class Timeline:
    """Ends an interval and begins the next without a gap. ``wall_ms`` is Unix time, ``now_ms`` a monotonic clock."""

    def __init__(self, *, wall_ms: int, now_ms: int) -> None:
        self._end_ms = wall_ms  # of the last interval
        self._least_ms = 0  # the earliest start of the next
        self._now_ms = now_ms

    def start_after(self, start_ms: int) -> None:
        """Start no interval at or before ``start_ms``, the last in the log."""
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
