"""Keeps the buckets in a table of bounded size, and evicts a bucket when a full table needs a place for a new one.

Clients choose their names, so there may be any number of names. A full table evicts the bucket that has had no holder
for the longest time. It never evicts these buckets:

* A bucket with a holder. A holder is a connection that keeps its bucket and charges it without a look-up. If the bucket
  were evicted, the next connection with the same name would get a second bucket, so this name would have two quotas.
* A bucket with requests in flight, or over its limit.
* A bucket that a rule names. Each rule names at most one bucket, so these buckets do not count towards the bound.

No step looks at all buckets. A bucket that may not be evicted now is parked: it is checked again at a later time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from kafka_quota_proxy.proxy.quota.entity import Tags

# How long a bucket is parked because of requests in flight, or because a rule names it. Nothing says when these end.
_IN_FLIGHT_MS: Final = 1_000
_NAMED_MS: Final = 60_000
_LONGEST_MS: Final = 3_600_000  # after an hour of silence a bucket expires, whatever it owes
_RECHECKED_AT_ONCE: Final = 8


class TableEntry(Protocol):
    """The attributes of a bucket that the table uses."""

    tags: Tags
    holders: int  # the number of connections that may charge the bucket without a look-up
    in_flight: int
    is_listed: bool  # whether the bucket is in the table
    is_parked: bool  # whether the bucket is parked; only the table uses this


_T = TypeVar("_T", bound=TableEntry)


class BucketTable(Generic[_T]):
    """The buckets of one kind of quota.

    Args:
        max_buckets: The most buckets that the table has. Buckets that a rule names do not count.
        owes_until_ms: Returns the time until which clients owe an amount to a bucket. A past time means that they owe
            nothing.
        is_named: Returns whether a rule names the bucket with these tags.
        on_removed: Is called with each bucket that leaves the table.
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
        self._named = 0  # how many buckets of the table are named by a rule
        # Buckets without holders, the one that was released first in front. A bucket that has a holder again is skipped
        # when its turn to be evicted comes.
        self._idle: OrderedDict[_T, None] = OrderedDict()
        # The time to check each parked bucket again, a number that keeps the heap from comparing buckets, and the
        # bucket.
        self._parked: list[tuple[float, int, _T]] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_tags)

    def __iter__(self) -> Iterator[_T]:
        # The copy is made in one step of the interpreter, because metrics are read in another thread while the event
        # loop adds buckets.
        return iter(list(self._by_tags.values()))

    def get(self, tags: Tags) -> _T | None:
        """Return the bucket with these tags, or None."""
        return self._by_tags.get(tags)

    def add(self, bucket: _T) -> None:
        """Add ``bucket``. Call ``make_room`` first, unless a rule names the bucket."""
        bucket.is_listed = True
        self._by_tags[bucket.tags] = bucket
        self._named += self._is_named(bucket.tags)
        self._idle[bucket] = None

    def remove(self, bucket: _T) -> None:
        """Remove ``bucket``."""
        self._idle.pop(bucket, None)
        self._unlist(bucket)

    def release(self, bucket: _T, *, now_ms: int) -> None:
        """Remove one holder of ``bucket``. Without holders the bucket may be evicted."""
        bucket.holders -= 1
        if bucket.holders or bucket.is_parked or self._by_tags.get(bucket.tags) is not bucket:
            return  # the last condition means that the bucket was removed, or that it belongs to another broker
        if not self._park(bucket, now_ms):
            self._idle[bucket] = None
            self._idle.move_to_end(bucket)

    def make_room(self, *, now_ms: int) -> bool:
        """Return whether one more bucket may be added. If the table is full, evict a bucket first."""
        room = self.max_buckets + self._named - len(self._by_tags)
        if room > 0:
            return True
        # If a reload has lowered the bound, there are too many buckets. Then two leave for each new one.
        evicted = [self._evict(now_ms) for _ in range(1 if room == 0 else 2)]
        return any(evicted)

    def recount_named(self, named: Iterable[Tags]) -> None:
        """Count again how many buckets of the table are named by a rule. ``named`` has the tags that rules name."""
        self._named = sum(tags in self._by_tags for tags in named)

    def count_named(self, tags: Tags, *, is_named: bool) -> None:
        """Follow a change of rules: a rule now names the bucket with these tags, or no longer names it."""
        if tags in self._by_tags:
            self._named += 1 if is_named else -1

    def recheck_parked(self, *, now_ms: int, most: int) -> None:
        """Check whether parked buckets may be evicted now. Checks at most ``most`` buckets that are due."""
        for _ in range(most):
            if not self._parked or self._parked[0][0] > now_ms:
                break
            bucket = heappop(self._parked)[2]
            bucket.is_parked = False
            if bucket.is_listed and not bucket.holders and not self._park(bucket, now_ms):
                # The bucket has had no holder for long, and its usage no longer counts, so it is the first to be
                # evicted.
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
        """Park ``bucket`` if it may not be evicted now, and return whether it was parked."""
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
