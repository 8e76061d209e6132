"""Reads the usage of each bucket, and decides which buckets have time series of their own in Prometheus.

A bucket records the usage of one entity (a user, a client-id, or both). Clients choose these names, so there may be any
number of buckets. At most ``MAX_BUCKETS`` have series of their own. The usage of all others is added up in one series
named ``other``.

No counter ever decreases, even if a bucket is evicted, because Prometheus would take the decrease for a restart.
"""

from collections.abc import Iterable
from heapq import nlargest
from math import isnan, nan
from threading import Lock
from typing import Final, NamedTuple

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest, paced
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals

# The highest number of buckets with their own series, for each kind of quota. If each bucket has ten series, a scrape
# has 100,000 lines and 10 MB (0.3 MB with gzip). It takes about two seconds, and sleeps for nine tenths of them.
MAX_BUCKETS: Final = 10_000
OTHER: Final = Tags("other", "other")


class Row(NamedTuple):
    """The combined state of one entity's buckets, of which each broker has one.

    Rates and usage are sums over the brokers. Each broker applies the limit separately, so utilisation and throttle
    time are the highest of any broker, and tokens are the lowest.
    """

    kind: QuotaKind
    tags: Tags
    usage: UsageTotals
    rate: float  # in the unit of the limit
    utilisation: float | None  # rate / limit, or None without a limit
    throttle_time_ms: float  # the mean of the last minute, or NaN if nothing was throttled
    limit: float | None
    tokens: float | None  # the tokens that are left now, or None if the quota has no token bucket
    used_s: float = 0.0  # each charged amount divided by the limit at that time, summed up


def read(managers: Iterable[ClientQuotaManager], *, now_ms: int, rest: Rest) -> list[Row]:
    """Return a row for each entity that has been charged.

    ``managers`` contains the quota manager of each broker, all for the same kind of quota. ``rest`` is called after
    every few buckets to let the event loop run.
    """
    rows: dict[Tags, Row] = {}
    for manager in managers:
        for bucket in paced(manager, rest):
            if bucket.usage.requests:
                row = _row(manager, bucket, now_ms)
                known = rows.get(bucket.tags)
                rows[bucket.tags] = row if known is None else _together(known, row)
    return list(rows.values())


def _row(manager: ClientQuotaManager, bucket: Bucket, now_ms: int) -> Row:
    rate = bucket.rate.peek(now_ms=now_ms) / bucket.kind.per_unit
    limit = manager.limit_of(bucket)
    return Row(
        bucket.kind,
        bucket.tags,
        bucket.usage.totals,
        rate,
        rate / limit if limit else None,
        bucket.usage.throttling.average_ms.peek(now_ms=now_ms) if bucket.usage.throttling.requests else nan,
        limit,
        bucket.tokens(now_ms=now_ms),
        bucket.usage.used_s,
    )


def _together(one: Row, other: Row) -> Row:
    parts = [part for part in (one.utilisation, other.utilisation) if part is not None]
    tokens = [left for left in (one.tokens, other.tokens) if left is not None]
    waits = [wait for wait in (one.throttle_time_ms, other.throttle_time_ms) if not isnan(wait)]
    return one._replace(
        usage=one.usage.plus(other.usage),
        rate=one.rate + other.rate,
        utilisation=max(parts, default=None),
        used_s=one.used_s + other.used_s,
        throttle_time_ms=max(waits, default=nan),
        tokens=min(tokens, default=None),
    )


class Names:
    """Chooses the buckets of one kind of quota that have time series of their own, and remembers what they showed."""

    def __init__(self, most: int = MAX_BUCKETS) -> None:
        self._most = most
        self._lock = Lock()
        # For each bucket with its own series: the usage that was counted as "other" before. Its series leave this out.
        self._named: dict[Tags, UsageTotals] = {}
        # For each bucket with its own series: the usage that its series show.
        self._shown: dict[Tags, UsageTotals] = {}
        # For each bucket with its own series: its ``used_s`` at the last scrape, and how much more its series show.
        self._used_s: dict[Tags, tuple[float, float]] = {}
        # For each bucket without its own series: the usage at the last scrape.
        self._unnamed: dict[Tags, UsageTotals] = {}
        self._ended = NO_USAGE  # the usage that series of removed buckets showed
        self._other = NO_USAGE  # the usage that the series "other" shows

    def divide(
        self, rows: Iterable[Row], rest: Rest, *, gone: UsageTotals = NO_USAGE
    ) -> tuple[list[Row], UsageTotals | None]:
        """Return the rows of the buckets with their own series, and the total usage of all other buckets.

        The total is None if every bucket so far has had its own series. ``gone`` is the total usage of removed buckets.
        The caller must read ``gone`` before it reads ``rows``. Otherwise a bucket that is removed in between would
        count twice. After every few rows, ``rest`` is called to let the event loop run.
        """
        by_tags = {row.tags: row for row in rows}
        with self._lock:
            for tags in [tags for tags in self._named if tags not in by_tags]:
                del self._named[tags], self._used_s[tags]
                self._ended = self._ended.plus(self._shown.pop(tags))
            self._unnamed = {tags: usage for tags, usage in self._unnamed.items() if tags in by_tags}
            self._give_names(by_tags)
            own: list[Row] = []
            other = gone.minus(self._ended)
            for tags, row in paced(by_tags.items(), rest, every=200):
                if tags in self._named:
                    own.append(self._own(row))
                    before = self._named[tags]
                else:
                    before = self._unnamed[tags] = row.usage
                if before is not NO_USAGE:
                    other = other.plus(before)
            # A bucket that was evicted after ``gone`` was read and before ``rows`` were read is in neither. So the
            # sum may fall, and the last value is kept until the next scrape.
            self._other = UsageTotals(*map(max, other, self._other))
            return own, None if self._other == NO_USAGE else self._other

    def _give_names(self, by_tags: dict[Tags, Row]) -> None:
        new = [row for tags, row in by_tags.items() if tags not in self._named and tags != OTHER]
        free = self._most - len(self._named)
        if len(new) > free:
            new = nlargest(free, new, key=lambda row: row.usage.amount)
        for row in new:
            before = self._unnamed.pop(row.tags, NO_USAGE)
            # A bucket with fewer requests than before is a new bucket of the same entity.
            self._named[row.tags] = before if before.requests <= row.usage.requests else NO_USAGE
            self._shown[row.tags] = NO_USAGE
            self._used_s[row.tags] = (0.0, 0.0)

    def _own(self, row: Row) -> Row:
        tags = row.tags
        before, shown = self._named[tags], self._shown[tags]
        usage = row.usage if before is NO_USAGE else row.usage.minus(before)
        if any(now < then for now, then in zip(usage, shown, strict=True)):
            # The bucket was evicted and created again since the last scrape. Its series continue from the last values.
            self._named[tags] = row.usage.minus(shown)
            usage = shown
        self._shown[tags] = usage
        used_s, above_s = self._used_s[tags]
        above_s += max(0.0, used_s - row.used_s)
        self._used_s[tags] = (row.used_s, above_s)
        return row if usage is row.usage and not above_s else row._replace(usage=usage, used_s=row.used_s + above_s)
