"""One limit on what replicas fetch: Kafka's measure, and an even flow below it.

Bytes flow while two measures agree:

* Kafka's: the ``SimpleRate`` of all charged bytes is not above the limit (``isQuotaExceeded``);
* a token bucket, from which only replicas that lag take tokens. After a quiet time Kafka's measure alone lets ten
  seconds' worth pass at once. With the tokens, replicas that lag get at most rate times time plus one response. A late
  fetch may make up for a quarter of a second, otherwise the flow would never reach the rate.

A fetch reserves its bytes when it is passed on and settles them with its response, so that several followers do not all
get the same room. A follower without room waits in a line, ordered by when each was served last. Without the line the
first to ask would get all the room, and that is mostly the one that was served last.

Source: ``ReplicationQuotaManager`` in Apache Kafka, KIP-73.
"""

from math import ceil, inf
from typing import Final

from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.rate import SimpleRate

# How much one response may bring on top of the room, in seconds of the limit. Small enough that a partition in sync,
# whose records come in the same response, is not held up; large enough for few requests.
_STEP_S: Final = 0.1
# How much room is saved up while no fetch uses it, in seconds of the limit.
_SAVED_S: Final = 0.25
# A follower that comes this much later than its turn loses its place.
_LATE_MS: Final = 100
# With a limit of 0 there is never room.
_FAR_MS: Final = 1 << 62


class ReplicationQuota:
    """A limit, and what was fetched under it.

    Args:
        limit: Bytes per second; None: no limit, only a measure.
        samples: ``replication.quota.window.num``.
        window_ms: ``replication.quota.window.size.seconds``, in ms.
        now_ms: When tokens begin to flow in.

    Attributes:
        absorbed_by: The quota that absorbed this one and takes its records.
        total: Bytes since the start.
        records: How often bytes were charged.
        logged: What the usage log has read of ``usage``.
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
        self._tokens = 0.0  # bytes; negative: owed
        self._reserved = 0  # bytes, not settled yet
        self._at_ms = now_ms  # the time of the last refill
        self._line: dict[object, tuple[int, int]] = {}  # each waiter's ticket, and until when its place is kept

    @property
    def usage(self) -> UsageTotals:
        """Totals since the start, without waits."""
        return UsageTotals(amount=self.total, requests=self.records)

    def change(self, limit: float | None, *, now_ms: int) -> None:
        """Change the limit. The measure stays, and owed bytes are paid at the new rate.

        The line is cleared: its places are kept for as long as the old limit said, which may be for ever.
        """
        self._refill(now_ms)
        self.limit = limit
        self._add(0)
        self._line.clear()

    def absorb(self, other: "ReplicationQuota", *, now_ms: int) -> None:
        """Take over the measure of ``other``, which is of the same broker and gives no room any more.

        Its reservations are settled there and recorded here.
        """
        self.rate.absorb(other.rate, now_ms=now_ms)
        self.total += other.total
        self.records += other.records
        self.logged = self.logged.plus(other.logged)
        other.absorbed_by = self

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        """Charge bytes in Kafka's measure."""
        if self.absorbed_by is not None:
            self.absorbed_by.record(size_bytes, now_ms=now_ms)
            return
        self.total += size_bytes
        self.records += 1
        self.rate.record(size_bytes, now_ms=now_ms)

    def room(self, *, now_ms: int) -> float:
        """Return how many bytes a response may bring now: 0 until ``room_at_ms``, infinite without a limit."""
        limit = self.limit
        if limit is None:
            return inf
        self._refill(now_ms)
        window_s = self.rate.window_ms(now_ms=now_ms) / 1_000
        unused = min(self._tokens, limit * window_s - self.rate.total - self._reserved)
        # Less than a byte is a rounding error.
        return max(unused, 0.0) + limit * _STEP_S if unused > -1 else 0.0

    def room_at_ms(self, *, now_ms: int) -> int:
        """Return when there is room, if nothing flows until then; ``now_ms`` if there is room now.

        Room may come earlier, when a reservation is not used, or later, when old samples stop counting. Call it again.
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
        """Take or keep a place in the line; return about when its turn comes.

        Args:
            waiter: A connection, which calls ``leave`` when it stops waiting.
            ticket: Lower tickets come first. A waiter with a place keeps its first ticket.
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
        """Return how many others come first. Removes places that were not used in time."""
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
        """Give back a reservation and take the tokens for the bytes that came for replicas that lag."""
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
        """Add tokens, up to what may be saved up."""
        self._tokens += tokens
        if self.limit is not None:
            self._tokens = min(self._tokens, self.limit * _SAVED_S)
