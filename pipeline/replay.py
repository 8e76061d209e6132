"""Computes how a bucket would have throttled the logged demand, with the proxy's own arithmetic.

This module needs no Spark, does no I/O and reads no clock.

The module ``arrivals`` cuts the records of the log into parts with arrival times. The parts are sent one after the
other, as if they came over one connection. Each part is sent when it has arrived and the bucket is not in debt. A part
of a fetch is sent in pieces, each as large as the bucket has room for. So a throttled client sends later and is charged
later, as under real limits. The replay cannot know which requests the client would have given up or put into one batch.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.arrivals import ArrivalQueue, Parts, Rows, Whole
from kafka_quota_proxy.pipeline.unthrottled_fast_path import UnthrottledCharger, unthrottled_chargers
from kafka_quota_proxy.proxy.quota.bucket import Bucket

_HOUR_MS: Final = 3_600_000
_FOREVER_MS: Final = 1 << 62
# The number of parts that are charged at once. It is small after a wait, since the next wait may be near, then grows.
_LEAST_AT_ONCE: Final = 1 << 10
_MOST_AT_ONCE: Final = 1 << 17
# The number of parts to send one by one before the next attempt to charge many at once, since a vain attempt costs
# about as much.
_LEAST_ALONE: Final = 64
_MOST_ALONE: Final = 1 << 12
# A broker returns at least one batch, whatever the limit of the fetch. The log does not say how large batches are.
_MOST_PIECES: Final = 4


@dataclass(slots=True)
class Hour:
    """The outcome of a replay in one hour, in bytes.

    A part, which is a piece of a record, counts in the hour in which it is sent.
    """

    amount: int = 0
    delayed_amount: int = 0  # the part that was sent later than it arrived
    throttled_requests: int = 0  # the parts after which the bucket was in debt
    throttle_time_ms: int = 0  # the time in debt
    longest_delay_ms: int = 0


@dataclass(slots=True)
class Outcome:
    """The outcome of a replay under one limit. ``hours`` maps the start of an hour (ms since the epoch) to the hour."""

    sent_ms: int = 0  # when the last part was sent
    busy_ms: int = 0  # the time that records cover, or in which the bucket was in debt
    hours: dict[int, Hour] = field(default_factory=dict)

    def total(self) -> Hour:
        """Return the outcome of all hours together."""
        found = Hour()
        for hour in self.hours.values():
            found.amount += hour.amount
            found.delayed_amount += hour.delayed_amount
            found.throttled_requests += hour.throttled_requests
            found.throttle_time_ms += hour.throttle_time_ms
            found.longest_delay_ms = max(found.longest_delay_ms, hour.longest_delay_ms)
        return found


class Replay:
    """Computes how the logged traffic of one client would have been throttled under several limits.

    Each of ``buckets`` has another limit, and nothing has been charged to it yet. Under a limit that delays a part by
    more than ``max_delay_ms``, the replay ends soon after that part, and so it does under all lower limits. The outcome
    shows the delay, and the rest is missing in it.
    """

    def __init__(self, *buckets: Bucket, max_delay_ms: float = inf) -> None:
        self._arrivals = ArrivalQueue()
        chargers = unthrottled_chargers(*buckets)
        self._senders = [_Sender(*both, max_delay_ms) for both in zip(buckets, chargers, strict=True)]
        self._from_highest = sorted(self._senders, key=lambda sender: -sender.limit)

    def take(self, rows: Rows) -> None:
        """Add usage records to the replay. They must not begin before the records that were added earlier."""
        gaps = self._arrivals.gaps(rows)
        for parts in self._arrivals.take(rows):
            self._send(parts)
        self._count_debts(*gaps)

    def end(self) -> list[Outcome]:
        """Finish the replay, and return the outcome under each limit, in the order of the buckets."""
        self._send(self._arrivals.rest())
        self._count_debts(np.array([self._arrivals.end_ms]), np.array([_FOREVER_MS]))
        active_ms = self._arrivals.active_ms
        return [Outcome(sender.sent_ms, active_ms + sender.debts.in_gaps_ms, sender.hours) for sender in self._senders]

    def _count_debts(self, begins_ms: Whole, ends_ms: Whole) -> None:
        """Count the time in debt within these gaps between records. All parts before the last gap's end were sent."""
        for sender in self._senders:
            sender.debts.count(begins_ms, ends_ms, until_ms=self._arrivals.end_ms)

    def _send(self, parts: Parts) -> None:
        # The replays under low limits take the most time. The first that ends early saves all those below it.
        delay_ms = 0
        for sender in self._from_highest:
            delay_ms = sender.send(parts, delay_ms)


class _Debts:
    """The times in which a bucket was in debt. ``in_gaps_ms`` is how much of them lies in gaps between records."""

    def __init__(self) -> None:
        self.in_gaps_ms = 0
        self._spans: list[list[int]] = []  # the begin and the end of each time in debt that may lie in a later gap

    def add(self, begin_ms: int, end_ms: int) -> None:
        """Add a time in debt, which must not begin before the end of the last one."""
        if self._spans and self._spans[-1][1] == begin_ms:
            self._spans[-1][1] = end_ms
        else:
            self._spans.append([begin_ms, end_ms])

    def count(self, begins_ms: Whole, ends_ms: Whole, *, until_ms: int) -> None:
        """Count the time in debt within these gaps. Later gaps begin at ``until_ms`` at the earliest."""
        if not self._spans:
            return
        spans = np.array(self._spans)
        before_ms = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0])))

        def in_debt_until(at_ms: Whole) -> Whole:
            begun = np.searchsorted(spans[:, 0], at_ms)
            left_ms = np.where(begun > 0, np.maximum(0, spans[begun - 1, 1] - at_ms), 0)
            return np.asarray(before_ms[begun] - left_ms)

        self.in_gaps_ms += int((in_debt_until(ends_ms) - in_debt_until(begins_ms)).sum())
        self._spans = [span for span in self._spans if span[1] > until_ms]


class _Sender:
    """Sends the parts of a replay through one bucket, and counts what is delayed and throttled."""

    def __init__(self, bucket: Bucket, charger: UnthrottledCharger, max_delay_ms: float) -> None:
        self.hours = defaultdict[int, Hour](Hour)
        self.sent_ms = 0
        self.debts = _Debts()
        self._bucket = bucket
        self._charger = charger
        self.limit = bucket.limit
        self._max_delay_ms = max_delay_ms
        self._longest_delay_ms = 0
        self._is_unthrottled = True  # no part waits, and the bucket itself is not up to date
        self._at_once = _LEAST_AT_ONCE
        self._alone = _LEAST_ALONE
        # While parts are sent alone, these are the time at which the next part may be sent, and the number of parts
        # before the next attempt to charge many at once.
        self._free_ms = 0
        self._left = 0

    def send(self, parts: Parts, delay_ms: int) -> int:
        """Send parts through the bucket. They must not arrive before the parts that were sent earlier.

        ``delay_ms`` is the longest delay under a higher limit. If it is too long, the replay ends with it. Return the
        longest delay under this limit.
        """
        at, end = 0, len(parts.at_ms)
        if delay_ms > max(self._max_delay_ms, self._longest_delay_ms):
            self._longest_delay_ms = delay_ms
            self.hours[self._free_ms - self._free_ms % _HOUR_MS].longest_delay_ms = delay_ms
        while at < end and self._longest_delay_ms <= self._max_delay_ms:
            if self._is_unthrottled:
                at += self._send_many(parts, at)
            else:
                at += self._send_alone(parts, at)
        return self._longest_delay_ms

    def _send_many(self, parts: Parts, at: int) -> int:
        tried = min(self._at_once, len(parts.at_ms) - at)
        taken = self._charger.charged(parts, at, at + tried)
        if taken:
            self._count_sent(Parts(*(column[at : at + taken] for column in parts)))
        if taken < tried:
            self._is_unthrottled = False
            self._alone = _LEAST_ALONE if taken >= _LEAST_ALONE else min(self._alone * 2, _MOST_ALONE)
            self._left = self._alone
        self._at_once = min(self._at_once * 4, _MOST_AT_ONCE) if taken * 2 >= tried else _LEAST_AT_ONCE
        return taken

    def _count_sent(self, parts: Parts) -> None:
        """Count parts of the logged traffic that were sent on arrival, without any wait."""
        first_ms, last_ms = int(parts.at_ms[0]), int(parts.at_ms[-1])
        self.sent_ms = max(self.sent_ms, last_ms)
        hours = range(first_ms - first_ms % _HOUR_MS, last_ms + 1, _HOUR_MS)
        places = [*np.searchsorted(parts.at_ms, np.array(hours)).tolist(), len(parts.at_ms)]
        for hour_ms, begin, end in zip(hours, places, places[1:], strict=False):
            if begin < end:
                self.hours[hour_ms].amount += int(parts.amount[begin:end].sum())

    def _send_alone(self, parts: Parts, at: int) -> int:
        """Send parts of the logged traffic one by one from the index ``at`` on, and return how many were sent.

        Return early after many parts in a row without throttling. The caller can then charge the parts that follow
        together, which is faster.
        """
        sent = 0
        for came_ms, amount in zip(*(column[at : at + _MOST_ALONE].tolist() for column in parts), strict=True):
            if self._left <= 0 and self._free_ms <= came_ms:
                self._is_unthrottled = True
                self._charger.leave()
                break
            self._send(amount, came_ms)
            sent += 1
        return sent

    def _send(self, amount: int, came_ms: int) -> None:
        bucket, least = self._bucket, -(-amount // _MOST_PIECES)
        while bucket.kind is QuotaKind.FETCH:
            room = bucket.fetch_room(now_ms=max(came_ms, self._free_ms))
            piece = max(least, bucket.fetch_cap(room))
            if amount <= piece:
                break
            self._pass(piece, came_ms)
            amount -= piece
        self._pass(amount, came_ms)

    def _pass(self, amount: int, came_ms: int) -> None:
        # This runs for each part that is sent alone. A call of max() or of a method would slow it down.
        bucket, delay_ms = self._bucket, self._free_ms - came_ms
        now_ms = self._free_ms if delay_ms > 0 else came_ms
        bucket.silence(bucket.charge(amount, now_ms=now_ms), now_ms=now_ms)
        self.sent_ms = now_ms
        hour = self.hours[now_ms - now_ms % _HOUR_MS]
        hour.amount += amount
        if delay_ms > 0:
            hour.delayed_amount += amount
            if delay_ms > hour.longest_delay_ms:
                hour.longest_delay_ms = delay_ms
                self._longest_delay_ms = max(self._longest_delay_ms, delay_ms)
        self._left -= 1
        self._free_ms = now_ms
        if not bucket.is_free(0, now_ms=now_ms):
            self._free_ms = bucket.free_at_ms(now_ms=now_ms)
            hour.throttled_requests += 1
            hour.throttle_time_ms += self._free_ms - now_ms
            self.debts.add(now_ms, self._free_ms)
            self._left = self._alone
