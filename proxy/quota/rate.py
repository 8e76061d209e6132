"""Measures rates over sampled windows, as Kafka does since 3.8 (``SampledStat``, ``Rate``, ``Avg``).

A rate is measured over N windows of W milliseconds each. It is a ring of N + 1 slots, each with the sum of one window.
The current slot is only partly filled. As in Kafka, a measurement purges the ring, which means that it resets each slot
with no record in the last N * W milliseconds. The first record or measurement starts the first slot. Methods with
``peek`` in their names purge nothing.
"""

from collections.abc import Sequence
from math import ceil, nan
from typing import Final, NamedTuple

# A slot is three numbers: the value, and at these offsets the times of its start and of its last event.
_START_MS: Final = 1
_LAST_EVENT_MS: Final = 2
_SLOT_LENGTH: Final = 3


class Slot(NamedTuple):
    """What was recorded in one window: the sum, and the times of the window's start and of the last record."""

    value: int
    start_ms: int
    last_event_ms: int


class Rate:
    """Measures how many units are recorded per second, as Kafka does. The times of calls must not go backwards.

    Args:
        samples: N, the number of windows over which the rate is measured, at least 2.
        window_ms: W, the length of a window in milliseconds.

    Attributes:
        exact_before_ms: No slot can be purged before this time, so ``total`` is exact until then.
        total: The sum of all slots.
    """

    # A charge touches one slot instead of twelve, and takes 1 µs instead of 3. For this, three values are kept up to
    # date: the sum of all slots, the start of the oldest slot, and the first time at which a purge could reset a slot.
    # All slots are in one flat list. With 100,000 rates, one object for each slot would make a million objects for the
    # garbage collector, and take half as much memory again.
    __slots__ = (
        "_at",
        "_length",
        "_oldest_ms",
        "_samples",
        "_slots",
        "_span_ms",
        "_window_ms",
        "exact_before_ms",
        "total",
    )

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._span_ms = samples * window_ms
        self._length = (samples + 1) * _SLOT_LENGTH
        self._slots: list[int] = []
        self._at = 0  # the index at which the current slot begins
        self._oldest_ms = 0
        self.exact_before_ms = 0
        self.total = 0

    @property
    def samples(self) -> int:
        """The number of windows over which the rate is measured."""
        return self._samples

    @property
    def sample_ms(self) -> int:
        """The length of each window over which the rate is measured, in ms."""
        return self._window_ms

    def slots(self) -> list[Slot]:
        """Return what was recorded in each window, from the oldest to the current window."""
        following = self._at + _SLOT_LENGTH
        flat = self._slots[following:] + self._slots[:following]
        return [Slot(*flat[at : at + _SLOT_LENGTH]) for at in range(0, len(flat), _SLOT_LENGTH)]

    def restore(self, slots: Sequence[Slot]) -> None:
        """Replace all slots. There may be at most N + 1 slots, and the current slot must be the last."""
        self._slots = [number for slot in slots for number in slot]
        self._at = max(0, len(self._slots) - _SLOT_LENGTH)
        self._oldest_ms = min((slot.start_ms for slot in slots), default=0)
        self.exact_before_ms = min((slot.last_event_ms for slot in slots), default=-self._span_ms) + self._span_ms
        self.total = sum(slot.value for slot in slots)

    def record(self, value: int, *, now_ms: int) -> None:
        """Add ``value`` to the sum of the current window. A negative value takes back an earlier record."""
        slots = self._slots
        at = self._at
        if not slots:
            self._begin(now_ms)
        if now_ms - slots[at + _START_MS] >= self._window_ms:
            at = self._next_slot(now_ms)
        slots[at] += value
        slots[at + _LAST_EVENT_MS] = now_ms
        self.total += value

    def window_ms(self, *, now_ms: int) -> int:
        """Return the time in ms by which ``total`` is divided to get the rate. Purges the ring.

        The time is at least N - 1 windows, so that the first records do not give a much too high rate.
        """
        if now_ms >= self.exact_before_ms:
            self._purge(now_ms)
        # This is _elapsed_ms without a call. A client at its limit measures with each charge, and a call would nearly
        # double the time.
        elapsed_ms = now_ms - self._oldest_ms
        missing = self._samples - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return elapsed_ms if elapsed_ms > 0 else 1

    def measure(self, *, now_ms: int) -> float:
        """Return the rate in units per second. This first drops records that are too old to count."""
        window_ms = self.window_ms(now_ms=now_ms)  # must come first, because it removes old records from the total
        return self.total / (window_ms / 1000)

    def peek(self, *, now_ms: int, more: int = 0) -> float:
        """Return what ``measure`` would return if ``more`` were recorded first. Any thread may call this."""
        slots = self._slots[:]
        if more and slots and now_ms - slots[self._at + _START_MS] >= self._window_ms:
            # The record would start a new slot, which in a full ring replaces the oldest slot.
            following = (self._at + _SLOT_LENGTH) % self._length
            del slots[following : following + _SLOT_LENGTH]
        total = more
        oldest_ms = now_ms
        gone_ms = now_ms - self._span_ms
        numbers = iter(slots)
        for value, start_ms, last_event_ms in zip(numbers, numbers, numbers, strict=True):
            if last_event_ms > gone_ms:
                total += value
                if start_ms < oldest_ms:
                    oldest_ms = start_ms
        return total / (self._elapsed_ms(now_ms - oldest_ms) / 1000)

    def peek_sum(self, *, now_ms: int) -> int:
        """Return the sum of all records that are not too old to count. Changes nothing."""
        if now_ms < self.exact_before_ms:
            return self.total
        slots = self._slots
        return sum(
            slots[at]
            for at in range(0, len(slots), _SLOT_LENGTH)
            if now_ms - slots[at + _LAST_EVENT_MS] < self._span_ms
        )

    def room_at_ms(self, total: float, *, now_ms: int) -> int:
        """Return the earliest time at which the sum of the records is at most ``total`` if no more are added.

        Changes nothing.
        """
        counts = sorted(
            (self._slots[at + _LAST_EVENT_MS] + self._span_ms, self._slots[at])
            for at in range(0, len(self._slots), _SLOT_LENGTH)
        )
        left = self.peek_sum(now_ms=now_ms)
        for gone_ms, value in counts:
            if left <= total:
                break
            if gone_ms > now_ms:
                left -= value
                now_ms = gone_ms
        return now_ms if left <= total else now_ms + self._span_ms

    def over_until_ms(self, total: float, *, now_ms: int) -> int:
        """Return 0 if the sum of the records is not above ``total``, or the time when the last record stops counting.

        From that time on, the sum is certainly not above ``total``, unless more is recorded. Changes nothing.
        """
        if now_ms < self.exact_before_ms and self.total <= total:
            return 0
        counts = last_ms = 0
        for at in range(0, len(self._slots), _SLOT_LENGTH):
            value, _, last_event_ms = self._slots[at : at + _SLOT_LENGTH]
            if now_ms - last_event_ms < self._span_ms:
                counts += value
                last_ms = max(last_ms, last_event_ms)
        return last_ms + self._span_ms if counts > total else 0

    def _elapsed_ms(self, elapsed_ms: int) -> int:
        """Return the time in ms over which the rate is measured if the oldest window began ``elapsed_ms`` ago."""
        missing = self._samples - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, 1)

    def _begin(self, now_ms: int) -> None:
        self._slots += (0, now_ms, now_ms)
        self._oldest_ms = now_ms
        self.exact_before_ms = now_ms + self._span_ms

    def _next_slot(self, now_ms: int) -> int:
        slots = self._slots
        at = self._at = (self._at + _SLOT_LENGTH) % self._length
        if at == len(slots):
            slots += (0, now_ms, now_ms)
        else:
            self._reset(at, now_ms)
            self._oldest_ms = min(slots[_START_MS::_SLOT_LENGTH])
        return at

    def _purge(self, now_ms: int) -> None:
        slots = self._slots
        if not slots:
            self._begin(now_ms)
            return
        for at in range(0, len(slots), _SLOT_LENGTH):
            if now_ms - slots[at + _LAST_EVENT_MS] >= self._span_ms:
                self._reset(at, now_ms)
        self._oldest_ms = min(slots[_START_MS::_SLOT_LENGTH])
        self.exact_before_ms = min(slots[_LAST_EVENT_MS::_SLOT_LENGTH]) + self._span_ms

    def _reset(self, at: int, now_ms: int) -> None:
        self.total -= self._slots[at]
        self._slots[at : at + _SLOT_LENGTH] = (0, now_ms, now_ms)


class SimpleRate(Rate):
    """A rate over at least one window, where ``Rate`` uses at least N - 1 windows (Kafka's ``SimpleRate``)."""

    __slots__ = ()

    def window_ms(self, *, now_ms: int) -> int:
        """Return the time in ms by which ``total`` is divided to get the rate, at least one window. Purges the ring."""
        if now_ms >= self.exact_before_ms:
            self._purge(now_ms)
        return self._elapsed_ms(now_ms - self._oldest_ms)

    def not_above_at_ms(self, limit: float, *, more: int, now_ms: int) -> int:
        """Return the time when the rate falls to ``limit`` if ``more`` is recorded now and nothing afterwards.

        ``limit`` must be above 0. The caller must check again at the returned time, because a purge may raise the rate.
        """
        if now_ms >= self.exact_before_ms:
            self._purge(now_ms)
        total = self.total + more
        if total <= limit * self._window_ms / 1_000:
            return now_ms
        # The minimum comes before the rounding, because with a tiny limit the quotient may be infinite.
        return self._oldest_ms + ceil(min(total / limit * 1_000, self.exact_before_ms - self._oldest_ms))

    def _elapsed_ms(self, elapsed_ms: int) -> int:
        return max(elapsed_ms, self._window_ms)


class Average:
    """The mean of the values of the last minute, or NaN if there are none (Kafka's ``Avg``, with 2 samples of 30 s)."""

    __slots__ = ("_slots",)
    _SAMPLES = 2
    _WINDOW_MS = 30_000

    def __init__(self) -> None:
        # Each slot is (start_ms, last_event_ms, sum, count). The newest slot is the last.
        self._slots: tuple[tuple[int, int, int, int], ...] = ()

    def record(self, value: int, *, now_ms: int) -> None:
        """Include one value in the mean of the last minute."""
        slots = self._slots
        if slots and now_ms - slots[-1][0] < self._WINDOW_MS:
            start_ms, _, total, count = slots[-1]
            self._slots = (*slots[:-1], (start_ms, now_ms, total + value, count + 1))
        else:
            self._slots = (*slots[-self._SAMPLES :], (now_ms, now_ms, value, 1))

    def peek(self, *, now_ms: int) -> float:
        """Return the mean of the values of the last minute, or NaN if there are none. Changes nothing."""
        fresh = [slot for slot in self._slots if now_ms - slot[1] < self._SAMPLES * self._WINDOW_MS]
        count = sum(slot[3] for slot in fresh)
        return sum(slot[2] for slot in fresh) / count if count else nan
