"""One limit on what replicas may fetch, as Kafka measures it, and evenly below it.

Two measures have to agree before bytes flow:

* Kafka's: the ``SimpleRate`` of all that was charged is not above the limit (``isQuotaExceeded``);
* a bucket of tokens, which only what lags takes from. Kafka's measure alone lets ten seconds' worth pass at once after
  some quiet; with the tokens, what lags stays under rate times time plus one response, whatever the time. A fetch that
  comes late may make up for a quarter of a second, else the rate would never be reached.

What a fetch may bring is taken when it is passed on, and settled when its response is there, so that several who fetch
do not all get the same room. Who finds none waits in a line, in which those come first who were served longest ago;
else whoever asks first when there is room, which is mostly who was served last, would get all of it.

Source: ``ReplicationQuotaManager`` in Apache Kafka, KIP-73.
"""

from math import ceil, inf
from typing import Final

from kafka_quota_proxy.proxy.quota.rate import SimpleRate
from kafka_quota_proxy.proxy.quota.usage_totals import NO_USAGE, UsageTotals

# What one response may bring above what there is room for, in seconds of the limit. Small enough that a partition in
# sync, whose records come in the same response, does not wait for it; large enough that few requests are made.
_STEP_S: Final = 0.1
# How much room can be saved up, in seconds of the limit, while the fetches that would use it wait elsewhere.
_SAVED_S: Final = 0.25
# How late somebody may come to his turn.
_LATE_MS: Final = 100
# Where the limit is 0, room never comes.
_FAR_MS: Final = 1 << 62


class ReplicationQuota:
    """Bytes per second, or None for no limit: then it only measures.

    Args:
        limit: bytes per second.
        samples: ``replication.quota.window.num``.
        window_ms: ``replication.quota.window.size.seconds``, in ms.
        now_ms: from when on tokens come.
    """

    __slots__ = ("_at_ms", "_line", "_taken", "_tokens", "heir", "limit", "logged", "rate", "records", "total")

    def __init__(self, limit: float | None, *, samples: int, window_ms: int, now_ms: int) -> None:
        self.limit = limit
        self.heir: ReplicationQuota | None = None  # what has absorbed this
        self.rate = SimpleRate(samples=samples, window_ms=window_ms)
        self.total = 0  # bytes, since the start
        self.records = 0  # how often some were charged
        self.logged = NO_USAGE  # for ``proxy.usage``
        self._tokens = 0.0  # bytes; below 0: what has flowed is not paid for yet
        self._taken = 0  # bytes that were granted and not settled
        self._at_ms = now_ms  # when the tokens were counted last
        self._line: dict[object, tuple[int, int]] = {}  # ticket, and until when the place is kept, of who waits

    @property
    def usage(self) -> UsageTotals:
        """What was counted since the start; how long somebody waited is not."""
        return UsageTotals(amount=self.total, requests=self.records)

    def change(self, limit: float | None, *, now_ms: int) -> None:
        """Put a limit in force. What was measured stays; what is not paid for is paid at the new rate.

        Places in the line are given up: they are kept for as long as the old limit said, which may be for ever.
        """
        self._refill(now_ms)
        self.limit = limit
        self._add(0)
        self._line.clear()

    def absorb(self, other: "ReplicationQuota", *, now_ms: int) -> None:
        """Go on as both: ``other`` has turned out to be the same broker's, and is not to be asked for room any more.

        What was granted there is settled there, and recorded here.
        """
        self.rate.absorb(other.rate, now_ms=now_ms)
        self.total += other.total
        self.records += other.records
        self.logged = self.logged.plus(other.logged)
        other.heir = self

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        """Charge what has flowed, in Kafka's measure."""
        if self.heir is not None:
            self.heir.record(size_bytes, now_ms=now_ms)
            return
        self.total += size_bytes
        self.records += 1
        self.rate.record(size_bytes, now_ms=now_ms)

    def room(self, *, now_ms: int) -> float:
        """Return how many bytes a response may bring now; 0: none, ``room_at_ms`` tells when. Infinite: any."""
        limit = self.limit
        if limit is None:
            return inf
        self._refill(now_ms)
        window_s = self.rate.window_ms(now_ms=now_ms) / 1_000
        unused = min(self._tokens, limit * window_s - self.rate.total - self._taken)
        # Less than a byte is a matter of rounding.
        return max(unused, 0.0) + limit * _STEP_S if unused > -1 else 0.0

    def room_at_ms(self, *, now_ms: int) -> int:
        """Return when there is room again, if nothing flows until then; ``now_ms`` if there is.

        It may come earlier, when what was granted is not used, and later, when old samples count no more: ask again.
        """
        limit = self.limit
        if limit is None:
            return now_ms
        if not limit:
            return _FAR_MS
        self._refill(now_ms)
        paid_ms = now_ms + ceil(min(-self._tokens / limit * 1_000, _FAR_MS))
        return max(paid_ms, self.rate.not_above_at_ms(limit, more=self._taken, now_ms=now_ms), now_ms)

    def wait(self, who: object, ticket: int, *, now_ms: int) -> int:
        """Take a place in the line, or keep it; return when it will be one's turn, about.

        Args:
            who: a connection; ``leave`` when it waits no more.
            ticket: whose is lower comes first; who has a place keeps the one that he came with.
            now_ms: as it is.
        """
        ahead = self.ahead(who, ticket, now_ms=now_ms)
        room_at_ms = self.room_at_ms(now_ms=now_ms) + int(ahead * _STEP_S * 1_000)
        self._line[who] = (self._place(who, ticket), room_at_ms + _LATE_MS)
        return room_at_ms

    def leave(self, who: object) -> None:
        """Give up one's place, if there is one."""
        self._line.pop(who, None)

    def ahead(self, who: object, ticket: int, *, now_ms: int) -> int:
        """Return how many others wait that come first. A place that was not taken up in time is lost."""
        if not self._line:
            return 0
        for late in [one for one, (_, until_ms) in self._line.items() if until_ms < now_ms]:
            del self._line[late]
        own = self._place(who, ticket)
        return sum(1 for place, _ in self._line.values() if place < own)

    def take(self, size_bytes: int) -> None:
        """Set aside what a fetch may bring, until ``settle``."""
        self._taken += size_bytes
        self._tokens -= size_bytes

    def settle(self, taken_bytes: int, brought_bytes: int) -> None:
        """Give back what was taken; pay for what lagged and came instead."""
        self._taken -= taken_bytes
        self._add(taken_bytes - brought_bytes)

    def _place(self, who: object, ticket: int) -> int:
        return self._line[who][0] if who in self._line else ticket

    def _refill(self, now_ms: int) -> None:
        limit = self.limit
        if limit is None:
            self._tokens = -float(self._taken)
        elif now_ms > self._at_ms:
            self._add((now_ms - self._at_ms) * limit / 1_000)
        self._at_ms = now_ms

    def _add(self, tokens: float) -> None:
        """Have so many more, but no more saved up than may be; also when a fetch did not need what it was granted."""
        self._tokens += tokens
        if self.limit is not None:
            self._tokens = min(self._tokens, self.limit * _SAVED_S)
