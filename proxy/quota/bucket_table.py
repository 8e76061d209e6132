"""A bounded number of buckets by name, and which of them makes room for a new one.

Clients choose their names, so there may be any number of them. When all places are taken, the bucket that nobody has
held for the longest time goes. These never go:

* what somebody holds: a connection keeps its bucket and charges it without asking here again. Were it to go meanwhile,
  the next connection of that name would get a second one, and the name two quotas;
* what is in flight, or owes something, until that is over;
* what a rule names. There are no more of these than rules, so they have places of their own.

No step looks at all buckets. One that cannot go now lies apart until the time when it may, and is not met before.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from kafka_quota_proxy.proxy.quota.entity import Tags

# What holds a bucket back and does not say for how long: requests in flight; the rule that names it.
_IN_FLIGHT_MS: Final = 1_000
_NAMED_MS: Final = 60_000
_AT_A_TIME: Final = 8
_LONGEST_MS: Final = 3_600_000  # after an hour of silence a bucket is forgotten, whatever it owes


class Tenant(Protocol):
    """What is asked of a bucket."""

    tags: Tags
    holders: int  # connections that may charge it without asking again
    in_flight: int
    is_listed: bool  # whether it has a place; written here only
    is_waiting: bool  # whether it lies apart; written here only


_T = TypeVar("_T", bound=Tenant)


class Places(Generic[_T]):
    """The places of one kind of quota.

    Args:
        most: how many there are, beside those for buckets that a rule names.
        owes_until_ms: when a bucket will owe nothing any more if it is not charged; in the past: it owes nothing.
        is_named: whether a rule names a bucket.
        on_gone: told of each bucket whose place was taken away.
    """

    def __init__(
        self,
        most: int,
        *,
        owes_until_ms: Callable[[_T, int], float],
        is_named: Callable[[Tags], bool],
        on_gone: Callable[[_T], None],
    ) -> None:
        self.most = most
        self.evicted = 0
        self._owes_until_ms = owes_until_ms
        self._is_named = is_named
        self._on_gone = on_gone
        self._by_tags: dict[Tags, _T] = {}
        self._named = 0  # of these, how many a rule names
        # Whom nobody holds, who let go first in front. Whoever is held again is found out in his turn.
        self._idle: OrderedDict[_T, None] = OrderedDict()
        # Who cannot go yet, by the time to look again; the number keeps buckets from being compared.
        self._waiting: list[tuple[float, int, _T]] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._by_tags)

    def __iter__(self) -> Iterator[_T]:
        # A copy, made in one step of the interpreter: the metrics thread may ask while the loop adds buckets.
        return iter(list(self._by_tags.values()))

    def get(self, tags: Tags) -> _T | None:
        """Return the bucket of that name."""
        return self._by_tags.get(tags)

    def add(self, bucket: _T) -> None:
        """Give ``bucket`` a place; see ``make_room``."""
        bucket.is_listed = True
        self._by_tags[bucket.tags] = bucket
        self._named += self._is_named(bucket.tags)
        self._idle[bucket] = None

    def remove(self, bucket: _T) -> None:
        """Take the place of ``bucket`` away."""
        self._idle.pop(bucket, None)
        self._unlist(bucket)

    def release(self, bucket: _T, *, now_ms: int) -> None:
        """Take it that one holder less may charge ``bucket``."""
        bucket.holders -= 1
        if bucket.holders or bucket.is_waiting or self._by_tags.get(bucket.tags) is not bucket:
            return  # it has no place, or one of another broker's
        if not self._wait(bucket, now_ms):
            self._idle[bucket] = None
            self._idle.move_to_end(bucket)

    def make_room(self, *, now_ms: int) -> bool:
        """Let the oldest bucket go that may, if all places are taken; return whether one more may be added."""
        room = self.most + self._named - len(self._by_tags)
        if room > 0:
            return True
        # Two for one where there are too many: a reload may have lowered the number.
        went = [self._let_go(now_ms) for _ in range(1 if room == 0 else 2)]
        return any(went)

    def recount(self, named: Iterable[Tags]) -> None:
        """Take it that from now on these are the names in rules."""
        self._named = sum(tags in self._by_tags for tags in named)

    def name(self, tags: Tags, *, is_named: bool) -> None:
        """Take it that a rule names this bucket now and did not before, or the other way round."""
        if tags in self._by_tags:
            self._named += 1 if is_named else -1

    def wake(self, *, now_ms: int, most: int) -> None:
        """Look again at those who lie apart and whose time has come, at so many of them."""
        for _ in range(most):
            if not self._waiting or self._waiting[0][0] > now_ms:
                break
            bucket = heappop(self._waiting)[2]
            bucket.is_waiting = False
            if bucket.is_listed and not bucket.holders and not self._wait(bucket, now_ms):
                # Long silent: nothing that was charged counts any more, so it is the first to go.
                self._idle[bucket] = None
                self._idle.move_to_end(bucket, last=False)

    def _let_go(self, now_ms: int) -> bool:
        self.wake(now_ms=now_ms, most=_AT_A_TIME)
        while self._idle or (self._waiting and self._waiting[0][0] <= now_ms):
            if not self._idle:
                self.wake(now_ms=now_ms, most=_AT_A_TIME)
                continue
            bucket, _ = self._idle.popitem(last=False)
            if not bucket.holders and not self._wait(bucket, now_ms):
                self._unlist(bucket)
                self.evicted += 1
                return True
        return False

    def _unlist(self, bucket: _T) -> None:
        bucket.is_listed = False
        del self._by_tags[bucket.tags]
        self._named -= self._is_named(bucket.tags)
        self._on_gone(bucket)

    def _wait(self, bucket: _T, now_ms: int) -> bool:
        """Put ``bucket`` aside if it may not go now; return whether that is so."""
        until_ms = self._owes_until_ms(bucket, now_ms)
        if bucket.in_flight:
            until_ms = max(until_ms, now_ms + _IN_FLIGHT_MS)
        if self._is_named(bucket.tags):
            until_ms = max(until_ms, now_ms + _NAMED_MS)
        if until_ms <= now_ms:
            return False
        self._idle.pop(bucket, None)
        self._turn += 1
        bucket.is_waiting = True
        heappush(self._waiting, (min(until_ms, now_ms + _LONGEST_MS), self._turn, bucket))
        return True
