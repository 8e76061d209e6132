"""A table of buckets with a bounded size. If it is full, it evicts a bucket to make room for a new one.

A holder of a bucket is a connection that keeps the bucket and charges it without a look-up. A full table evicts the
bucket that has had no holder for the longest time. It never evicts these buckets:

* A bucket with a holder. Otherwise the next connection of the same client would get a second bucket, and the client
  would have two quotas.
* A bucket that is over its limit, or is charged later for a request that the broker has not answered yet.
* A bucket with a rule of its own, which names exactly the bucket's user and client-id, without ``<default>``. Such
  buckets do not count towards the bound.

A bucket that may not be evicted now is parked, which means that it is checked again at a later time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from kafka_quota_proxy.proxy.quota.entity import Tags

# How long a bucket is parked if it has requests in flight, or if it has a rule of its own.
_IN_FLIGHT_MS: Final = 1_000
_NAMED_MS: Final = 60_000
_LONGEST_MS: Final = 3_600_000  # a bucket without traffic expires after this time, even if clients owe an amount
_RECHECKED_AT_ONCE: Final = 8


class TableEntry(Protocol):
    """The attributes that an object must have to be kept in a ``BucketTable``, as buckets are."""

    tags: Tags
    holders: int  # the number of connections that may charge the bucket without a look-up
    is_listed: bool  # whether the bucket is in the table
    is_parked: bool  # whether the bucket is parked; only the table uses this

    @property
    def is_in_use(self) -> bool:
        """Whether a connection keeps the bucket, or a request that will be charged to it is not answered yet."""


_T = TypeVar("_T", bound=TableEntry)


class BucketTable(Generic[_T]):
    """A bounded table of buckets, with their tags as keys.

    Anything with the attributes of ``TableEntry`` is a bucket here.

    Args:
        max_buckets: The most buckets that the table contains, not counting buckets with rules of their own.
        owes_until_ms: Called with a bucket and the time. Returns the time until which clients owe an amount to the
            bucket, or a past time if they owe nothing.
        is_named: Returns whether the bucket with these tags has a rule of its own.
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
        self._named = 0  # how many buckets of the table have rules of their own
        # Buckets without holders, in the order of their release. Some may have a holder again; they are not evicted.
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
        """Return the bucket for the user and client-id in ``tags``, or None if the table has no such bucket."""
        return self._by_tags.get(tags)

    def add(self, bucket: _T) -> None:
        """Add ``bucket``. Call ``make_room`` first, unless the bucket has a rule of its own (without ``<default>``)."""
        bucket.is_listed = True
        self._by_tags[bucket.tags] = bucket
        self._named += self._is_named(bucket.tags)
        self._idle[bucket] = None

    def remove(self, bucket: _T) -> None:
        """Remove ``bucket`` from the table, and call the function ``on_removed`` (set in the constructor) with it."""
        self._idle.pop(bucket, None)
        self._unlist(bucket)

    def release(self, bucket: _T, *, now_ms: int) -> None:
        """Note that a connection no longer keeps ``bucket``. A bucket that no connection keeps may be evicted."""
        bucket.holders -= 1
        if bucket.holders or bucket.is_parked or self._by_tags.get(bucket.tags) is not bucket:
            return  # the last condition means that the bucket was removed, or that several clients share it
        if not self._park(bucket, now_ms):
            self._idle[bucket] = None
            self._idle.move_to_end(bucket)

    def make_room(self, *, now_ms: int) -> bool:
        """Evict a bucket if the table is full. Return whether the table now has room for one more bucket."""
        room = self.max_buckets + self._named - len(self._by_tags)
        if room > 0:
            return True
        # If a reload has lowered the bound, the table is too large. Then two buckets are evicted for each new one.
        evicted = [self._evict(now_ms) for _ in range(1 if room == 0 else 2)]
        return any(evicted)

    def count_named(self, named: Mapping[Tags, bool]) -> None:
        """Note that buckets gained a rule of their own, or lost it if the value for their tags is False."""
        # Python goes through the smaller of the two: a file may change far more rules than there are buckets.
        for tags in self._by_tags.keys() & named.keys():
            self._named += 1 if named[tags] else -1

    def recheck_parked(self, *, now_ms: int, most: int) -> None:
        """Check again up to ``most`` of the buckets that could not be evicted earlier and are due for another check.

        Those that may be evicted now become candidates for eviction. Each of the others is checked again later.
        """
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
        """If ``bucket`` may not be evicted now, arrange for another check later. Return whether that was necessary."""
        until_ms = self._owes_until_ms(bucket, now_ms)
        if bucket.is_in_use:
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
