"""One bucket under a limit: the log's demand, replayed by the proxy's own arithmetic. No Spark, no I/O, no clock.

A part of a record (``demand``) goes out when it has come and a connection is free; the bucket is charged, and a wait
that it answers holds that connection. So a client that waits sends later, and what it sends later is charged then, as
under real limits; what it would have given up or sent in larger batches is not known.

While nobody waits parts are taken many at a time (``quiet``), the others one by one.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from pipeline.demand import Due, Line, Parts, Rows
from pipeline.quiet import Quiet, quiet
from proxy.quota.client import Bucket

_HOUR_MS: Final = 3_600_000
# Of more connections the waits are no longer told apart. A heap of a thousand costs little, and holds it all.
_MOST_CONNECTIONS: Final = 1_000
# How many parts are taken at once: few after a wait, for another one may be near, and then more.
_LEAST_AT_ONCE: Final = 1 << 10
_MOST_AT_ONCE: Final = 1 << 17
# Taking none costs as much as sending so many alone.
_LEAST_ALONE: Final = 64
_MOST_ALONE: Final = 1 << 12


@dataclass(slots=True)
class Hour:
    """What happened in an hour, by when it went out."""

    amount: int = 0
    delayed_amount: int = 0  # of it, what went out later than it came
    throttled_requests: int = 0
    throttle_time_ms: int = 0  # the sum of all waits
    silent_ms: int = 0  # how long at least one connection was waiting
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
        self._line = Line()
        self._senders = [_Sender(*both) for both in zip(buckets, quiet(*buckets), strict=True)]

    def take(self, rows: Rows) -> None:
        """Add records that do not begin before the last ones."""
        for due in self._line.take(rows):
            self._send(due)

    def end(self) -> list[Outcome]:
        """Send what is left, and return all that happened under each limit."""
        self._send(self._line.rest())
        line = self._line
        return [
            Outcome(line.first_ms, line.end_ms, sender.sent_ms, line.active_ms, line.amount, sender.hours)
            for sender in self._senders
        ]

    def _send(self, due: Due) -> None:
        for sender in self._senders:
            sender.send(due)


class _Sender:
    """Sends parts through one bucket."""

    def __init__(self, bucket: Bucket, quiet: Quiet) -> None:
        self.hours: dict[int, Hour] = {}
        self.sent_ms = 0
        self._bucket = bucket
        self._quiet = quiet
        self._is_quiet = True  # nobody waits, and the bucket itself is not up to date
        self._at_once = _LEAST_AT_ONCE
        self._alone = _LEAST_ALONE
        # Of parts that are sent alone: when each connection may send again, a heap; when the last of them came; when
        # all waits are over; and how many are still to go before it is quiet again.
        self._free_ms: list[int] = []
        self._came_ms = 0
        self._silent_until_ms = 0
        self._left = 0

    def send(self, due: Due) -> None:
        """Send parts that come after all that were sent before."""
        at, end = 0, len(due.parts.at_ms)
        while at < end:
            if self._is_quiet:
                at += self._send_many(due, at)
            else:
                at += self._send_alone(due, at)

    def _send_many(self, due: Due, at: int) -> int:
        asked = min(self._at_once, len(due.parts.at_ms) - at)
        taken = self._quiet.charged(due.parts, at, at + asked)
        if taken:
            self._went_out(Parts(*(column[at : at + taken] for column in due.parts)))
        if taken < asked:
            self._is_quiet = False
            self._alone = _LEAST_ALONE if taken >= _LEAST_ALONE else min(self._alone * 2, _MOST_ALONE)
            self._left = self._alone
            self._came_ms = int(due.parts.at_ms[at + taken])
            begun = int(np.searchsorted(due.since_ms, self._came_ms, "right"))
            self._free_ms = [0] * min(int(due.connections[begun - 1]), _MOST_CONNECTIONS)
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

    def _send_alone(self, due: Due, at: int) -> int:
        """Send parts one by one until nobody has waited for some time."""
        begun = int(np.searchsorted(due.since_ms, self._came_ms, "right"))
        changes = list(zip(due.since_ms[begun:].tolist(), due.connections[begun:].tolist(), strict=True))[::-1]
        parts = (column[at : at + _MOST_ALONE].tolist() for column in due.parts)
        sent = 0
        for came_ms, amount in zip(*parts, strict=True):
            if self._left <= 0 and self._silent_until_ms <= came_ms:
                self._is_quiet = True
                self._quiet.leave()
                break
            while changes and changes[-1][0] <= came_ms:
                self._have(min(changes.pop()[1], _MOST_CONNECTIONS))
            self._send(amount, came_ms)
            self._came_ms = came_ms
            sent += 1
        return sent

    def _have(self, connections: int) -> None:
        free_ms = self._free_ms
        if len(free_ms) > connections:
            # Those that wait longest are the ones that a client gives up.
            free_ms[:] = sorted(free_ms)[:connections]
        else:
            # Who comes anew sits out the wait that the bucket was given.
            free_ms += [self._silent_until_ms] * (connections - len(free_ms))
            heapify(free_ms)

    def _send(self, amount: int, came_ms: int) -> None:
        # Times never go back: parts are taken in the order in which they come, and the first free connection takes one.
        now_ms = max(came_ms, heappop(self._free_ms))
        wait_ms = self._bucket.charge(amount, now_ms=now_ms)
        heappush(self._free_ms, now_ms + wait_ms)
        self.sent_ms = max(self.sent_ms, now_ms)
        hour = self._hour(now_ms - now_ms % _HOUR_MS)
        hour.amount += amount
        if now_ms > came_ms:
            hour.delayed_amount += amount
            hour.longest_delay_ms = max(hour.longest_delay_ms, now_ms - came_ms)
        self._left -= 1
        if wait_ms > 0:
            until_ms = now_ms + wait_ms
            hour.throttled_requests += 1
            hour.throttle_time_ms += wait_ms
            hour.silent_ms += max(0, until_ms - max(now_ms, self._silent_until_ms))
            self._silent_until_ms = max(self._silent_until_ms, until_ms)
            self._left = self._alone

    def _hour(self, hour_ms: int) -> Hour:
        return self.hours.setdefault(hour_ms, Hour())
