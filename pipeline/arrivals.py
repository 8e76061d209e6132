"""Splits a bucket's usage records into parts, and gives each part an arrival time, for a replay of the usage log.

This module needs no Spark, does no I/O and reads no clock.

A record contains the total amount of an interval, but not how the amount was spread over the interval. So the amount is
split into one part for each request, but into no more than twenty parts, or one part per second if that is more. The
parts are spread evenly over the interval, unless the interval is at most two seconds long. Then the times are guessed
from the neighbour records of the same client:

* If a record has a higher rate than both neighbours, it is assumed that the client sent at the higher of their rates,
  and that the rest arrived at once in the middle. A longer burst would show in two records.
* If the rate of a record is between those of its neighbours, it is assumed that the client changed once from one rate
  to the other.

All of a part arrives at one moment, in the middle of the time that the part stands for. Arrays contain int64, or Python
integers where an int64 might overflow.
"""

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
# Bytes per millisecond.
Rates = NDArray[np.float64]
# int64, or Python integers where an int64 might overflow.
Amounts = NDArray[Any]

LEAST_PARTS: Final = 20
# In a longer interval, the time of a burst would be a guess.
LONGEST_SHAPED_MS: Final = 2_000
# The number of parts that are cut at once. Arrays of this size stay in the processor's cache.
_PARTS_AT_ONCE: Final = 1 << 17
# Below these bounds, the product of an amount and a number of parts fits into 63 bits, and so do the sums of a piece.
_MOST_AMOUNT: Final = 1 << 40
_MOST_PARTS: Final = 1 << 20


class Rows(NamedTuple):
    """Holds the columns of one bucket's usage records, ordered by ``start_ms``.

    ``before`` and ``after`` are the rates of the same client's records right before and right after each record. A rate
    is 0 if there is no such record, and infinite if it is not known whether there is one.
    """

    start_ms: Whole
    interval_ms: Whole
    amount: Whole
    requests: Whole
    before: Rates
    after: Rates


class Parts(NamedTuple):
    """Holds the arrival times and the amounts of the parts into which usage records were split, ordered by time."""

    at_ms: Whole
    amount: Amounts


NO_PARTS: Final = Parts(np.empty(0, np.int64), np.empty(0, np.int64))


def parts_of(requests: Whole, interval_ms: Whole) -> Whole:
    """Return the number of parts into which each usage record is split for a replay, at least 1."""
    return np.maximum(1, np.minimum(requests, np.maximum(LEAST_PARTS, interval_ms // 1_000)))


def parts(rows: Rows) -> Parts:
    """Split records into parts, in the order of arrival. The parts of a record add up to its amount."""
    counts = parts_of(rows.requests, rows.interval_ms)
    amount: Amounts = rows.amount
    if len(amount) and (np.abs(amount).max() > _MOST_AMOUNT or counts.max() > _MOST_PARTS):
        amount = amount.astype(object)
    if len(counts) and (counts == counts[0]).all() and (rows.interval_ms == rows.interval_ms[0]).all():
        return _sorted(*_of_one_shape(rows, amount, int(counts[0]), int(rows.interval_ms[0])))
    of = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(of)) - (np.cumsum(counts) - counts)[of]
    count, amount = counts[of], amount[of]
    at_ms = rows.start_ms[of] + rows.interval_ms[of] * (2 * nth + 1) // (2 * count)
    shaped = np.flatnonzero(_is_shaped(rows)[of])
    if len(shaped):
        some = Rows._make(column[of[shaped]] for column in rows)
        at_ms[shaped] = some.start_ms + _shaped(some, (2 * nth[shaped] + 1) / (2 * count[shaped]))
    return _sorted(at_ms, amount * (nth + 1) // count - amount * nth // count)


def _of_one_shape(rows: Rows, amount: Amounts, count: int, interval_ms: int) -> tuple[Whole, Amounts]:
    nth = np.arange(count)
    at_ms = rows.start_ms[:, None] + interval_ms * (2 * nth + 1) // (2 * count)
    shaped = np.flatnonzero(_is_shaped(rows))
    if len(shaped):
        some = Rows._make(column[shaped, None] for column in rows)
        at_ms[shaped] = some.start_ms + _shaped(some, (2 * nth + 1) / (2 * count))
    until = amount[:, None] * np.arange(count + 1) // count
    return at_ms.ravel(), np.diff(until, axis=1).ravel()


def _is_shaped(rows: Rows) -> NDArray[np.bool_]:
    is_known = (rows.interval_ms > 0) & (rows.interval_ms <= LONGEST_SHAPED_MS)
    # The interval counts as 1 ms at least, since infinity times 0 is no number.
    return is_known & (rows.amount > np.minimum(rows.before, rows.after) * np.maximum(1, rows.interval_ms))


def _shaped(rows: Rows, middle: NDArray[np.float64]) -> Whole:
    """Guess the arrival time of each part from the neighbour rates, in milliseconds from the start of the interval.

    ``middle`` is the fraction of the record's amount that arrives before the middle of the part.
    """
    higher = np.maximum(rows.before, rows.after)
    is_burst = rows.amount > higher * rows.interval_ms
    passed = rows.amount * middle
    with np.errstate(divide="ignore"):
        # The part's time at the first rate from the start, and at the second rate back from the end.
        first = passed / np.where(is_burst, higher, rows.before)
        second = rows.interval_ms - (rows.amount - passed) / np.where(is_burst, higher, rows.after)
    changed = np.where(rows.before < rows.after, np.minimum(first, second), np.maximum(first, second))
    found = np.where(is_burst, np.maximum(np.minimum(first, rows.interval_ms / 2), second), changed)
    return np.clip(found, 0, rows.interval_ms).astype(np.int64)


def _sorted(at_ms: Whole, amount: Amounts) -> Parts:
    if (at_ms[1:] < at_ms[:-1]).any():
        order = np.argsort(at_ms, kind="stable")
        return Parts(at_ms[order], amount[order])
    return Parts(at_ms, amount)


class ArrivalQueue:
    """Takes records in the order of ``start_ms``, and returns their parts in the order of arrival.

    The intervals of the records may overlap. ``active_ms`` is the time covered by any of them so far, and ``end_ms`` is
    the end of the last one.
    """

    def __init__(self) -> None:
        self.active_ms = 0
        self.end_ms = 0
        self._waiting = NO_PARTS

    def take(self, rows: Rows) -> list[Parts]:
        """Add usage records, and return the parts that arrive before any part of a record that may be added later."""
        if not len(rows.start_ms):
            return []
        self._add_active_time(rows)
        ends = np.cumsum(parts_of(rows.requests, rows.interval_ms)) // _PARTS_AT_ONCE
        cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(ends)]
        return [self._due(Rows._make(column[first:last] for column in rows)) for first, last in pairwise(cuts)]

    def rest(self) -> Parts:
        """Return the parts that were not returned yet. Must be called after all records have been added."""
        due, self._waiting = self._waiting, NO_PARTS
        return due

    def gaps(self, rows: Rows) -> tuple[Whole, Whole]:
        """Return the begin and the end of each time that no record covers, before each of the rows to add next."""
        before_ms = np.maximum.accumulate(np.concatenate(([self.end_ms], rows.start_ms + rows.interval_ms)))[:-1]
        is_gap = rows.start_ms > before_ms
        return before_ms[is_gap], rows.start_ms[is_gap]

    def _add_active_time(self, rows: Rows) -> None:
        ends_ms = rows.start_ms + rows.interval_ms
        before_ms = np.maximum.accumulate(np.concatenate(([self.end_ms], ends_ms)))
        self.active_ms += int(np.maximum(0, ends_ms - np.maximum(rows.start_ms, before_ms[:-1])).sum())
        self.end_ms = int(before_ms[-1])

    def _due(self, rows: Rows) -> Parts:
        new, waiting = parts(rows), self._waiting
        if len(waiting.at_ms):
            # Parts that arrive at the same time have the order of their records.
            new = _sorted(*(np.concatenate(columns) for columns in zip(waiting, new, strict=True)))
        due = int(np.searchsorted(new.at_ms, rows.start_ms[-1]))
        self._waiting = Parts(*(column[due:] for column in new))
        return Parts(*(column[:due] for column in new))


# The columns of a record.
_START, _CLIENT, _INTERVAL, _AMOUNT = range(4)
_NUMBERS: Final = 5
# Two records adjoin if the gap between them is below half an interval. An idle client has no record, and clocks differ
# by milliseconds.
_NEAR_MS: Final = LONGEST_SHAPED_MS // 2


class NeighbourRates:
    """Takes the records of one bucket in the order of ``start_ms``, and adds the neighbour rates to each."""

    def __init__(self) -> None:
        self._kept = np.empty((_NUMBERS, 0), np.int64)
        self._returned = 0  # the number of kept records that were returned already

    def take(self, start_ms: Whole, client: Whole, interval_ms: Whole, amount: Whole, requests: Whole) -> Rows:
        """Add records, and return the earliest ones for which both rates are now known.

        ``client`` contains, for each record, the number of its client.
        """
        new = np.stack((start_ms, client, interval_ms, amount, requests))
        self._kept = np.concatenate((self._kept, new), axis=1)
        return self._known(is_end=False)

    def rest(self) -> Rows:
        """Return the records that were added but not returned yet. Must be called after all records have been added."""
        return self._known(is_end=True)

    def _known(self, *, is_end: bool) -> Rows:
        kept, returned = self._kept, self._returned
        before, after, is_last = _rates(kept)
        starts_ms, intervals_ms = kept[_START], kept[_INTERVAL]
        ends_ms = starts_ms + intervals_ms
        until = len(starts_ms)
        if until > returned and not is_end:
            may_follow = 2 * (starts_ms[-1] - ends_ms) < intervals_ms
            unknown = np.flatnonzero(is_last & may_follow & (intervals_ms <= LONGEST_SHAPED_MS))
            until = min([until, *unknown[unknown >= returned][:1].tolist()])
        numbers = [*kept[:_CLIENT, returned:until], *kept[_CLIENT + 1 :, returned:until]]
        rows = Rows._make([*numbers, before[returned:until], after[returned:until]])
        if until:
            # Keep the records that may adjoin later ones, and all records after the first of these, to keep the order.
            next_ms = starts_ms[min(until, len(starts_ms) - 1)]
            first = min([until, *np.flatnonzero(ends_ms[:until] > next_ms - _NEAR_MS)[:1].tolist()])
            self._kept, self._returned = kept[:, first:], until - first
        return rows


def _rates(kept: Whole) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the rates before and after each record, and whether the record is the latest of its client."""
    client = kept[_CLIENT]
    order = np.argsort(client, kind="stable") if (client[1:] != client[:-1]).any() else np.arange(len(client))
    starts_ms, client, intervals_ms, amounts = kept[: _AMOUNT + 1, order]
    used = np.maximum(0, amounts) / np.maximum(1, intervals_ms)
    is_same = client[1:] == client[:-1]
    gaps_ms = 2 * np.abs(starts_ms[1:] - starts_ms[:-1] - intervals_ms[:-1])
    before, after, is_last = np.zeros(len(client)), np.zeros(len(client)), np.ones(len(client), np.bool_)
    before[order[1:]] = np.where(is_same & (gaps_ms < intervals_ms[1:]), used[:-1], 0.0)
    after[order[:-1]] = np.where(is_same & (gaps_ms < intervals_ms[:-1]), used[1:], 0.0)
    is_last[order[:-1]] = ~is_same
    return before, after, is_last
