"""Charges a bucket for many parts of its demand at once, up to the first part that may cause throttling.

This module needs no Spark, does no I/O and reads no clock. A *part* is a piece of a record, with an arrival time (see
``arrivals``). A *slot* is one of Kafka's sampled windows.

Without throttling, each part is sent when it arrives, so the arithmetic of ``proxy.quota`` can be done for many parts
at once, in arrays. The first part that may cause throttling, and the parts after it, are charged by ``proxy.quota``
itself. Before that, the bucket receives the state that it would have after all earlier parts. The results equal those
of ``proxy.quota`` to the last digit.
"""

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple, Protocol

import numpy as np

from kafka_quota_proxy.pipeline.arrivals import Amounts, Parts, Whole
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.rate import Slot
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

# An upper bound for the relative error of a sum of a million numbers with 16 digits.
_ROUNDING: Final = 1e-9
# At most this number of parts is taken from a token bucket one by one.
_FEW: Final = 64
# A margin for the rounding of one limit also suffices for limits that are higher by at most this factor.
_SAME_MARGIN: Final = 16


class UnthrottledCharger(Protocol):
    """Charges parts of a client's logged traffic to one bucket, many at once, as long as they cause no throttling."""

    def leave(self) -> None:
        """Prepare for more calls of ``charged``, after the caller has charged some parts to the bucket itself."""

    def charged(self, parts: Parts, begin: int, end: int) -> int:
        """Charge the parts from ``begin`` to before ``end``, but stop before the first that may cause throttling.

        Return how many parts were charged. If all were, the bucket object stays as it is. Otherwise the bucket object
        receives the state after these charges, so that the caller can charge the remaining parts to it.
        """


def unthrottled_chargers(*buckets: Bucket) -> list[UnthrottledCharger]:
    """Create a charger for each bucket. Call all of them with the same parts, since they share a cache."""
    chains, refills = _Chains(), _Refills()
    return [
        _Windows(bucket, chains) if bucket.token_bucket is None else _Tokens(bucket.token_bucket, bucket.limit, refills)
        for bucket in buckets
    ]


class _Events(NamedTuple):
    """The events from which a rate is computed, as arrays: first those of the recorded slots, then the new parts."""

    at_ms: Whole
    until: Amounts  # the sum of the amounts before each event, and the total at the end
    begins: Whole  # the indexes of events that begin a slot
    ends: Whole  # the indexes after the last event of each slot
    past: int  # the number of events of recorded slots
    most: Amounts  # for each slot, an upper bound of what counts at any of its events; infinite after a refund
    highest: float  # the highest of these bounds


class _Chains:
    """Caches how events are divided into slots, which is the same for buckets that differ only in their limits."""

    def __init__(self) -> None:
        self._parts: Parts | None = None
        self._found: dict[tuple[object, ...], _Events] = {}

    def events(self, slots: Sequence[Slot], slot_ms: int, span_ms: int, parts: Parts, begin: int, end: int) -> _Events:
        """Return the charges of the recorded windows ``slots`` (the oldest first) and of ``parts[begin:end]``.

        A slot counts for ``span_ms`` after its last event.
        """
        if parts is not self._parts:
            self._parts, self._found = parts, {}
        key = (begin, end, slot_ms, span_ms, *slots)
        found = self._found.get(key)
        if found is None:
            new = Parts(parts.at_ms[begin:end], parts.amount[begin:end])
            found = self._found[key] = _events(slots, slot_ms, span_ms, new)
        return found


def _events(slots: Sequence[Slot], slot_ms: int, span_ms: int, parts: Parts) -> _Events:
    # A recorded slot becomes two events, at its start and its last event. The first has the whole value of the slot.
    past = [event for value, *times in slots for event in zip(times, (value, 0), strict=True)]
    at_ms, amount = (
        np.concatenate((np.array(column, new.dtype), new))
        for column, new in zip(zip(*past, strict=True) if past else ((), ()), parts, strict=True)
    )
    following = np.searchsorted(at_ms, at_ms + slot_ms).data
    found, at, end = list[int](), 0, len(at_ms)
    while at < end:
        found.append(at)
        at = following[at]
    begins = np.array(found, np.int64)
    ends = np.append(begins[1:], end)
    until = np.concatenate((np.zeros(1, amount.dtype), np.cumsum(amount)))
    # At its start, a slot counts together with the slots before it. Its own parts may add up to the whole slot.
    most = until[ends] - until[begins[np.searchsorted(at_ms[ends - 1], at_ms[begins] - span_ms, "right")]]
    if (until[1:] < until[:-1]).any():  # a refund
        most = np.full(len(begins), inf)
    return _Events(at_ms, until, begins, ends, len(past), most, float(most.max()))


class _Windows:
    """Charges many parts of logged traffic at once to a bucket whose rate is measured in Kafka's sampled windows."""

    # Three rules determine a ``Rate`` with N windows of length W. A slot begins with the first event that is at least W
    # after the start of the previous slot. A slot counts while its last event is less than N * W ago. The time span of
    # the rate begins with the first slot that counts.

    def __init__(self, bucket: Bucket, chains: _Chains) -> None:
        self._bucket = bucket
        self._chains = chains
        rate = bucket.rate
        self._slot_ms = rate.sample_ms
        self._least = rate.samples - 1  # the windows that count as passed
        self._span_ms = rate.samples * rate.sample_ms
        self._room = bucket.limit * self._least * self._slot_ms / 1_000
        self._slots: list[Slot] = []  # the slots that may still count

    def leave(self) -> None:
        self._slots = _recorded(self._bucket.rate.slots())

    def charged(self, parts: Parts, begin: int, end: int) -> int:
        events = self._chains.events(self._slots, self._slot_ms, self._span_ms, parts, begin, end)
        stop = self._first_over(events)
        begun = int(np.searchsorted(events.begins, stop))
        kept = slice(max(0, begun - self._least - 2), begun)
        ends = np.minimum(events.ends[kept], stop)
        values = events.until[ends] - events.until[events.begins[kept]]
        columns = (values, events.at_ms[events.begins[kept]], events.at_ms[ends - 1])
        self._slots = [Slot(*slot) for slot in zip(*(column.tolist() for column in columns), strict=True)]
        if stop < len(events.at_ms):
            self._bucket.rate.restore(self._slots)
        return stop - events.past

    def _first_over(self, events: _Events) -> int:
        """Return the index in ``events`` of the first new charge that makes the rate exceed the limit.

        Return the number of all events if no charge does.
        """
        at_ms, until, begins, ends, past, most, highest = events
        # What counts is divided by at least N - 1 windows.
        if highest <= self._room:
            return len(at_ms)
        last_ms = at_ms[ends - 1]
        near = np.flatnonzero(np.repeat(most > self._room, ends - begins))
        near = near[near >= past]
        first = begins[np.searchsorted(last_ms, at_ms[near] - self._span_ms, "right")]
        elapsed_ms = at_ms[near] - at_ms[first]
        missing = np.maximum(0, self._least - elapsed_ms // self._slot_ms)
        window_ms = np.maximum(1, elapsed_ms + missing * self._slot_ms)
        over = near[(until[near + 1] - until[first]) / (window_ms / 1_000) > self._bucket.limit]
        return int(over[0]) if len(over) else len(at_ms)


def _recorded(slots: Sequence[Slot]) -> list[Slot]:
    """Return the sampled windows that contain recorded charges. A window that was reset contains none."""
    found = list[Slot]()
    for slot in reversed(slots):
        # A reset slot does not start before the slot that follows it in the ring.
        if found and slot.start_ms >= found[-1].start_ms:
            break
        found.append(slot)
    return found[::-1]


class _Refills:
    """Remembers parts for which a token bucket always had enough tokens, and was full before the last of them.

    Under a higher limit that is also so, if the bucket does not lack more tokens before the first part.
    """

    def __init__(self) -> None:
        self._parts: Parts | None = None
        self._found: dict[tuple[int, int, float], tuple[float, float]] = {}
        self._lowest = inf  # the last limit under which all parts left enough tokens

    def counted(
        self, parts: Parts, begin: int, end: int, *, limit: float, burst_s: float, missing: float
    ) -> tuple[int, int]:
        """Return the result of ``_counted`` for a token bucket that lacks ``missing`` tokens before the first part."""
        if parts is not self._parts:
            self._parts, self._found = parts, {}
        key, every = (begin, end, burst_s), (end - 1, end)
        lower = self._lowest
        is_new = key not in self._found and lower < limit
        if is_new and _counted(parts, begin, end, lower, burst_s, missing) == every:
            self._found[key] = lower, missing
        lower, most = self._found.get(key, (inf, 0.0))
        if lower <= limit <= _SAME_MARGIN * lower and missing <= most:
            return every
        found = _counted(parts, begin, end, limit, burst_s, missing)
        if found == every:
            self._found[key], self._lowest = (limit, missing), limit
        return found


def _counted(parts: Parts, begin: int, end: int, limit: float, burst_s: float, missing: float) -> tuple[int, int]:
    """Return the index of the last part before which a token bucket is certainly full, or else ``begin``.

    Also return the index of the first part that may take more tokens than are left, or else ``end``.
    """
    at_ms, amount = parts.at_ms[begin:end], parts.amount[begin:end].astype(float)
    burst = burst_s * limit
    until = np.cumsum(amount)
    came = limit * (at_ms - at_ms[0]) / 1_000
    level = until - amount - came
    lowest = level.copy()
    lowest[0] -= missing
    lowest = np.minimum.accumulate(lowest)
    owed = level - lowest  # before each part
    margin = _ROUNDING * (burst + np.abs(amount).sum() + came[-1])
    doubtful = np.flatnonzero(owed + amount > burst - margin)
    stop = int(doubtful[0]) if len(doubtful) else end - begin
    last = min(stop, end - begin - 1)
    full = np.flatnonzero(level[1 : last + 1] <= lowest[:last] - margin)
    return begin + (int(full[-1]) + 1 if len(full) else 0), begin + stop


class _Tokens:
    """Charges a token bucket, which is used in place of sampled windows (``shaping: paced``)."""

    # The number of tokens depends on each charge since the bucket was last full. So ``charged`` finds the last part
    # before which the bucket is certainly full, and takes the parts before it. It also takes the next parts if they are
    # few, and there are certainly enough tokens for each.

    def __init__(self, tokens: TokenBucket, limit: float, refills: _Refills) -> None:
        self._tokens = tokens
        self._limit = limit
        self._refills = refills
        self._burst_s = tokens.burst_ms / 1_000

    def leave(self) -> None:
        """Do nothing. All state is in the token bucket, so a charge by somebody else is already counted."""

    def charged(self, parts: Parts, begin: int, end: int) -> int:
        first_ms = int(parts.at_ms[begin])
        missing = self._burst_s * self._limit - self._tokens.peek(byte_rate_limit=self._limit, now_ms=first_ms)
        full, stop = self._refills.counted(parts, begin, end, limit=self._limit, burst_s=self._burst_s, missing=missing)
        if full > begin:
            self._tokens.refill(byte_rate_limit=self._limit, now_ms=int(parts.at_ms[full]))
        if stop - full > _FEW:
            return full - begin
        few = (column[full:stop].tolist() for column in parts)
        for at_ms, amount in zip(*few, strict=True):
            self._tokens.record(amount, byte_rate_limit=self._limit, now_ms=at_ms)
        return stop - begin
