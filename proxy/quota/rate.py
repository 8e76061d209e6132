"""Rates over sampled windows, as Kafka measures them (``SampledStat``, ``Rate``, ``Avg``; the form since 3.8).

A ring of N + 1 slots of W milliseconds each, the current one partly filled. Two things surprise, and both matter to
the millisecond: a measurement is not a pure read (it resets slots whose last event is N * W old, and a reset slot
starts at the time of the reading), and the first reading of an empty ring starts its clock. ``peek`` is the pure read.
"""

from collections.abc import Sequence
from math import ceil, nan
from typing import Final, NamedTuple

# What a slot is made of, at these offsets of its place.
_START_MS: Final = 1
_LAST_EVENT_MS: Final = 2
_SLOT_LENGTH: Final = 3


class Slot(NamedTuple):
    """What was recorded in one window."""

    value: int
    start_ms: int
    last_event_ms: int


class Rate:
    """Units per second. ``record`` and ``measure`` are Kafka's; all times of one rate must not go backwards.

    Args:
        samples: N, how many windows count; at least 2.
        window_ms: W, the length of one.

    Source: ``SampledStat`` and ``Rate`` of org.apache.kafka.common.metrics.stats.
    """

    # The sum, the oldest start and the first instant at which a purge could find something (before it the sum is exact)
    # are kept up to date, so that a charge touches one slot and not twelve: the difference between 3 µs and 1.
    # All slots are one flat list, value, start and last event of each in turn: with 100,000 rates, a list for each slot
    # would be a million objects for the garbage collector to walk, and half as much memory again.
    __slots__ = (
        "__weakref__",
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
        self._at = 0  # the current slot's place
        self._oldest_ms = 0
        self.exact_before_ms = 0
        self.total = 0

    @property
    def samples(self) -> int:
        """N."""
        return self._samples

    @property
    def sample_ms(self) -> int:
        """W."""
        return self._window_ms

    def slots(self) -> list[Slot]:
        """Return all slots, the current one last."""
        following = self._at + _SLOT_LENGTH
        flat = self._slots[following:] + self._slots[:following]
        return [Slot(*flat[at : at + _SLOT_LENGTH]) for at in range(0, len(flat), _SLOT_LENGTH)]

    def restore(self, slots: Sequence[Slot]) -> None:
        """Be as the rate was that had these ``slots``: at most N + 1, the current one last."""
        self._slots = [number for slot in slots for number in slot]
        self._at = max(0, len(self._slots) - _SLOT_LENGTH)
        self._oldest_ms = min((slot.start_ms for slot in slots), default=0)
        self.exact_before_ms = min((slot.last_event_ms for slot in slots), default=-self._span_ms) + self._span_ms
        self.total = sum(slot.value for slot in slots)

    def absorb(self, other: "Rate", *, now_ms: int) -> None:
        """Add what ``other``, of the same windows, has recorded and what still counts: both have measured one flow."""
        alive = [slot for rate in (self, other) for slot in rate.slots() if now_ms - slot.last_event_ms < self._span_ms]
        together: list[Slot] = []
        for slot in sorted(alive, key=lambda slot: slot.start_ms):
            last = together[-1] if together else None
            if last is None or slot.start_ms - last.start_ms >= self._window_ms:
                together.append(slot)
            else:
                last_event_ms = max(last.last_event_ms, slot.last_event_ms)
                together[-1] = Slot(last.value + slot.value, last.start_ms, last_event_ms)
        self.restore(together)

    def record(self, value: int, *, now_ms: int) -> None:
        """Add ``value`` at ``now_ms``; a negative one takes back what was recorded before."""
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
        """Return the time that the sum stands for, at least 1 ms. Purges, as in Kafka.

        N - 1 full windows are assumed to have passed even when the first record was a moment ago.
        """
        if now_ms >= self.exact_before_ms:
            self._purge(now_ms)
        # _stands_for_ms, written out: a client at its limit measures with each charge, and a call nearly doubles that.
        elapsed_ms = now_ms - self._oldest_ms
        missing = self._samples - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return elapsed_ms if elapsed_ms > 0 else 1

    def measure(self, *, now_ms: int) -> float:
        """Return the rate, units per second. Purges, as in Kafka."""
        window_ms = self.window_ms(now_ms=now_ms)  # first: it takes away from the total what is too old
        return self.total / (window_ms / 1000)

    def peek(self, *, now_ms: int, more: int = 0) -> float:
        """Return what ``measure`` would return were ``more`` recorded first. Changes nothing; safe from a thread."""
        slots = self._slots[:]
        if more and slots and now_ms - slots[self._at + _START_MS] >= self._window_ms:
            # The record would begin a slot, in the place of this one if the ring is full.
            following = (self._at + _SLOT_LENGTH) % self._length
            del slots[following : following + _SLOT_LENGTH]
        total = more
        oldest_ms = now_ms
        for at in range(0, len(slots), _SLOT_LENGTH):
            value, start_ms, last_event_ms = slots[at : at + _SLOT_LENGTH]
            if now_ms - last_event_ms < self._span_ms:
                total += value
                oldest_ms = min(oldest_ms, start_ms)
        return total / (self._stands_for_ms(now_ms - oldest_ms) / 1000)

    def peek_sum(self, *, now_ms: int) -> int:
        """Return what still counts of all that was recorded. Changes nothing."""
        if now_ms < self.exact_before_ms:
            return self.total
        slots = self._slots
        return sum(
            slots[at]
            for at in range(0, len(slots), _SLOT_LENGTH)
            if now_ms - slots[at + _LAST_EVENT_MS] < self._span_ms
        )

    def peek_window_ms(self, *, now_ms: int) -> int:
        """Return what ``window_ms`` would. Changes nothing."""
        slots = self._slots
        counts = [
            slots[at + _START_MS]
            for at in range(0, len(slots), _SLOT_LENGTH)
            if now_ms - slots[at + _LAST_EVENT_MS] < self._span_ms
        ]
        return self._stands_for_ms(now_ms - min(counts, default=now_ms))

    def room_at_ms(self, total: float, *, now_ms: int) -> int:
        """Return when no more than ``total`` will count, if nothing is recorded until then. Changes nothing."""
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
        """Return when the last that was recorded leaves the windows, if more than ``total`` still counts; else 0.

        Changes nothing. Where ``total`` is what the limit allows in N - 1 windows, no rate is over the limit then.
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

    def _stands_for_ms(self, elapsed_ms: int) -> int:
        """Return how long what was recorded counts as having taken, ``elapsed_ms`` after the oldest slot began."""
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
    """A rate that assumes nothing of the time before its oldest slot, but that one window has passed.

    So what is fresh is measured ten times as hard as by ``Rate``. Kafka's replication quotas use it.

    Source: ``SimpleRate`` of org.apache.kafka.common.metrics.stats.
    """

    __slots__ = ()

    def window_ms(self, *, now_ms: int) -> int:
        """Return the time that the sum stands for, at least a window. Purges, as in Kafka."""
        if now_ms >= self.exact_before_ms:
            self._purge(now_ms)
        return self._stands_for_ms(now_ms - self._oldest_ms)

    def not_above_at_ms(self, limit: float, *, more: int, now_ms: int) -> int:
        """Return when the rate will not be above ``limit``, above 0, were ``more`` recorded now and nothing after it.

        It may be later, when slots are dropped until then, and ``now_ms`` or before: it is not above it now.
        """
        if now_ms >= self.exact_before_ms:
            self._purge(now_ms)
        total = self.total + more
        if total <= limit * self._window_ms / 1_000:
            return now_ms
        # The lower of the two first: a limit may be so small that there is no number for the other.
        return self._oldest_ms + ceil(min(total / limit * 1_000, self.exact_before_ms - self._oldest_ms))

    def _stands_for_ms(self, elapsed_ms: int) -> int:
        return max(elapsed_ms, self._window_ms)


class Average:
    """The mean of what was recorded in the last two half minutes; NaN where nothing was.

    Kafka's ``throttle-time`` attribute: ``Avg`` with the registry's default of 2 samples of 30 s.
    """

    __slots__ = ("_slots",)
    _SAMPLES = 2
    _WINDOW_MS = 30_000

    def __init__(self) -> None:
        self._slots: tuple[tuple[int, int, int, int], ...] = ()  # start_ms, last_event_ms, sum, count; newest last

    def record(self, value: int, *, now_ms: int) -> None:
        """Add one value, at ``now_ms``."""
        slots = self._slots
        if slots and now_ms - slots[-1][0] < self._WINDOW_MS:
            start_ms, _, total, count = slots[-1]
            self._slots = (*slots[:-1], (start_ms, now_ms, total + value, count + 1))
        else:
            self._slots = (*slots[-self._SAMPLES :], (now_ms, now_ms, value, 1))

    def peek(self, *, now_ms: int) -> float:
        """Return the mean. Changes nothing."""
        fresh = [slot for slot in self._slots if now_ms - slot[1] < self._SAMPLES * self._WINDOW_MS]
        count = sum(slot[3] for slot in fresh)
        return sum(slot[2] for slot in fresh) / count if count else nan
