"""Metrics: the plain integers that the loop counts in, put into words when somebody asks.

``ProxyCollector.collect`` runs in the thread of a scrape while the loop goes on changing what it reads. So nothing is
locked, nothing is changed, and a container is copied in one step of the interpreter before it is walked. Numbers of one
scrape may be some microseconds apart.
"""

import logging
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from math import isnan, nan
from time import monotonic_ns
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from config.model import EntityName
from protocol.api import API_NAMES
from proxy.counters import OTHER
from proxy.latency import BOUNDS_NS
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.entity import Tags
from proxy.quota.sanitize import sanitize
from proxy.server import Server

log = logging.getLogger(__name__)

_PREFIX: Final = "kafka_quota_proxy"
_BUCKET_LABELS: Final = ("kind", "user", "client_id")
_KAFKA_LABELS: Final = ("user", "client_id")
# A client names its buckets itself, so they can be many. Each has up to nine series, of some 8 us of the interpreter
# and 100 bytes a scrape: 2,000 of a kind keep a scrape under half a second and a Prometheus server in good temper.
MAX_BUCKETS: Final = 2_000
OTHERS: Final = Tags("other", "other")


class Reloads(Protocol):
    """What is asked of ``proxy.reload.Reloader``."""

    @property
    def last_reload_successful(self) -> bool:
        """Whether the file was taken when it was last read."""

    @property
    def last_reload_timestamp_seconds(self) -> float:
        """When a file was last taken; Unix time."""

    @property
    def hash(self) -> str:
        """Which file is in force."""


class Usage(NamedTuple):
    """What buckets of the same name have counted, at all brokers together."""

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


def usage_of(buckets: Iterable[Bucket]) -> Usage:
    """Return what ``buckets`` have counted together."""
    total = Usage()
    for bucket in buckets:
        total = total.plus(
            Usage(
                bucket.amount,
                bucket.requests,
                bucket.throttled_requests,
                bucket.throttle_time_ms,
                bucket.observed_throttle_time_ms,
            )
        )
    return total


class ProxyCollector(Collector):
    """All metrics of one proxy."""

    def __init__(self, server: Server, reloads: Reloads) -> None:
        self._server = server
        self._reloads = reloads

    def collect(self) -> Iterator[Metric]:
        """Return every family, as it is now."""
        now_ms = monotonic_ns() // 1_000_000
        upstreams = list(self._server.upstreams.values())
        yield from self._configuration()
        yield from self._listeners(now_ms)
        yield self._latency()
        managers = [
            [upstream.quotas.produce for upstream in upstreams],
            [upstream.quotas.fetch for upstream in upstreams],
        ]
        yield _limits(of_a_kind[0] for of_a_kind in managers if of_a_kind)
        active = [_active(of_a_kind) for of_a_kind in managers]
        yield from _own_family(managers, active, now_ms)
        has_values = self._server.config.kafka.client_quota_metric_value_enable
        for of_a_kind, buckets in zip(managers, active, strict=True):
            if of_a_kind:
                yield from _kafka_family(of_a_kind, buckets, has_values, now_ms)

    def _configuration(self) -> Iterator[Metric]:
        reloads = self._reloads
        yield GaugeMetricFamily(
            f"{_PREFIX}_config_last_reload_successful",
            "Whether the configuration was taken when it last changed.",
            value=float(reloads.last_reload_successful),
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}_config_last_reload_timestamp_seconds",
            "When a configuration was last taken.",
            value=reloads.last_reload_timestamp_seconds,
        )
        yield InfoMetricFamily(f"{_PREFIX}_config", "Which configuration is in force.", value={"hash": reloads.hash})
        yield InfoMetricFamily(f"{_PREFIX}_build", "Which program this is.", value={"version": VERSION})

    def _listeners(self, now_ms: int) -> Iterator[Metric]:
        connections = GaugeMetricFamily(f"{_PREFIX}_connections", "Open client connections.", labels=["listener"])
        muted = GaugeMetricFamily(
            f"{_PREFIX}_muted_connections",
            "Client connections that are waiting out a throttle time.",
            labels=["listener"],
        )
        frames = CounterMetricFamily(f"{_PREFIX}_frames", "Requests by API.", labels=["api"])
        unknown = CounterMetricFamily(
            f"{_PREFIX}_unknown_api",
            "Requests of an API or version that is not known here; they pass.",
            labels=["api_key"],
        )
        errors = CounterMetricFamily(
            f"{_PREFIX}_protocol_errors", "Bytes that were not Kafka's protocol.", labels=["reason"]
        )
        disconnects = CounterMetricFamily(
            f"{_PREFIX}_disconnects", "Ends of client connections.", labels=["listener", "cause"]
        )
        by_api: dict[str, int] = {}
        by_key: dict[str, int] = {}
        by_reason: dict[str, int] = {}
        for port in list(self._server.ports):
            open_now = tuple(port.connections)
            connections.add_metric([port.name], len(open_now))
            muted.add_metric([port.name], sum(one.session.muted_until_ms > now_ms for one in open_now))
            counters = port.listening.counters
            _add(
                by_api,
                {API_NAMES.get(key, str(key)): count for key, count in enumerate(list(counters.frames)) if count},
            )
            _add(by_key, {_api_key(key): count for key, count in counters.unknown_apis.copy().items()})
            _add(by_reason, counters.protocol_errors.copy())
            for cause, count in counters.disconnects.copy().items():
                disconnects.add_metric([port.name, cause], count)
        for family, counts in ((frames, by_api), (unknown, by_key), (errors, by_reason)):
            for label, count in counts.items():
                family.add_metric([label], count)
        yield from (connections, muted, frames, unknown, errors, disconnects)

    def _latency(self) -> Metric:
        family = HistogramMetricFamily(
            f"{_PREFIX}_added_latency_seconds",
            "Time that a request and its response were inside the proxy, throttling excluded.",
            labels=["api"],
        )
        counts: dict[int, list[int]] = {}
        sums_ns: dict[int, int] = {}
        for port in list(self._server.ports):
            for api_key, per_bound in port.latency.counts.copy().items():
                known = counts.get(api_key) or [0] * len(per_bound)
                counts[api_key] = [mine + its for mine, its in zip(known, list(per_bound), strict=True)]
                sums_ns[api_key] = sums_ns.get(api_key, 0) + port.latency.sums_ns.get(api_key, 0)
        for api_key, per_bound in counts.items():
            total = 0
            buckets: list[tuple[str, float]] = []
            for bound, count in zip(_BOUNDS, per_bound, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric([_api(api_key)], buckets, sum_value=sums_ns[api_key] / 1e9)
        return family


def _limits(managers: Iterable[ClientQuotaManager]) -> Metric:
    family = GaugeMetricFamily(
        f"{_PREFIX}_quota_limit", "The limit in force of each rule, bytes per second.", labels=_BUCKET_LABELS
    )
    for manager in managers:
        for rule in manager.table.rules():
            limit = manager.kind.limit_of(rule)
            if limit is not None:
                family.add_metric([manager.kind.label, _entity(rule.user), _entity(rule.client_id)], limit)
    return family


Active = dict[Tags, list[Bucket]]


def _active(managers: Iterable[ClientQuotaManager]) -> Active:
    """Return the buckets that were ever charged, those of the same name at several brokers together."""
    active: Active = {}
    for manager in managers:
        for bucket in manager:
            if bucket.requests:
                active.setdefault(bucket.tags, []).append(bucket)
    return active


def _own_family(managers: list[list[ClientQuotaManager]], active: list[Active], now_ms: int) -> Iterator[Metric]:
    counters = [
        CounterMetricFamily(f"{_PREFIX}_bytes", "Bytes that were charged.", labels=_BUCKET_LABELS),
        CounterMetricFamily(f"{_PREFIX}_requests", "Requests that were charged.", labels=_BUCKET_LABELS),
        CounterMetricFamily(
            f"{_PREFIX}_throttled_requests", "Requests that were answered with a wait.", labels=_BUCKET_LABELS
        ),
        CounterMetricFamily(f"{_PREFIX}_throttle_seconds", "Waits that were enforced.", labels=_BUCKET_LABELS),
        CounterMetricFamily(
            f"{_PREFIX}_observed_throttle_seconds", "Waits that were only observed.", labels=_BUCKET_LABELS
        ),
    ]
    ratio = GaugeMetricFamily(
        f"{_PREFIX}_quota_utilisation_ratio", "Rate over limit, of each active bucket.", labels=_BUCKET_LABELS
    )
    for of_a_kind, by_tags in zip(managers, active, strict=True):
        for tags, buckets in by_tags.items():
            labels = [of_a_kind[0].kind.label, *tags]
            usage = usage_of(buckets)
            values = (*usage[:3], usage.throttle_time_ms / 1_000, usage.observed_throttle_time_ms / 1_000)
            for family, value in zip(counters, values, strict=True):
                family.add_metric(labels, value)
            used = [part for part in (bucket.utilisation(now_ms=now_ms) for bucket in buckets) if part is not None]
            if used:
                ratio.add_metric(labels, max(used))
    yield from counters
    yield ratio


def _kafka_family(
    managers: list[ClientQuotaManager], active: Active, has_values: bool, now_ms: int
) -> Iterator[Metric]:
    kind = managers[0].kind.label
    rate = GaugeMetricFamily(f"kafka_server_{kind}_byte_rate", "Bytes per second.", labels=_KAFKA_LABELS)
    wait = GaugeMetricFamily(
        f"kafka_server_{kind}_throttle_time", "Mean throttle time of the last minute, ms.", labels=_KAFKA_LABELS
    )
    quota = GaugeMetricFamily(
        f"kafka_server_{kind}_byte_quota_value", "The limit in force, bytes per second.", labels=_KAFKA_LABELS
    )
    for tags, buckets in active.items():
        labels = [sanitize(tags.user), tags.client_id]
        rate.add_metric(labels, sum(bucket.rate.peek(now_ms=now_ms) for bucket in buckets))
        means = [bucket.throttle_time.peek(now_ms=now_ms) for bucket in buckets]
        wait.add_metric(labels, max((mean for mean in means if not isnan(mean)), default=nan))
        if has_values:
            limit = managers[0].limit_of(buckets[0])
            if limit is not None:
                quota.add_metric(labels, limit)
    yield from (rate, wait)
    if has_values:
        yield quota


def _entity(name: EntityName) -> str:
    return "" if name is None else str(name)


def _api(key: int) -> str:
    return API_NAMES.get(key, str(key))


def _api_key(key: int) -> str:
    return "other" if key == OTHER else str(key)


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for label, count in more.items():
        counts[label] = counts.get(label, 0) + count


def _version() -> str:
    try:
        return version("kafka-quota-proxy")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = _version()
_BOUNDS: Final = (*(repr(bound / 1e9) for bound in BOUNDS_NS), "+Inf")
