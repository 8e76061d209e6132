"""Limits how fast replicas are fetched, as Kafka does, and spreads the fetched bytes evenly over time.

A fetch is forwarded while two measures allow it:

* Kafka's measure is the ``SimpleRate`` of all charged bytes, which must not be above the limit (``isQuotaExceeded``).
  After a quiet time, this measure alone would allow ten seconds' worth of bytes at once. After a change to a lower
  limit it would allow nothing for up to ten seconds. So the ``SimpleRate`` of what is owed since the change is enough.
* A token bucket must have tokens left. Tokens are taken only for the bytes of replicas that lag. An idle token bucket
  saves up a quarter of a second's worth of bytes, so that late fetches do not keep the rate below the limit.

A fetch reserves the expected bytes of its response, so that several followers do not use the same unused bytes of the
limit. If the limit has no room for a follower, the follower waits in a line. The follower that was served longest ago
comes first. Without the line, the follower that was just served would mostly be the first to ask again.

Source: ``ReplicationQuotaManager`` in Apache Kafka, KIP-73.
"""

from math import ceil, inf
from typing import Final

from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.rate import SimpleRate

# How much a response may contain beyond the unused limit, in seconds of the limit. A larger response would delay
# replicas in sync that share it. Smaller responses would need more requests.
_STEP_S: Final = 0.1
# How many tokens are saved up while no fetch takes them, in seconds of the limit.
_SAVED_S: Final = 0.25
# A follower that comes this much later than its turn loses its place.
_LATE_MS: Final = 100
# The time when a limit of 0 has room, later than any clock.
_FAR_MS: Final = 1 << 62


class ReplicationQuota:
    """One limit on replication traffic, and the bytes that count towards this limit.

    Args:
        limit: The limit in bytes per second. If it is None, bytes are measured but not limited.
        samples: Kafka's ``replication.quota.window.num``.
        window_ms: Kafka's ``replication.quota.window.size.seconds``, in ms.
        now_ms: The time. The token bucket that spreads the bytes evenly over time is empty at first.

    Attributes:
        rate: The rate of the fetched bytes, as Kafka measures it.
        total: The number of bytes since the start.
        records: How many times bytes were recorded.
        logged: The part of ``usage`` that the usage log has read.
    """

    __slots__ = (
        "_at_ms",
        "_changed_at_ms",
        "_line",
        "_measures",
        "_reserved",
        "_tokens",
        "limit",
        "logged",
        "rate",
        "records",
        "total",
    )

    def __init__(self, limit: float | None, *, samples: int, window_ms: int, now_ms: int) -> None:
        self.limit = limit
        self.rate = SimpleRate(samples=samples, window_ms=window_ms)
        self._measures = [self.rate]  # a second one counts since the limit changed, until ``rate`` knows no other limit
        self._changed_at_ms = now_ms
        self.total = 0
        self.records = 0
        self.logged = NO_USAGE
        self._tokens = 0.0  # in bytes; negative tokens are owed
        self._reserved = 0  # the bytes of all reservations that are not settled
        self._at_ms = now_ms  # the time of the last refill
        self._line: dict[object, tuple[int, int]] = {}  # waiter -> (its ticket, the time until which its place is kept)

    @property
    def usage(self) -> UsageTotals:
        """How many bytes were fetched, and by how many requests, since the start. Throttle times are not counted."""
        return UsageTotals(amount=self.total, requests=self.records)

    def change(self, limit: float | None, *, now_ms: int) -> None:
        """Change the limit.

        What is above the old limit is still owed, and is paid at the new limit. What the old limit allowed is not owed.

        Remove all followers from the line in which they wait to fetch. Their places are kept for times that depend on
        the old limit.
        """
        self._refill(now_ms)
        if limit != self.limit:
            owed_bytes = 0 if self.limit is None else ceil(-self._unused(self.limit, now_ms))
            since_change = SimpleRate(samples=self.rate.samples, window_ms=self.rate.sample_ms)
            if owed_bytes > 0:
                since_change.record(owed_bytes, now_ms=now_ms)
            self._measures = [self.rate, since_change]
            self._changed_at_ms = now_ms
            self.limit = limit
        self._add(0)
        self._line.clear()  # Each place is kept for a time that depends on the old limit. It may be very long.

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        """Record fetched bytes in the totals and in the rate that Kafka would measure.

        This does not take tokens from the token bucket that spreads fetches over time. ``settle`` does.
        """
        self.total += size_bytes
        self.records += 1
        for one in self._measures:
            one.record(size_bytes, now_ms=now_ms)

    def room(self, *, now_ms: int) -> float:
        """Return how many bytes the response to a fetch may contain now.

        Return 0 if no fetch may be forwarded now, or infinity if there is no limit.
        """
        limit = self.limit
        if limit is None:
            return inf
        self._refill(now_ms)
        unused = min(self._tokens, self._unused(limit, now_ms) - self._reserved)
        # Less than a byte is a rounding error.
        return max(unused, 0.0) + limit * _STEP_S if unused > -1 else 0.0

    def room_at_ms(self, *, now_ms: int) -> int:
        """Return the earliest time at which a fetch may be forwarded, or ``now_ms`` if a fetch may be forwarded now.

        The caller must check again at the returned time, because other fetches may be forwarded before.
        """
        limit = self.limit
        if limit is None:
            return now_ms
        if not limit:
            return _FAR_MS
        self._refill(now_ms)
        paid_ms = now_ms + ceil(min(-self._tokens / limit * 1_000, _FAR_MS))
        measures = self._current_measures(now_ms)
        not_above_ms = min(one.not_above_at_ms(limit, more=self._reserved, now_ms=now_ms) for one in measures)
        return max(paid_ms, not_above_ms, now_ms)

    def wait(self, waiter: object, ticket: int, *, now_ms: int) -> int:
        """Give ``waiter`` a place in the line unless it has one, and return the time when its turn is expected.

        The waiter with the lowest ``ticket`` comes first. A waiter that has a place keeps the ticket with which it took
        the place. It must call ``leave`` when it stops waiting.
        """
        ahead = self.ahead(waiter, ticket, now_ms=now_ms)
        room_at_ms = self.room_at_ms(now_ms=now_ms) + int(ahead * _STEP_S * 1_000)
        self._line[waiter] = (self._place(waiter, ticket), room_at_ms + _LATE_MS)
        return room_at_ms

    def leave(self, waiter: object) -> None:
        """Remove a follower from the line in which followers wait to fetch. Does nothing if it is not in the line."""
        self._line.pop(waiter, None)

    def ahead(self, waiter: object, ticket: int, *, now_ms: int) -> int:
        """Return how many waiters come before ``waiter``, whether or not it is in the line itself.

        Removes waiters that missed their turn.
        """
        if not self._line:
            return 0
        for late in [one for one, (_, until_ms) in self._line.items() if until_ms < now_ms]:
            del self._line[late]
        own = self._place(waiter, ticket)
        return sum(1 for place, _ in self._line.values() if place < own)

    def reserve(self, size_bytes: int) -> None:
        """Set aside the bytes that the response to a forwarded fetch will probably contain.

        Other fetches cannot use these bytes of the limit. ``settle`` ends the reservation when the fetch is answered.
        """
        self._reserved += size_bytes
        self._tokens -= size_bytes

    def settle(self, reserved_bytes: int, brought_bytes: int, *, now_ms: int) -> None:
        """End the reservation of a fetch.

        ``reserved_bytes`` is what was reserved. Tokens are taken for ``brought_bytes``, the bytes that the response
        brought for replicas that lag.
        """
        self._refill(now_ms)  # else the time before would pay for these bytes
        self._reserved -= reserved_bytes
        self._add(reserved_bytes - brought_bytes)

    def give_back(self, reserved_bytes: int) -> None:
        """End the reservation of a fetch that brought nothing."""
        self._reserved -= reserved_bytes
        self._add(reserved_bytes)

    def _place(self, waiter: object, ticket: int) -> int:
        return self._line[waiter][0] if waiter in self._line else ticket

    def _unused(self, limit: float, now_ms: int) -> float:
        """Return how many more bytes a measure allows. The result is negative if the rate is above the limit."""
        measures = self._current_measures(now_ms)
        return max(limit * one.window_ms(now_ms=now_ms) / 1_000 - one.total for one in measures)

    def _current_measures(self, now_ms: int) -> list[SimpleRate]:
        rate = self.rate
        if len(self._measures) > 1 and now_ms - self._changed_at_ms > (rate.samples + 1) * rate.sample_ms:
            self._measures = [rate]
        return self._measures

    def _refill(self, now_ms: int) -> None:
        limit = self.limit
        if limit is None:
            self._tokens = -float(self._reserved)
        elif now_ms > self._at_ms:
            self._add((now_ms - self._at_ms) * limit / 1_000)
        self._at_ms = now_ms

    def _add(self, tokens: float) -> None:
        """Add tokens to the token bucket that spreads fetches over time. Tokens beyond its size are dropped."""
        self._tokens += tokens
        if self.limit is not None:
            self._tokens = min(self._tokens, self.limit * _SAVED_S)
