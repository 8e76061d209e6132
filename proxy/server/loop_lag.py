"""Measures how late the event loop runs its timers, as a histogram.

A timer that is late means that the loop was busy, or that the process did not get a core. Every client waits as long.
"""

import asyncio
from bisect import bisect_left
from time import monotonic_ns
from typing import Final

_MS: Final = 1_000_000
_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
BOUNDS_NS: Final = tuple(bound * _MS for bound in _BOUNDS_MS)
# Each waking of an idle process takes some 0.2 ms of CPU time, so this costs less than a thousandth of a core.
PERIOD_S: Final = 0.25


class LoopLag:
    """Holds the histogram of the lag of one event loop.

    For each bound in ``BOUNDS_NS``, ``counts`` contains how many timers were late by at most this time and by more than
    the previous bound. Its last number counts the timers that were late by more than the last bound.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.sum_ns = 0

    def observe(self, lag_ns: int) -> None:
        """Count a timer that was late by ``lag_ns``. A timer that is early counts as one without lag."""
        lag_ns = max(lag_ns, 0)
        self.counts[bisect_left(BOUNDS_NS, lag_ns)] += 1
        self.sum_ns += lag_ns

    async def measure(self) -> None:
        """Four times a second, observe how late a timer is, until cancelled."""
        period_ns = round(PERIOD_S * 1e9)
        while True:
            due_ns = monotonic_ns() + period_ns
            await asyncio.sleep(PERIOD_S)
            self.observe(monotonic_ns() - due_ns)
