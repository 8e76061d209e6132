"""Limits what replicas fetch as Kafka does, and spreads the bytes evenly over time.

Bytes flow while two measures allow it:

* Kafka's measure allows it if the ``SimpleRate`` of all charged bytes is not above the limit (``isQuotaExceeded``).
* A token bucket allows it if tokens are left. Only replicas that lag take tokens. Kafka's measure alone would let ten
  seconds' worth of bytes pass at once after a quiet time. With the token bucket, replicas that lag get at most the
  limit times the time, plus one response. The token bucket saves up a quarter of a second, so that late fetches do not
  keep the flow below the limit.

A fetch reserves bytes when it is passed on, and the reservation is settled when its response comes. So several
followers do not all get the same room. A follower without room waits in a line, which is ordered by the time when each
follower was served last. Without the line, the first follower to ask would get all the room, and that is mostly the
follower that was served last.

Source: ``ReplicationQuotaManager`` in Apache Kafka, KIP-73.
"""

from math import ceil, inf
from typing import Final

from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.rate import SimpleRate

# How much one response may bring in addition to the room, in seconds of the limit. It is small enough that a partition
# in sync is not held up by other records in the same response, and large enough that few requests are needed.
_STEP_S: Final = 0.1
# How many tokens are saved up while no fetch takes them, in seconds of the limit.
_SAVED_S: Final = 0.25
# A follower that comes this much later than its turn loses its place.
_LATE_MS: Final = 100
# The time when a limit of 0 has room, later than any clock.
_FAR_MS: Final = 1 << 62


class ReplicationQuota:
    """One limit on replication, and the bytes that were fetched under it.

    Args:
        limit: The limit in bytes per second. With None, bytes are measured but not limited.
        samples: Kafka's ``replication.quota.window.num``.
        window_ms: Kafka's ``replication.quota.window.size.seconds``, in ms.
        now_ms: The time from which tokens flow in.

    Attributes:
        absorbed_by: The quota that absorbed this one and records its bytes.
        rate: The rate of the fetched bytes, as Kafka measures it.
        total: The number of bytes since the start.
        records: How often bytes were charged.
        logged: The part of ``usage`` that the usage log has read.
    """

    __slots__ = (
        "_at_ms",
        "_line",
        "_reserved",
        "_tokens",
        "absorbed_by",
        "limit",
        "logged",
        "rate",
        "records",
        "total",
    )

    def __init__(self, limit: float | None, *, samples: int, window_ms: int, now_ms: int) -> None:
        self.limit = limit
        self.absorbed_by: ReplicationQuota | None = None
        self.rate = SimpleRate(samples=samples, window_ms=window_ms)
        self.total = 0
        self.records = 0
        self.logged = NO_USAGE
        self._tokens = 0.0  # in bytes; negative tokens are owed
        self._reserved = 0  # the bytes of all reservations that are not settled
        self._at_ms = now_ms  # the time of the last refill
        self._line: dict[object, tuple[int, int]] = {}  # waiter -> (its ticket, the time until which its place is kept)

    @property
    def usage(self) -> UsageTotals:
        """The totals since the start. They have no throttle times."""
        return UsageTotals(amount=self.total, requests=self.records)

    def change(self, limit: float | None, *, now_ms: int) -> None:
        """Change the limit. The measured rate stays, and owed bytes are paid at the new rate.

        The line is cleared, because its places are kept for a time that depends on the old limit and may never end.
        """
        self._refill(now_ms)
        self.limit = limit
        self._add(0)
        self._line.clear()

    def absorb(self, other: "ReplicationQuota", *, now_ms: int) -> None:
        """Take over the measured bytes of ``other``, which belongs to the same broker and passes no more fetches.

        Fetches that have a reservation in ``other`` settle it in ``other``, but their bytes are recorded here.
        """
        self.rate.absorb(other.rate, now_ms=now_ms)
        self.total += other.total
        self.records += other.records
        self.logged = self.logged.plus(other.logged)
        other.absorbed_by = self

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        """Record fetched bytes in Kafka's measure. This takes no tokens."""
        if self.absorbed_by is not None:
            self.absorbed_by.record(size_bytes, now_ms=now_ms)
            return
        self.total += size_bytes
        self.records += 1
        self.rate.record(size_bytes, now_ms=now_ms)

    def room(self, *, now_ms: int) -> float:
        """Return how many bytes a response may bring now. Returns 0 until ``room_at_ms``, infinity without limit."""
        limit = self.limit
        if limit is None:
            return inf
        self._refill(now_ms)
        window_s = self.rate.window_ms(now_ms=now_ms) / 1_000
        unused = min(self._tokens, limit * window_s - self.rate.total - self._reserved)
        # Less than a byte is a rounding error.
        return max(unused, 0.0) + limit * _STEP_S if unused > -1 else 0.0

    def room_at_ms(self, *, now_ms: int) -> int:
        """Return the time when there is room if no bytes flow before, or ``now_ms`` if there is room now.

        Room may come earlier if a reservation is not used up, or later because old samples stop counting. So call
        this again at the returned time.
        """
        limit = self.limit
        if limit is None:
            return now_ms
        if not limit:
            return _FAR_MS
        self._refill(now_ms)
        paid_ms = now_ms + ceil(min(-self._tokens / limit * 1_000, _FAR_MS))
        return max(paid_ms, self.rate.not_above_at_ms(limit, more=self._reserved, now_ms=now_ms), now_ms)

    def wait(self, waiter: object, ticket: int, *, now_ms: int) -> int:
        """Take a place in the line or keep it, and return the time when its turn is expected.

        Args:
            waiter: The connection. It must call ``leave`` when it stops waiting.
            ticket: The position in the line. Lower tickets come first. A waiter with a place keeps its first ticket.
            now_ms: The time.
        """
        ahead = self.ahead(waiter, ticket, now_ms=now_ms)
        room_at_ms = self.room_at_ms(now_ms=now_ms) + int(ahead * _STEP_S * 1_000)
        self._line[waiter] = (self._place(waiter, ticket), room_at_ms + _LATE_MS)
        return room_at_ms

    def leave(self, waiter: object) -> None:
        """Give up the waiter's place, if it has one."""
        self._line.pop(waiter, None)

    def ahead(self, waiter: object, ticket: int, *, now_ms: int) -> int:
        """Return how many other waiters come first. Removes the places that were not used in time."""
        if not self._line:
            return 0
        for late in [one for one, (_, until_ms) in self._line.items() if until_ms < now_ms]:
            del self._line[late]
        own = self._place(waiter, ticket)
        return sum(1 for place, _ in self._line.values() if place < own)

    def reserve(self, size_bytes: int) -> None:
        """Reserve the bytes that a fetch may bring, until ``settle``."""
        self._reserved += size_bytes
        self._tokens -= size_bytes

    def settle(self, reserved_bytes: int, brought_bytes: int) -> None:
        """End a reservation, and take tokens for ``brought_bytes``, the bytes that came for replicas that lag."""
        self._reserved -= reserved_bytes
        self._add(reserved_bytes - brought_bytes)

    def _place(self, waiter: object, ticket: int) -> int:
        return self._line[waiter][0] if waiter in self._line else ticket

    def _refill(self, now_ms: int) -> None:
        limit = self.limit
        if limit is None:
            self._tokens = -float(self._reserved)
        elif now_ms > self._at_ms:
            self._add((now_ms - self._at_ms) * limit / 1_000)
        self._at_ms = now_ms

    def _add(self, tokens: float) -> None:
        """Add tokens, up to the most that may be saved up."""
        self._tokens += tokens
        if self.limit is not None:
            self._tokens = min(self._tokens, self.limit * _SAVED_S)
