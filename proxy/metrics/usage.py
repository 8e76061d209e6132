"""What each bucket has used, and which buckets have series of their own.

Clients name their buckets, so there may be any number. Up to ``MAX_BUCKETS`` have series of their own, and keep them
while they are active; the rest is summed under ``other``. Every counter only grows, also when a bucket moves out of
``other`` or expires there, for Prometheus takes a counter that falls for a restart. The sum over all series is what was
counted.
"""

from collections.abc import Iterable
from heapq import nlargest
from math import isnan, nan
from threading import Lock
from typing import Final, NamedTuple

from proxy.metrics.text import Rest, paced
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.entity import QuotaKind, Tags

# Of a kind. Nine series each: 90,000 lines and 9 MB (0.3 MB with gzip) in a scrape, which takes about two seconds, nine
# tenths of them at rest.
MAX_BUCKETS: Final = 10_000
OTHER: Final = Tags("other", "other")


class Usage(NamedTuple):
    """What was counted."""

    amount: int = 0
    requests: int = 0
    throttled_requests: int = 0
    throttle_time_ms: int = 0
    observed_throttle_time_ms: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum."""
        return Usage(*(mine + its for mine, its in zip(self, other, strict=True)))

    def minus(self, other: "Usage") -> "Usage":
        """Return the difference."""
        return Usage(*(mine - its for mine, its in zip(self, other, strict=True)))


NOTHING: Final = Usage()


class Row(NamedTuple):
    """One bucket, all of it read at the same moment; buckets of one name at several brokers are one row.

    Byte rates add up. The limit holds at each broker alone, so utilisation and throttle time are those of the worst.
    """

    kind: QuotaKind
    tags: Tags
    usage: Usage
    byte_rate: float
    utilisation: float | None  # None without a limit
    throttle_time_ms: float  # mean of the last minute; NaN: was not throttled
    limit: float | None


def read(managers: Iterable[ClientQuotaManager], *, now_ms: int, rest: Rest) -> list[Row]:
    """Return a row for each name that was ever charged; ``managers`` are of one kind, one for each broker."""
    rows: dict[Tags, Row] = {}
    for manager in managers:
        for bucket in paced(manager, rest):
            if bucket.requests:
                row = _row(manager, bucket, now_ms)
                known = rows.get(bucket.tags)
                rows[bucket.tags] = row if known is None else _together(known, row)
    return list(rows.values())


def _row(manager: ClientQuotaManager, bucket: Bucket, now_ms: int) -> Row:
    byte_rate = bucket.rate.peek(now_ms=now_ms)
    limit = manager.limit_of(bucket)
    return Row(
        bucket.kind,
        bucket.tags,
        Usage(
            bucket.amount,
            bucket.requests,
            bucket.throttled_requests,
            bucket.throttle_time_ms,
            bucket.observed_throttle_time_ms,
        ),
        byte_rate,
        byte_rate / limit if limit else None,
        bucket.throttle_time.peek(now_ms=now_ms) if bucket.throttled_requests else nan,
        limit,
    )


def _together(one: Row, other: Row) -> Row:
    parts = [part for part in (one.utilisation, other.utilisation) if part is not None]
    waits = [wait for wait in (one.throttle_time_ms, other.throttle_time_ms) if not isnan(wait)]
    return one._replace(
        usage=one.usage.plus(other.usage),
        byte_rate=one.byte_rate + other.byte_rate,
        utilisation=max(parts, default=None),
        throttle_time_ms=max(waits, default=nan),
    )


class Names:
    """Which buckets of a kind have series of their own. Shared by all scrapes."""

    def __init__(self, most: int = MAX_BUCKETS) -> None:
        self._most = most
        self._lock = Lock()
        # Each with what it had counted under "other" before it had a name: its own series go without that.
        self._named: dict[Tags, Usage] = {}
        self._unnamed: dict[Tags, Usage] = {}  # what each had counted when it was last seen
        self._other = NOTHING

    def divide(self, rows: Iterable[Row], rest: Rest) -> tuple[list[Row], Usage | None]:
        """Return the rows with series of their own, and the sum of the others; None where there never were others."""
        by_tags = {row.tags: row for row in rows}
        with self._lock:
            self._named = {tags: before for tags, before in self._named.items() if tags in by_tags}
            self._unnamed = {tags: seen for tags, seen in self._unnamed.items() if tags in by_tags}
            new = [row for tags, row in by_tags.items() if tags not in self._named and tags != OTHER]
            free = self._most - len(self._named)
            if len(new) > free:
                new = nlargest(free, new, key=lambda row: row.usage.amount)
            for row in new:
                self._named[row.tags] = self._unnamed.pop(row.tags, NOTHING)
            own: list[Row] = []
            for tags, row in paced(by_tags.items(), rest, every=500):
                if tags in self._named:
                    own.append(self._own(row))
                else:
                    self._fold(row)
            return own, None if self._other is NOTHING else self._other

    def _own(self, row: Row) -> Row:
        before = self._named[row.tags]
        if before is NOTHING:
            return row
        if before.requests > row.usage.requests:  # it expired and came back since the last scrape
            self._named[row.tags] = NOTHING
            return row
        return row._replace(usage=row.usage.minus(before))

    def _fold(self, row: Row) -> None:
        seen = self._unnamed.get(row.tags, NOTHING)
        if seen.requests > row.usage.requests:
            seen = NOTHING
        self._other = self._other.plus(row.usage.minus(seen))
        self._unnamed[row.tags] = row.usage
