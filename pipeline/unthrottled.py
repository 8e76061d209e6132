"""How far nobody waits: many parts of a bucket's demand at once, in whole arrays. No Spark, no I/O, no clock.

While nobody waits, parts go out when they come, so that all of them are known beforehand, and the arithmetic of
``proxy.quota`` can be done for all of them together. It is done here only to find parts that no wait follows: the first
that a wait may follow, and what comes after it, is for ``proxy.quota`` itself, which is then put where it would be had
it been charged with all that came before. Both forms below are right to the last digit, not nearly right.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.arrivals import Amounts, Parts, Whole
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.rate import Slot
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

_NOWHERE: Final = np.empty(0, np.int64)
# Of sums of a million numbers, each right to 16 digits.
_ROUNDING: Final = 1e-9


class UnthrottledCharger(Protocol):
    """Charges parts that no wait follows."""

    def leave(self) -> None:
        """Hear that the bucket was charged by itself until now."""

    def charged(self, parts: Parts, begin: int, end: int) -> int:
        """Charge the first so many of ``parts[begin:end]``, which go out as they come; nobody waits after any of these.

        The bucket itself is charged with none of them. It is put where it would be before the next one is charged,
        if fewer than all were charged here.
        """


def unthrottled_chargers(*buckets: Bucket) -> list[UnthrottledCharger]:
    """Return for each bucket the form for the arithmetic that decides in it; all take the same parts."""
    chains, found = _Chains(), list[UnthrottledCharger]()
    for bucket in buckets:
        tokens = None if bucket.pacing_tokens is None else _Tokens(bucket.pacing_tokens, bucket.limit)
        found.append(
            _Windows(bucket, tokens, chains) if tokens is None or bucket.shaping is Shaping.SAMPLED else tokens
        )
    return found


class _Events(NamedTuple):
    """What is recorded in windows: the slots so far, as events, and parts behind them."""

    at_ms: Whole
    until: Amounts  # how much comes before each, and at the end all of it
    begins: Whole  # the places of events that begin a slot
    ends: Whole  # and those behind its last one
    past: int  # how many events the slots so far are


class _Chains:
    """Where slots begin depends on what was sent and not on limits: it is found once for all who have sent the same."""

    def __init__(self) -> None:
        self._parts: Parts | None = None
        self._found: dict[tuple[object, ...], _Events] = {}

    def events(self, slots: Sequence[Slot], slot_ms: int, parts: Parts, begin: int, end: int) -> _Events:
        """Return the events of ``slots``, the oldest first, and of ``parts[begin:end]``."""
        if parts is not self._parts:
            self._parts, self._found = parts, {}
        key = (begin, end, slot_ms, *slots)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _events(slots, slot_ms, Parts(parts.at_ms[begin:end], parts.amount[begin:end]))
        return found


def _events(slots: Sequence[Slot], slot_ms: int, parts: Parts) -> _Events:
    # A slot so far is two events, the first with all of it, so that slots begin again where they began.
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
    until = np.concatenate((np.zeros(1, amount.dtype), np.cumsum(amount)))
    return _Events(at_ms, until, begins, np.append(begins[1:], end), len(past))


class _Windows:
    """Kafka's sampled windows.

    As long as each event is charged, as here, a ``Rate`` at an instant is this and nothing else: a slot begins with
    the first event that is W or more after the beginning of the last one; those count whose last event is less than
    N * W ago; and the time that they stand for began with the first of these. What is reset on the way, and when,
    changes nothing: a slot that was reset starts when, or after, another one did that counts for longer.

    Where tokens let requests pass in front of them (``Bucket.pacing_tokens``), no more is taken than there are tokens
    for.
    """

    def __init__(self, bucket: Bucket, tokens: "_Tokens | None", chains: _Chains) -> None:
        self._bucket = bucket
        self._tokens = tokens
        self._chains = chains
        rate = bucket.rate
        self._slot_ms = rate.sample_ms
        self._least = rate.samples - 1  # windows that are taken to have passed
        self._span_ms = rate.samples * rate.sample_ms
        self._room = bucket.limit * self._least * self._slot_ms / 1_000
        self._slots: list[Slot] = []  # that may still count

    def leave(self) -> None:
        self._slots = _recorded(self._bucket.rate.slots())

    def charged(self, parts: Parts, begin: int, end: int) -> int:
        events = self._chains.events(self._slots, self._slot_ms, parts, begin, end)
        stop = self._first_over(events)
        if self._tokens is not None and stop > events.past:
            stop = events.past + self._tokens.charged(parts, begin, begin + stop - events.past)
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
        """Return the place of the first part behind which the rate is over the limit; the number of all if none is."""
        at_ms, until, begins, ends, past = events
        last_ms = at_ms[ends - 1]
        # Behind no event of a slot there counts more than what counts when it begins, and all of itself. The time it
        # stands for is N - 1 windows at least.
        most = until[ends] - until[begins[np.searchsorted(last_ms, at_ms[begins] - self._span_ms, "right")]]
        is_near = most > self._room
        if (until[1:] < until[:-1]).any():  # something was taken back
            is_near[:] = True
        near = np.flatnonzero(np.repeat(is_near, ends - begins)) if is_near.any() else _NOWHERE
        near = near[near >= past]
        first = begins[np.searchsorted(last_ms, at_ms[near] - self._span_ms, "right")]
        elapsed_ms = at_ms[near] - at_ms[first]
        missing = np.maximum(0, self._least - elapsed_ms // self._slot_ms)
        window_ms = np.maximum(1, elapsed_ms + missing * self._slot_ms)
        over = near[(until[near + 1] - until[first]) / (window_ms / 1_000) > self._bucket.limit]
        return int(over[0]) if len(over) else len(at_ms)


def _recorded(slots: Sequence[Slot]) -> list[Slot]:
    """Return those in which something was recorded and that were not reset since; of a rate charged as here."""
    found = list[Slot]()
    for slot in reversed(slots):
        # One that was reset starts no sooner than the one behind it in the ring, which was current then or came before.
        if found and slot.start_ms >= found[-1].start_ms:
            break
        found.append(slot)
    return found[::-1]


class _Tokens:
    """A token bucket: that of ``shaping: paced``, or the one in front of sampled windows.

    Its tokens are sums of fractions, and so depend on each charge since it was last full. So parts are taken as far as
    the last one before which it is full without doubt, if no wait is in doubt until then: what is owed is reckoned
    here with an error that is far below the margin.
    """

    def __init__(self, tokens: TokenBucket, limit: float) -> None:
        self._tokens = tokens
        self._limit = limit
        self._burst = tokens.burst_ms / 1_000 * limit

    def leave(self) -> None:
        """Nothing is kept here."""

    def charged(self, parts: Parts, begin: int, end: int) -> int:
        at_ms, amount = parts.at_ms[begin:end], parts.amount[begin:end].astype(float)
        first_ms = int(at_ms[0])
        until = np.cumsum(amount)
        came = self._limit * (at_ms - first_ms) / 1_000
        level = until - amount - came
        lowest = level.copy()
        lowest[0] -= self._burst - self._tokens.peek(byte_rate_limit=self._limit, now_ms=first_ms)
        lowest = np.minimum.accumulate(lowest)
        owed = level - lowest  # before each part
        margin = _ROUNDING * (self._burst + np.abs(amount).sum() + came[-1])
        doubtful = np.flatnonzero(owed + amount > self._burst - margin)
        stop = int(doubtful[0]) if len(doubtful) else len(at_ms) - 1
        full = np.flatnonzero(level[1 : stop + 1] <= lowest[:stop] - margin)
        if not len(full):
            return 0
        taken = int(full[-1]) + 1
        self._tokens.refill(byte_rate_limit=self._limit, now_ms=int(at_ms[taken]))
        return taken
