"""Adds to each usage record the rates of the same client's neighbour records, right before and right after it.

A replay of the log uses these rates to guess when in its interval a record's bytes were sent. The records of all
clients that share a bucket (one quota) arrive in the order of their start times. So the rate after a record is known
once the client's next record has arrived, or once all later records start too late to be adjacent.

This module needs no Spark.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quota_proxy.pipeline.arrivals import LONGEST_SHAPED_MS, Rows, Whole

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
