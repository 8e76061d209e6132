"""Remembers when the clients of one bucket were throttled: since when, how much of the last minute, and how often.

A client at its limit is throttled again and again, with short pauses in which it sends. Throttles with such pauses
between them are one stretch, so that the client counts as throttled all along.
"""

from array import array
from typing import Final

# A stretch ends if no throttle begins within this time after the end of the one before.
LONGEST_PAUSE_MS: Final = 1_000
MINUTE_MS: Final = 60_000
# The throttle time of the last minute is kept in slots. The minute begins within a slot, of which a part counts.
_SLOT_MS: Final = 2_000
_SLOTS: Final = MINUTE_MS // _SLOT_MS + 1


class ThrottleHistory:
    """Remembers the throttles of one bucket, in about 300 bytes. A bucket has no history until it is throttled.

    Only the event loop's thread may call ``record``. Any thread may call the other methods, which change nothing.

    Args:
        now_ms: The time of the first throttle, which is recorded next.

    Attributes:
        since_ms: When the current stretch of throttles began, or the last stretch if that is over.
        held_until_ms: The end of the time for which the proxy holds requests. It is later than the end of the throttle
            time if a response announced only a part of a long wait.
    """

    __slots__ = ("_slot", "_slots", "_summed_ms", "_told_until_ms", "held_until_ms", "since_ms")

    def __init__(self, *, now_ms: int) -> None:
        self.since_ms = now_ms
        self.held_until_ms = now_ms
        self._told_until_ms = now_ms  # the end of the latest throttle time
        self._summed_ms = now_ms  # the slots contain the throttle time before this time
        self._slot = now_ms // _SLOT_MS  # the number of the newest slot, counted from time 0
        self._slots = array("H", [0] * _SLOTS)

    @property
    def until_ms(self) -> int:
        """The end of the latest throttle time, or of the time for which requests are held if that is later."""
        return max(self._told_until_ms, self.held_until_ms)

    def record(self, wait_ms: int, *, held_until_ms: int, now_ms: int) -> int:
        """Remember a throttle. Return by how many ms it lengthens the throttle time, in which overlaps count once.

        The times of calls must not go backwards.
        """
        if now_ms > self.until_ms + LONGEST_PAUSE_MS:
            self.since_ms = now_ms
        self._sum_up(now_ms)
        self.held_until_ms = held_until_ms
        before_ms, until_ms = self._told_until_ms, now_ms + wait_ms
        if until_ms <= before_ms:
            return 0
        self._told_until_ms = until_ms
        return until_ms - max(now_ms, before_ms)

    def is_throttled(self, *, now_ms: int) -> bool:
        """Return whether the stretch goes on: a wait runs, or has ended less than the longest pause ago."""
        return now_ms <= self.until_ms + LONGEST_PAUSE_MS

    def last_minute_ms(self, *, now_ms: int) -> int:
        """Return for how many ms of the last minute a client had to wait."""
        slots, newest, since_ms = self._slots[:], self._slot, now_ms - MINUTE_MS
        running_ms = max(0, min(now_ms, self.until_ms) - max(self._summed_ms, since_ms))
        first = since_ms // _SLOT_MS
        if newest < first:  # so nothing was throttled for a minute, or a long throttle time is running
            return running_ms
        # Most slots count, so it is faster to subtract those that do not.
        total_ms = sum(slots)
        for slot in range(newest - _SLOTS + 1, first):
            total_ms -= slots[slot % _SLOTS]
        if first > newest - _SLOTS:
            total_ms -= slots[first % _SLOTS] * (since_ms - first * _SLOT_MS) // _SLOT_MS
        return min(MINUTE_MS, total_ms + running_ms)

    def _sum_up(self, now_ms: int) -> None:
        """Add the throttle time before ``now_ms`` that is not in the slots yet."""
        end_ms = min(now_ms, self.until_ms)
        from_ms = max(self._summed_ms, now_ms - MINUTE_MS)
        while from_ms < end_ms:
            slot = from_ms // _SLOT_MS
            self._begin_slot(slot)
            to_ms = min(end_ms, (slot + 1) * _SLOT_MS)
            self._slots[slot % _SLOTS] += to_ms - from_ms
            from_ms = to_ms
        self._begin_slot(now_ms // _SLOT_MS)
        self._summed_ms = now_ms

    def _begin_slot(self, slot: int) -> None:
        for number in range(max(self._slot, slot - _SLOTS) + 1, slot + 1):
            self._slots[number % _SLOTS] = 0
        self._slot = slot
