"""One bucket under a limit: the log's demand, replayed by the proxy's own arithmetic. No Spark, no I/O, no clock.

A part of a record (``demand``) goes out when it has come and the bucket owes nothing, one after the other, on however
many connections they come; of a fetch as much as there is room for, and then the next piece. So a client that waits
sends later, and what it sends later is charged then, as under real limits; what it would have given up or sent in
larger batches is not known.

While nothing waits parts are taken many at a time (``quiet``), the others one by one.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.arrivals import ArrivalQueue, Parts, Rows
from kafka_quota_proxy.pipeline.unthrottled import UnthrottledCharger, unthrottled_chargers
from kafka_quota_proxy.proxy.quota.bucket import Bucket

_HOUR_MS: Final = 3_600_000
# How many parts are taken at once: few after a wait, for another one may be near, and then more.
_LEAST_AT_ONCE: Final = 1 << 10
_MOST_AT_ONCE: Final = 1 << 17
# Taking none costs as much as sending so many alone.
_LEAST_ALONE: Final = 64
_MOST_ALONE: Final = 1 << 12
# A broker gives one batch at least, however little a fetch may ask for. How large they are no log says.
_MOST_PIECES: Final = 4


@dataclass(slots=True)
class Hour:
    """What happened in an hour, by when it went out."""

    amount: int = 0
    delayed_amount: int = 0  # of it, what went out later than it came
    throttled_requests: int = 0  # behind which the bucket owed something
    throttle_time_ms: int = 0  # how long it did
    longest_delay_ms: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of a bucket's demand, by hour (its start, in ms)."""

    first_ms: int = 0
    end_ms: int = 0  # of the last record
    sent_ms: int = 0  # when the last part went out
    active_ms: int = 0  # how long there were records
    demand: int = 0
    hours: dict[int, Hour] = field(default_factory=dict)


class Replay:
    """Takes a bucket's records by ``start_ms``, and reckons as they come.

    Args:
        buckets: the bucket under each limit that is tried, with nothing recorded yet.
    """

    def __init__(self, *buckets: Bucket) -> None:
        self._arrivals = ArrivalQueue()
        self._senders = [_Sender(*both) for both in zip(buckets, unthrottled_chargers(*buckets), strict=True)]

    def take(self, rows: Rows) -> None:
        """Add records that do not begin before the last ones."""
        for parts in self._arrivals.take(rows):
            self._send(parts)

    def end(self) -> list[Outcome]:
        """Send what is left, and return all that happened under each limit."""
        self._send(self._arrivals.rest())
        line = self._arrivals
        return [
            Outcome(line.first_ms, line.end_ms, sender.sent_ms, line.active_ms, line.amount, sender.hours)
            for sender in self._senders
        ]

    def _send(self, parts: Parts) -> None:
        for sender in self._senders:
            sender.send(parts)


class _Sender:
    """Sends parts through one bucket."""

    def __init__(self, bucket: Bucket, charger: UnthrottledCharger) -> None:
        self.hours: dict[int, Hour] = {}
        self.sent_ms = 0
        self._bucket = bucket
        self._charger = charger
        self._is_unthrottled = True  # nothing waits, and the bucket itself is not up to date
        self._at_once = _LEAST_AT_ONCE
        self._alone = _LEAST_ALONE
        # Of parts that are sent alone: when the next one may go, and how many still do before it is quiet again.
        self._free_ms = 0
        self._left = 0

    def send(self, parts: Parts) -> None:
        """Send parts that come after all that were sent before."""
        at, end = 0, len(parts.at_ms)
        while at < end:
            if self._is_unthrottled:
                at += self._send_many(parts, at)
            else:
                at += self._send_alone(parts, at)

    def _send_many(self, parts: Parts, at: int) -> int:
        asked = min(self._at_once, len(parts.at_ms) - at)
        taken = self._charger.charged(parts, at, at + asked)
        if taken:
            self._went_out(Parts(*(column[at : at + taken] for column in parts)))
        if taken < asked:
            self._is_unthrottled = False
            self._alone = _LEAST_ALONE if taken >= _LEAST_ALONE else min(self._alone * 2, _MOST_ALONE)
            self._left = self._alone
        self._at_once = min(self._at_once * 4, _MOST_AT_ONCE) if taken * 2 >= asked else _LEAST_AT_ONCE
        return taken

    def _went_out(self, parts: Parts) -> None:
        """Count parts that went out as they came."""
        first_ms, last_ms = int(parts.at_ms[0]), int(parts.at_ms[-1])
        self.sent_ms = max(self.sent_ms, last_ms)
        hours = range(first_ms - first_ms % _HOUR_MS, last_ms + 1, _HOUR_MS)
        places = [*np.searchsorted(parts.at_ms, np.array(hours)).tolist(), len(parts.at_ms)]
        for hour_ms, begin, end in zip(hours, places, places[1:], strict=False):
            if begin < end:
                self._hour(hour_ms).amount += int(parts.amount[begin:end].sum())

    def _send_alone(self, parts: Parts, at: int) -> int:
        """Send parts one by one until nothing has waited for some time."""
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
        bucket, now_ms = self._bucket, max(came_ms, self._free_ms)
        bucket.silence(bucket.charge(amount, now_ms=now_ms), now_ms=now_ms)
        self.sent_ms = max(self.sent_ms, now_ms)
        hour = self._hour(now_ms - now_ms % _HOUR_MS)
        hour.amount += amount
        if now_ms > came_ms:
            hour.delayed_amount += amount
            hour.longest_delay_ms = max(hour.longest_delay_ms, now_ms - came_ms)
        self._left -= 1
        self._free_ms = now_ms
        if not bucket.is_free(0, now_ms=now_ms):
            self._free_ms = bucket.free_at_ms(now_ms=now_ms)
            hour.throttled_requests += 1
            hour.throttle_time_ms += self._free_ms - now_ms
            self._left = self._alone

    def _hour(self, hour_ms: int) -> Hour:
        return self.hours.setdefault(hour_ms, Hour())
