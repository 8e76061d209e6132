"""The replay a second time, as literal as it is described: record by record, part by part, each charged by itself.

A record says how much came in an interval, not when. Its amount is cut into as many parts as it had requests (but no
more than one a second, or ten where that is fewer), spread evenly: one in the middle of each part of the interval.
A part goes out when it has come and a connection is free; the bucket is charged, and a wait that it answers holds that
connection. So a client that waits sends later, and what it sends later is charged then, as under real limits; what it
would have given up or sent in larger batches is not known.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from pipeline.demand import LEAST_PARTS, Rows
from pipeline.replay import Hour, Outcome
from proxy.quota.client import Bucket

_HOUR_MS: Final = 3_600_000
# Of more connections the waits are no longer told apart. A heap of a thousand costs little, and holds it all.
_MOST_CONNECTIONS: Final = 1_000


class Demand(NamedTuple):
    """A record, as far as it is demand. ``connections`` is at least 1."""

    start_ms: int
    interval_ms: int
    amount: int
    requests: int
    connections: int


def arrays(given: Sequence[Demand]) -> Rows:
    """Return records as ``Replay`` takes them."""
    return Rows(*(np.array([demand[at] for demand in given], np.int64) for at in range(len(Rows._fields))))


def parts_of(requests: int, interval_ms: int) -> int:
    """Return how many parts a record is cut into; at least 1."""
    return max(1, min(requests, max(LEAST_PARTS, interval_ms // 1_000)))


def parts(demand: Demand) -> Iterator[tuple[int, int]]:
    """Yield when each part of a record comes, and how much it is; all of it together is the amount."""
    count = parts_of(demand.requests, demand.interval_ms)
    for part in range(count):
        share = demand.amount * (part + 1) // count - demand.amount * part // count
        yield demand.start_ms + demand.interval_ms * (2 * part + 1) // (2 * count), share


class LiteralReplay:
    """Takes a bucket's records by ``start_ms``, and reckons as they come."""

    def __init__(self, bucket: Bucket) -> None:
        self.outcome = Outcome()
        self._bucket = bucket
        self._free_ms = [0]  # when each connection may send again: a heap
        self._waiting: list[tuple[int, int, int]] = []  # parts by when they come: a heap, for records overlap
        self._order = 0
        self._silent_until_ms = 0

    def take(self, demand: Demand) -> None:
        """Add a record that does not begin before the last one."""
        outcome, end_ms = self.outcome, demand.start_ms + demand.interval_ms
        if not self._order:
            outcome.first_ms = outcome.end_ms = demand.start_ms
        self._send_until(demand.start_ms)
        self._have(min(demand.connections, _MOST_CONNECTIONS))
        outcome.active_ms += max(0, end_ms - max(demand.start_ms, outcome.end_ms))
        outcome.end_ms = max(outcome.end_ms, end_ms)
        outcome.demand += demand.amount
        for at_ms, amount in parts(demand):
            self._order += 1
            heappush(self._waiting, (at_ms, self._order, amount))

    def end(self) -> Outcome:
        """Send what is left, and return all that happened."""
        self._send_until(None)
        return self.outcome

    def _have(self, connections: int) -> None:
        free_ms = self._free_ms
        if len(free_ms) > connections:
            # Those that wait longest are the ones that a client gives up.
            free_ms[:] = sorted(free_ms)[:connections]
        else:
            # Who comes anew sits out the wait that the bucket was given.
            free_ms += [self._bucket.silent_until_ms] * (connections - len(free_ms))
            heapify(free_ms)

    def _send_until(self, until_ms: int | None) -> None:
        """Send the parts that come before ``until_ms``; None: all."""
        waiting = self._waiting
        while waiting and (until_ms is None or waiting[0][0] < until_ms):
            came_ms, _, amount = heappop(waiting)
            self._send(amount, came_ms)

    def _send(self, amount: int, came_ms: int) -> None:
        # Times never go back: parts are taken in the order in which they come, and the first free connection takes one.
        now_ms = max(came_ms, heappop(self._free_ms))
        wait_ms = self._bucket.charge(amount, now_ms=now_ms)
        heappush(self._free_ms, now_ms + wait_ms)
        outcome = self.outcome
        outcome.sent_ms = max(outcome.sent_ms, now_ms)
        hour = outcome.hours.setdefault(now_ms - now_ms % _HOUR_MS, Hour())
        hour.amount += amount
        if now_ms > came_ms:
            hour.delayed_amount += amount
            hour.longest_delay_ms = max(hour.longest_delay_ms, now_ms - came_ms)
        if wait_ms > 0:
            self._bucket.throttled(wait_ms, now_ms=now_ms, is_enforced=True)
            hour.throttled_requests += 1
            hour.throttle_time_ms += wait_ms
            hour.silent_ms += max(0, now_ms + wait_ms - max(now_ms, self._silent_until_ms))
            self._silent_until_ms = max(self._silent_until_ms, now_ms + wait_ms)
