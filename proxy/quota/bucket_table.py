"""A bounded table of buckets by name, and which of them is evicted for a new one.

Clients choose their names, so there may be any number of them. A full table evicts the bucket that has had no holder
for the longest time. It never evicts:

* a bucket with a holder. A connection keeps its bucket and charges it without a look-up. After an eviction the next
  connection of that name would get a second bucket, and the name two quotas;
* a bucket with requests in flight, or that is over its limit;
* a bucket that a rule names. Each rule names one at most, so these do not count against the bound.

No step looks at all buckets. A bucket that may not be evicted now is parked until the time when it may.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from kafka_quota_proxy.proxy.quota.entity import Tags

# How long a bucket is parked for requests in flight, and for a rule that names it: both end at an unknown time.
_IN_FLIGHT_MS: Final = 1_000
_NAMED_MS: Final = 60_000
_LONGEST_MS: Final = 3_600_000  # after an hour of silence a bucket expires, whatever it owes
_RECHECKED_AT_ONCE: Final = 8


class TableEntry(Protocol):
    """What the table needs to know of a bucket."""

    tags: Tags
    holders: int  # connections that may charge it without a look-up
    in_flight: int
    is_listed: bool  # whether the table has it; written here only
    is_parked: bool  # written here only


_T = TypeVar("_T", bound=TableEntry)


class BucketTable(Generic[_T]):
    """The buckets of one kind of quota.

    Args:
        max_buckets: The bound, without the buckets that a rule names.
        owes_until_ms: Returns when a bucket will owe nothing if it is not charged; a past time if it owes nothing.
        is_named: Whether a rule names the bucket.
        on_removed: Called with each bucket that leaves the table.
    """

    def __init__(
        self,
        max_buckets: int,
        *,
        owes_until_ms: Callable[[_T, int], float],
        is_named: Callable[[Tags], bool],
        on_removed: Callable[[_T], None],
    ) -> None:
        self.max_buckets = max_buckets
        self.evicted = 0
        self._owes_until_ms = owes_until_ms
        self._is_named = is_named
        self._on_removed = on_removed
        self._by_tags: dict[Tags, _T] = {}
        self._named = 0  # how many of these a rule names
        # Buckets without holders, the first released in front. One that is held again is skipped at its turn.
        self._idle: OrderedDict[_T, None] = OrderedDict()
        # When to check each bucket again; the number keeps the heap from comparing buckets.
        self._parked: list[tuple[float, int, _T]] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_tags)

    def __iter__(self) -> Iterator[_T]:
        # A copy, made in one step of the interpreter: metrics read from another thread while the loop adds buckets.
        return iter(list(self._by_tags.values()))

    def get(self, tags: Tags) -> _T | None:
        """Return the bucket of that name."""
        return self._by_tags.get(tags)

    def add(self, bucket: _T) -> None:
        """Add ``bucket``, after ``make_room``."""
        bucket.is_listed = True
        self._by_tags[bucket.tags] = bucket
        self._named += self._is_named(bucket.tags)
        self._idle[bucket] = None

    def remove(self, bucket: _T) -> None:
        """Remove ``bucket``."""
        self._idle.pop(bucket, None)
        self._unlist(bucket)

    def release(self, bucket: _T, *, now_ms: int) -> None:
        """Remove one holder of ``bucket``."""
        bucket.holders -= 1
        if bucket.holders or bucket.is_parked or self._by_tags.get(bucket.tags) is not bucket:
            return  # the last: it was removed, or is another broker's
        if not self._park(bucket, now_ms):
            self._idle[bucket] = None
            self._idle.move_to_end(bucket)

    def make_room(self, *, now_ms: int) -> bool:
        """Return whether one more bucket may be added; evict the oldest if the table is full."""
        room = self.max_buckets + self._named - len(self._by_tags)
        if room > 0:
            return True
        # Two for one where there are too many: a reload may have lowered the bound.
        evicted = [self._evict(now_ms) for _ in range(1 if room == 0 else 2)]
        return any(evicted)

    def recount_named(self, named: Iterable[Tags]) -> None:
        """Count again which buckets are among the names in rules."""
        self._named = sum(tags in self._by_tags for tags in named)

    def count_named(self, tags: Tags, *, is_named: bool) -> None:
        """Count a bucket that a rule has come to name, or names no more."""
        if tags in self._by_tags:
            self._named += 1 if is_named else -1

    def recheck_parked(self, *, now_ms: int, most: int) -> None:
        """Check at most that many parked buckets whose time has come."""
        for _ in range(most):
            if not self._parked or self._parked[0][0] > now_ms:
                break
            bucket = heappop(self._parked)[2]
            bucket.is_parked = False
            if bucket.is_listed and not bucket.holders and not self._park(bucket, now_ms):
                # Long silent, and none of its usage counts any more: the first to be evicted.
                self._idle[bucket] = None
                self._idle.move_to_end(bucket, last=False)

    def _evict(self, now_ms: int) -> bool:
        self.recheck_parked(now_ms=now_ms, most=_RECHECKED_AT_ONCE)
        while self._idle or (self._parked and self._parked[0][0] <= now_ms):
            if not self._idle:
                self.recheck_parked(now_ms=now_ms, most=_RECHECKED_AT_ONCE)
                continue
            bucket, _ = self._idle.popitem(last=False)
            if not bucket.holders and not self._park(bucket, now_ms):
                self._unlist(bucket)
                self.evicted += 1
                return True
        return False

    def _unlist(self, bucket: _T) -> None:
        bucket.is_listed = False
        del self._by_tags[bucket.tags]
        self._named -= self._is_named(bucket.tags)
        self._on_removed(bucket)

    def _park(self, bucket: _T, now_ms: int) -> bool:
        """Park ``bucket`` if it may not be evicted now; return whether it was parked."""
        until_ms = self._owes_until_ms(bucket, now_ms)
        if bucket.in_flight:
            until_ms = max(until_ms, now_ms + _IN_FLIGHT_MS)
        if self._is_named(bucket.tags):
            until_ms = max(until_ms, now_ms + _NAMED_MS)
        if until_ms <= now_ms:
            return False
        self._idle.pop(bucket, None)
        self._last_number += 1
        bucket.is_parked = True
        heappush(self._parked, (min(until_ms, now_ms + _LONGEST_MS), self._last_number, bucket))
        return True
