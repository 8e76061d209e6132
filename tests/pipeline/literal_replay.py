"""A simple replay, which takes record by record and part by part. It is an oracle for the product's replay.

A record is cut into parts, and the neighbour records determine their arrival times (``pipeline.arrivals``). A part goes
out when it has arrived and the throttle time of the bucket is over. A fetch goes out in pieces as large as the room
under the limit, but at least a quarter of the part. A client that waits sends its later requests later.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

import numpy as np

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.arrivals import LEAST_PARTS, LONGEST_SHAPED_MS, Rows
from kafka_quota_proxy.pipeline.replay import Hour, Outcome
from kafka_quota_proxy.proxy.quota.bucket import Bucket

_HOUR_MS: Final = 3_600_000
_MOST_PIECES: Final = 4


class Demand(NamedTuple):
    """The fields of a record that describe a client's demand. Rates are in bytes per millisecond."""

    start_ms: int
    interval_ms: int
    amount: int
    requests: int
    before: float = inf
    after: float = inf


def arrays(given: Sequence[Demand]) -> Rows:
    """Return the records as the arrays that ``Replay`` takes."""
    columns = list(zip(*given, strict=True)) if given else [()] * len(Demand._fields)
    whole, rates = columns[:-2], columns[-2:]
    return Rows._make([np.array(one, np.int64) for one in whole] + [np.array(one, np.float64) for one in rates])


def beside(given: Sequence[Demand]) -> list[Demand]:
    """Return the records of a client with the rates of their neighbour records."""
    found = []
    for demand, last, following in zip(given, [None, *given], [*given[1:], None], strict=False):
        before = after = 0.0
        if last is not None and 2 * abs(demand.start_ms - last.start_ms - last.interval_ms) < demand.interval_ms:
            before = max(0, last.amount) / max(1, last.interval_ms)
        end_ms = demand.start_ms + demand.interval_ms
        if following is not None and 2 * abs(following.start_ms - end_ms) < demand.interval_ms:
            after = max(0, following.amount) / max(1, following.interval_ms)
        found.append(demand._replace(before=before, after=after))
    return found


def parts_of(requests: int, interval_ms: int) -> int:
    """Return the number of parts into which a record is cut, at least 1."""
    return max(1, min(requests, max(LEAST_PARTS, interval_ms // 1_000)))


def parts(demand: Demand) -> Iterator[tuple[int, int]]:
    """Yield the arrival time and the amount of each part of a record."""
    count = parts_of(demand.requests, demand.interval_ms)
    for part in range(count):
        share = demand.amount * (part + 1) // count - demand.amount * part // count
        yield demand.start_ms + _after_ms(demand, part, count), share


def _after_ms(demand: Demand, part: int, count: int) -> int:
    """Return the time from the start of the record to the arrival of a part."""
    amount, interval_ms, before, after = float(demand.amount), demand.interval_ms, demand.before, demand.after
    if not 0 < interval_ms <= LONGEST_SHAPED_MS or amount <= min(before, after) * interval_ms:
        return interval_ms * (2 * part + 1) // (2 * count)
    passed = amount * ((2 * part + 1) / (2 * count))
    is_burst = amount > max(before, after) * interval_ms
    if is_burst:
        before = after = max(before, after)
    first = passed / before if before else inf
    second = interval_ms - (amount - passed) / after if after else -inf
    if is_burst:
        found = max(min(first, interval_ms / 2), second)
    else:
        found = min(first, second) if before < after else max(first, second)
    return int(min(max(found, 0), interval_ms))


def covered_ms(spans: Iterable[tuple[int, int]]) -> int:
    """Return how long any of the times (begin, end) lasts, where they may overlap."""
    found = until_ms = 0
    for begin_ms, end_ms in sorted(spans):
        found += max(0, end_ms - max(begin_ms, until_ms))
        until_ms = max(until_ms, end_ms)
    return found


class LiteralReplay:
    """Charges the records of a bucket one after the other, in the order of ``start_ms``."""

    def __init__(self, bucket: Bucket) -> None:
        self.outcome = Outcome()
        self._bucket = bucket
        self._waiting: list[tuple[int, int, int]] = []  # a heap of parts by arrival time, because records overlap
        self._order = 0
        self._free_ms = 0  # the time from which the next part may go out
        self._busy: list[tuple[int, int]] = []  # the times of records and of debt

    def take(self, demand: Demand) -> None:
        """Add a record, which must not begin before the previous one."""
        self._send_until(demand.start_ms)
        self._busy.append((demand.start_ms, demand.start_ms + demand.interval_ms))
        for at_ms, amount in parts(demand):
            self._order += 1
            heappush(self._waiting, (at_ms, self._order, amount))

    def end(self) -> Outcome:
        """Send the remaining parts, and return the outcome."""
        self._send_until(None)
        self.outcome.busy_ms = covered_ms(self._busy)
        return self.outcome

    def _send_until(self, until_ms: int | None) -> None:
        """Send the parts that arrive before ``until_ms``, or all parts if it is None."""
        waiting = self._waiting
        while waiting and (until_ms is None or waiting[0][0] < until_ms):
            came_ms, _, amount = heappop(waiting)
            self._send(amount, came_ms)

    def _send(self, amount: int, came_ms: int) -> None:
        # Times never decrease, because the parts are taken in the order of their arrival.
        bucket, left, now_ms = self._bucket, amount, max(came_ms, self._free_ms)
        while bucket.kind is QuotaKind.FETCH and left > 0:
            cap = bucket.fetch_cap(bucket.fetch_room(now_ms=now_ms))
            piece = min(left, max(-(-amount // _MOST_PIECES), cap))
            self._pass(piece, came_ms, now_ms)
            left, now_ms = left - piece, self._free_ms
        if left or not amount:
            self._pass(left, came_ms, now_ms)

    def _pass(self, amount: int, came_ms: int, now_ms: int) -> None:
        bucket, outcome = self._bucket, self.outcome
        bucket.silence(bucket.charge(amount, now_ms=now_ms), now_ms=now_ms)
        self._free_ms = now_ms if bucket.is_free(0, now_ms=now_ms) else bucket.free_at_ms(now_ms=now_ms)
        outcome.sent_ms = max(outcome.sent_ms, now_ms)
        hour = outcome.hours.setdefault(now_ms - now_ms % _HOUR_MS, Hour())
        hour.amount += amount
        if now_ms > came_ms:
            hour.delayed_amount += amount
            hour.longest_delay_ms = max(hour.longest_delay_ms, now_ms - came_ms)
        hour.throttled_requests += self._free_ms > now_ms
        hour.throttle_time_ms += self._free_ms - now_ms
        self._busy.append((now_ms, self._free_ms))
