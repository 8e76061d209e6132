"""Reads the metrics of client quotas: the limits, and the usage of each entity (a user, a client-id, or both)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from kafka_quota_proxy.config.model import EntityName
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.admin.metrics.buckets import OTHER, Names, Row, read
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
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.rule_throttle_times import RuleThrottleTimes
from kafka_quota_proxy.proxy.quota.sanitize import sanitize

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
