"""Tests which buckets are evicted.

A bucket that may not be evicted now is parked, and checked again at a later time.
"""

from dataclasses import dataclass, field

import pytest

from kafka_quota_proxy.proxy.quota.bucket_table import BucketTable
from kafka_quota_proxy.proxy.quota.entity import Tags

HOUR_MS = 3_600_000


@dataclass(eq=False)
class Entry:
    tags: Tags
    owes_until_ms: float = 0
    holders: int = 0
    is_in_use: bool = False
    is_listed: bool = False
    is_parked: bool = False


@dataclass
class CountedTable:
    """A table of buckets that counts in ``looks`` how often it has checked the debt of an entry."""

    most: int
    named: set[Tags] = field(default_factory=set)
    looks: int = 0

    def __post_init__(self) -> None:
        self.gone: list[Entry] = []
        self.table = BucketTable[Entry](
            self.most, owes_until_ms=self._owes, is_named=self.named.__contains__, on_removed=self.gone.append
        )

    def _owes(self, entry: Entry, now_ms: int) -> float:
        self.looks += 1
        return entry.owes_until_ms if entry.owes_until_ms > now_ms else 0

    def look_up(self, name: str, *, now_ms: int = 0) -> Entry | None:
        """Return the entry with this name, or a new entry if there is room, or None."""
        tags = Tags("", name)
        entry = self.table.get(tags)
        if entry is None:
            if tags not in self.named and not self.table.make_room(now_ms=now_ms):
                return None
            entry = Entry(tags)
            self.table.add(entry)
        return entry

    def use(self, name: str, *, now_ms: int = 0, owes_until_ms: float = 0) -> Entry | None:
        """Look up an entry, hold it, make it owe until ``owes_until_ms``, and release it."""
        entry = self.look_up(name, now_ms=now_ms)
        if entry is not None:
            entry.holders += 1
            entry.owes_until_ms = max(entry.owes_until_ms, owes_until_ms)
            self.table.release(entry, now_ms=now_ms)
        return entry

    @property
    def names(self) -> str:
        return "".join(sorted(entry.tags.client_id for entry in self.table))


def test_bucket_released_first_is_evicted_first() -> None:
    counted = CountedTable(3)
    for name in "abcab":
        counted.use(name)

    counted.use("d")
    assert counted.names == "abd"
    assert [entry.tags.client_id for entry in counted.gone] == ["c"]
    counted.use("e")
    assert counted.names == "bde"
    assert counted.table.evicted == 2


def test_bucket_with_requests_in_flight_is_not_evicted() -> None:
    counted = CountedTable(1)
    entry = counted.use("a")
    assert entry is not None
    entry.is_in_use = True

    assert counted.use("b", now_ms=0) is None
    entry.is_in_use = False
    assert counted.use("b", now_ms=999) is None  # a parked bucket is checked again after a second
    assert counted.use("b", now_ms=1_000) is not None


def test_named_buckets_do_not_count_and_are_never_evicted() -> None:
    counted = CountedTable(2, named={Tags("", "x"), Tags("", "y")})
    for name in "axbycde":
        assert counted.use(name) is not None
        assert len(counted.table) <= 2 + len([name for name in counted.names if name in "xy"])

    assert counted.names == "dexy"


def test_bucket_that_owes_for_ever_is_rechecked_after_an_hour() -> None:
    """Buckets expire after an hour without use, and the parked list must not keep them alive for longer."""
    counted = CountedTable(2)
    entry = counted.use("a", owes_until_ms=float("inf"))
    assert entry is not None
    counted.table.remove(entry)

    counted.table.recheck_parked(now_ms=HOUR_MS - 1, most=10)
    assert entry.is_parked
    counted.table.recheck_parked(now_ms=HOUR_MS, most=10)
    assert not entry.is_parked
    assert counted.table._parked == []


@pytest.mark.parametrize("most", [100, 10_000])
def test_adding_a_bucket_costs_the_same_while_all_others_owe(most: int) -> None:
    """Otherwise a flood of names would cost more in a larger table."""
    counted = CountedTable(most)
    for number in range(most - 1):
        counted.use(str(number), owes_until_ms=1_000_000)
    counted.looks = 0

    for number in range(1_000):
        assert counted.use(f"new-{number}") is not None

    assert counted.looks <= 3_000


def test_few_buckets_are_rechecked_when_all_debts_end_at_once() -> None:
    counted = CountedTable(10_000)
    for number in range(10_000):
        counted.use(str(number), owes_until_ms=1_000)

    counted.looks = 0
    counted.use("new", now_ms=1_000)

    assert counted.looks < 20


def test_bucket_is_found_behind_more_debtors_than_are_rechecked_at_once() -> None:
    counted = CountedTable(50)
    for number in range(50):
        counted.use(str(number), owes_until_ms=1_000)
    for entry in counted.table:
        entry.owes_until_ms = 9_000 if int(entry.tags.client_id) < 40 else 0

    assert counted.use("new", now_ms=0) is None
    assert counted.use("new", now_ms=1_000) is not None
