"""Reads the metrics of client quotas: the limits, and the usage of each entity (a user, a client-id, or both)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from math import isnan, nan
from operator import attrgetter
from threading import Lock
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import EntityName
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.admin.metrics.exposition import (
    PROXY,
    Family,
    Metric,
    Namespace,
    Rest,
    labels,
    paced,
    summed,
)
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.rule_throttle_times import RuleThrottleTimes
from kafka_quota_proxy.proxy.quota.sanitize import sanitize

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


# For each counter: its name, its help text, and a function that reads the value.
_COUNTERS: Final[tuple[tuple[str, str, Callable[[UsageTotals], float]], ...]] = (
    ("requests", "Requests that were charged.", attrgetter("requests")),
    ("throttled_requests", "Requests that were throttled.", attrgetter("throttled_requests")),
    ("throttle_seconds", "Throttle time that was enforced.", lambda usage: usage.throttle_time_ms / 1_000),
    (
        "observed_throttle_seconds",
        "Throttle time that was computed and not enforced.",
        lambda usage: usage.observed_throttle_time_ms / 1_000,
    ),
)

_OF_TABLES: Final[tuple[Metric[Sequence[ClientQuotaManager]], ...]] = (
    ("buckets", "Buckets in memory, of all brokers.", lambda managers: sum(map(len, managers))),
    ("evicted_buckets_total", "Idle buckets that were evicted to make room.",
     lambda managers: sum(one.evicted for one in managers)),
    ("bucket_overflows_total", "Lookups without room for a bucket of their own; the clients share one for each rule.",
     lambda managers: sum(one.overflows for one in managers)),
)  # fmt: skip


class ClientQuotaMetrics:
    """Collects the metrics of client quotas. It remembers which entities have time series of their own."""

    def __init__(self, *, most_buckets: int | None = None) -> None:
        self._names = {kind: Names() if most_buckets is None else Names(most_buckets) for kind in BUCKET_KINDS}

    def collect(self, quotas: Sequence[BrokerQuotas], rest: Rest, *, now_ms: int, has_values: bool) -> Iterator[Family]:
        """Yield the metrics of client quotas. ``quotas`` contains the quotas of each broker.

        ``rest`` is called after every few rows, so that the event loop can run. ``has_values`` is Kafka's setting
        ``client.quota.metric.value.enable``: if it is True, each limit is also yielded under the name that Prometheus
        exporters give to Kafka's own metric of the limit.
        """
        # The first broker is enough, because all brokers have the same rules.
        yield _limits(manager for one in quotas[:1] for manager in one.managers)
        yield _throttle_times(quotas[0].rules.throttle_times if quotas else {}, rest)
        own: dict[QuotaKind, list[Row]] = {}
        other: dict[QuotaKind, UsageTotals | None] = {}
        managers_of = {kind: [one.manager(kind) for one in quotas] for kind in BUCKET_KINDS}
        managers_of = {kind: managers for kind, managers in managers_of.items() if _is_in_use(kind, managers)}
        for kind, managers in managers_of.items():
            departed = _departed_usage(managers)  # must be read before the rows (see ``Names.divide``)
            rows = read(managers, now_ms=now_ms, rest=rest)
            own[kind], other[kind] = self._names[kind].divide(rows, rest, gone=departed)
        yield from PROXY.table(
            _OF_TABLES, [(labels(kind=kind.label), of_kind) for kind, of_kind in managers_of.items()]
        )
        yield from _of_buckets(own, other, rest)
        for kind, rows in own.items():
            yield from _of_kafka(kind, rows, rest, has_values=has_values)
        for rows in own.values():
            # Rows are freed one by one, because 10,000 at once would hold the interpreter for 5 ms.
            for _ in paced(range(len(rows)), rest):
                rows.pop()


def _limits(managers: Iterable[ClientQuotaManager]) -> Family:
    samples = [
        (labels(kind=manager.kind.label, user=_entity(rule.user), client_id=_entity(rule.client_id)), limit)
        for manager in managers
        for rule in manager.table.rules()
        if (limit := manager.kind.limit_of(rule)) is not None
    ]
    help_ = "The current limit of each rule, per second: bytes, per cent of a thread's time, requests or partitions."
    return PROXY.gauge("quota_limit", help_, samples)


def _throttle_times(times_of: Mapping[QuotaKind, RuleThrottleTimes], rest: Rest) -> Family:
    samples: list[tuple[str, float]] = []
    for kind, times in times_of.items():
        for (user, client_id), time_ms in paced(times.by_entity.copy().items(), rest):
            text = labels(kind=kind.label, user=_entity(user), client_id=_entity(client_id))
            samples.append((text, time_ms / 1_000))
        if times.other_ms:
            text = labels(kind=kind.label, user=OTHER.user, client_id=OTHER.client_id)
            samples.append((text, times.other_ms / 1_000))
    help_ = (
        "Throttle time that each rule caused, over all clients and brokers; rules that never throttled are left out."
    )
    return PROXY.counter("rule_throttle_seconds", help_, summed(samples))


def _is_in_use(kind: QuotaKind, managers: Sequence[ClientQuotaManager]) -> bool:
    """Return whether to show the metrics of a kind of quota.

    Byte rates are always shown, other kinds once a rule has set a limit.
    """
    if kind.spec.is_always_shown:
        return True
    return any(len(manager.table) or len(manager) or manager.departed_usage.requests for manager in managers)


def _of_buckets(
    own: dict[QuotaKind, list[Row]], other: dict[QuotaKind, UsageTotals | None], rest: Rest
) -> Iterator[Family]:
    rows = [
        (labels(kind=kind.label, user=row.tags.user, client_id=row.tags.client_id), row)
        for kind, of_kind in own.items()
        for row in paced(of_kind, rest)
    ]
    usages = [(row.kind, text, row.usage) for text, row in rows]
    usages += [
        (kind, labels(kind=kind.label, user=OTHER.user, client_id=OTHER.client_id), usage)
        for kind, usage in other.items()
        if usage is not None
    ]
    for counter in dict.fromkeys(kind.spec.counter for kind in own):
        if counter is not None:
            per = counter.recorded_per_unit
            amounts = ((text, usage.amount) for kind, text, usage in usages if kind.spec.counter is counter)
            samples = ((text, amount if per == 1 else amount / per) for text, amount in amounts)
            yield PROXY.counter(counter.name, counter.help, samples)
    for name, help_, read_value in _COUNTERS:
        yield PROXY.counter(name, help_, ((text, read_value(usage)) for _, text, usage in usages))
    yield PROXY.gauge(
        "quota_utilisation_ratio",
        "Rate over limit of each active bucket.",
        ((text, row.utilisation) for text, row in rows if row.utilisation is not None),
    )
    yield PROXY.counter(
        "quota_used_seconds",
        "What was charged, in seconds at the current limit; the sum over all brokers.",
        ((text, row.used_s) for text, row in rows if row.utilisation is not None),
    )


def _of_kafka(kind: QuotaKind, own: Iterable[Row], rest: Rest, *, has_values: bool) -> Iterator[Family]:
    names = kind.spec.kafka_metrics
    if names is None:
        return
    kafka = Namespace(f"kafka_server_{names.group}")
    rows = [(labels(user=sanitize(row.tags.user), client_id=row.tags.client_id), row) for row in paced(own, rest)]
    yield kafka.gauge(names.rate, f"The measured rate, {names.unit}.", ((text, row.rate) for text, row in rows))
    if names.has_tokens:
        tokens = ((text, row.tokens) for text, row in rows if row.tokens is not None)
        yield kafka.gauge("tokens", "Partitions that may be created or deleted now; negative if too many were.", tokens)
    yield kafka.gauge(
        "throttle_time",
        "Mean throttle time of the last minute, ms; NaN if there was none.",
        ((text, row.throttle_time_ms) for text, row in rows),
    )
    if has_values and names.value is not None:
        limits = ((text, row.limit) for text, row in rows if row.limit is not None)
        yield kafka.gauge(names.value, f"The current limit, {names.unit}.", limits)


def _departed_usage(managers: Iterable[ClientQuotaManager]) -> UsageTotals:
    total = NO_USAGE
    for manager in managers:
        total = total.plus(manager.departed_usage)
    return total


def _entity(name: EntityName) -> str:
    return "" if name is None else str(name)
