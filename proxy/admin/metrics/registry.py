"""Every metric of the proxy: its own family in base units, and Kafka's, by the names that its exporters use."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from typing import Final, Protocol

from kafka_quota_proxy.config.model import EntityName
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.protocol.api import API_NAMES
from kafka_quota_proxy.proxy.admin.metrics import (
    broker_quotas,
    connections,
    fair_queue,
    quota_changes,
    quota_store,
    quota_topics,
    replication,
    usage_log,
)
from kafka_quota_proxy.proxy.admin.metrics.buckets import OTHER, Names, Row, read
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Rest, labels, paced, rest
from kafka_quota_proxy.proxy.background.isolation import internal_errors
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.sanitize import sanitize
from kafka_quota_proxy.proxy.quota.usage_totals import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.server.latency import BOUNDS_NS
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session.counters import OTHER as OTHER_API

_PREFIX: Final = "kafka_quota_proxy"
_BOUNDS: Final = (*(repr(bound / 1e9) for bound in BOUNDS_NS), "+Inf")


def _seconds(time_ms: int) -> float:
    return time_ms / 1_000


# name, what it means, how it is read
_COUNTERS: Final[tuple[tuple[str, str, Callable[[UsageTotals], float]], ...]] = (
    ("requests", "Requests that were charged.", attrgetter("requests")),
    ("throttled_requests", "Requests that were answered with a wait.", attrgetter("throttled_requests")),
    ("throttle_seconds", "Waits that were enforced.", lambda usage: _seconds(usage.throttle_time_ms)),
    (
        "observed_throttle_seconds",
        "Waits that were computed and not enforced.",
        lambda usage: _seconds(usage.observed_throttle_time_ms),
    ),
)


class Reloads(Protocol):
    """What is asked of ``proxy.server.config_reloader.Reloader``."""

    last_reload_successful: bool
    last_reload_timestamp_seconds: float

    @property
    def hash(self) -> str:
        """Which content is in force."""


class Families:
    """The metrics of one proxy; to be kept, for it remembers which buckets have names."""

    def __init__(self, server: Server, reloads: Reloads, *, most_buckets: int | None = None) -> None:
        self._server = server
        self._reloads = reloads
        self._names = {kind: Names() if most_buckets is None else Names(most_buckets) for kind in BUCKET_KINDS}

    def at(self, now_ms: int, rest: Rest = rest) -> Iterator[Family]:
        """Return all families, read as they are asked for; ``now_ms`` is on the clock of the connections."""
        quotas = self._server.brokers.quotas
        ports = list(self._server.listeners)
        yield from _of_configuration(self._reloads)
        yield _of_internal_errors()
        yield from _of_listeners(ports, now_ms)
        yield _added_latency(ports)
        yield from _of_certificates(self._server)
        yield from replication.families(
            self._server.replication.throttle, self._server.replication.watcher, ports, now_ms
        )
        yield from connections.families(self._server.brokers.quotas_by_name, ports, now_ms)
        yield from fair_queue.families(self._server.brokers.queues_by_name, ports)
        yield from usage_log.families(self._server.usage)
        yield from quota_topics.families(self._server.quota_topic, self._server.quota_manager.topic)
        yield from broker_quotas.families(self._server.broker_quotas)
        yield from quota_store.families(self._server.quota_manager)
        yield from quota_changes.families(self._server.quota_manager.change_log)
        # All brokers have the same rules.
        yield _limits(manager for one in quotas[:1] for manager in one.managers)
        own: dict[QuotaKind, list[Row]] = {}
        other: dict[QuotaKind, UsageTotals | None] = {}
        managers_of = {kind: [one.manager(kind) for one in quotas] for kind in BUCKET_KINDS}
        managers_of = {kind: managers for kind, managers in managers_of.items() if _is_in_use(kind, managers)}
        for kind, managers in managers_of.items():
            gone = _gone(managers)  # first: see there
            rows = read(managers, now_ms=now_ms, rest=rest)
            own[kind], other[kind] = self._names[kind].divide(rows, rest, gone=gone)
        yield from _of_tables(managers_of)
        yield from _of_buckets(own, other, rest)
        has_values = self._server.config.kafka.client_quota_metric_value_enable
        for kind, rows in own.items():
            yield from _of_kafka(kind, rows, rest, has_values=has_values)
        for rows in own.values():
            # Freed in one step, 10,000 of them would hold the interpreter for 5 ms.
            for _ in paced(range(len(rows)), rest):
                rows.pop()


def _of_configuration(reloads: Reloads) -> Iterator[Family]:
    yield _gauge(
        "config_last_reload_successful",
        "Whether the configuration was taken when it last changed.",
        [("", int(reloads.last_reload_successful))],
    )
    yield _gauge(
        "config_last_reload_timestamp_seconds",
        "When a configuration was last taken, Unix time.",
        [("", reloads.last_reload_timestamp_seconds)],
    )
    yield _gauge("config_info", "Which configuration is in force.", [(labels(hash=reloads.hash), 1)])
    yield _gauge("build_info", "Which program this is.", [(labels(version=VERSION), 1)])


def _of_listeners(ports: Sequence[ListenerState], now_ms: int) -> Iterator[Family]:
    open_connections: list[tuple[str, float]] = []
    muted: list[tuple[str, float]] = []
    disconnects: list[tuple[str, float]] = []
    logins: list[tuple[str, float]] = []
    frames: dict[str, int] = {}
    unknown: dict[str, int] = {}
    errors: dict[str, int] = {}
    for port in ports:
        open_now = tuple(port.connections)
        open_connections.append((labels(listener=port.name), len(open_now)))
        muted.append((labels(listener=port.name), sum(one.session.muted_until_ms > now_ms for one in open_now)))
        counters = port.counters
        for cause, count in counters.disconnects.copy().items():
            disconnects.append((labels(listener=port.name, cause=cause), count))
        for (mechanism, result), count in counters.logins.copy().items():
            logins.append((labels(listener=port.name, mechanism=mechanism, result=result), count))
        _add(frames, ((labels(api=_api(key)), count) for key, count in enumerate(counters.frames) if count))
        _add(unknown, ((labels(api_key=_api_key(key)), n) for key, n in counters.unknown_apis.copy().items()))
        _add(errors, ((labels(reason=reason), n) for reason, n in counters.protocol_errors.copy().items()))
    yield _gauge("connections", "Open client connections.", open_connections)
    yield _gauge("muted_connections", "Client connections that wait out a throttle time.", muted)
    yield _counter("frames", "Requests by API.", frames.items())
    yield _counter("unknown_api", "Requests whose API or version is not known here; they pass.", unknown.items())
    yield _counter("protocol_errors", "Bytes that were not Kafka's protocol.", errors.items())
    yield _counter("disconnects", "Ends of client connections.", disconnects)
    yield _gauge(
        "awaited_answers",
        "Connections to brokers that are kept for an answer whose client is gone.",
        [(labels(listener=port.name), len(port.orphans)) for port in ports],
    )
    yield _counter(
        "late_answers",
        "Ends of connections to brokers that were kept for an answer whose client is gone.",
        [
            (labels(listener=port.name, result=result), count)
            for port in ports
            for result, count in port.orphans.counts.items()
        ],
    )
    yield _counter("logins", "Ends of SASL logins; unknown: accepted, and it cannot be told whom.", logins)


def _of_certificates(server: Server) -> Iterator[Family]:
    contexts = [
        (labels(listener=listener.name, side=side), server.tls[settings])
        for listener in server.started_with.listeners
        for side, settings in (("client", listener.client_tls), ("upstream", listener.upstream_tls))
        if settings is not None
    ]
    yield _gauge(
        "tls_last_reload_successful",
        "Whether certificates, key and CA were taken when their files last changed.",
        [(text, int(context.last_reload_successful)) for text, context in contexts],
    )
    yield _gauge(
        "tls_certificate_expiry_timestamp_seconds",
        "Until when the certificate that is shown holds, Unix time.",
        [(text, context.expires_at.timestamp()) for text, context in contexts if context.expires_at is not None],
    )


def _added_latency(ports: Iterable[ListenerState]) -> Family:
    counts: dict[int, list[int]] = {}
    sums_ns: dict[int, int] = {}
    for port in ports:
        for api_key, per_bound in port.latency.counts.copy().items():
            known = counts.get(api_key) or [0] * len(per_bound)
            counts[api_key] = [mine + its for mine, its in zip(known, per_bound, strict=True)]
            sums_ns[api_key] = sums_ns.get(api_key, 0) + port.latency.sums_ns.get(api_key, 0)
    samples: list[tuple[str, float]] = []
    for api_key, per_bound in counts.items():
        up_to_here = 0
        for bound, count in zip(_BOUNDS, per_bound, strict=True):
            up_to_here += count
            samples.append(("_bucket" + labels(api=_api(api_key), le=bound), up_to_here))
        samples.append(("_count" + labels(api=_api(api_key)), up_to_here))
        samples.append(("_sum" + labels(api=_api(api_key)), sums_ns[api_key] / 1e9))
    help_ = "Time that a request and its response were inside the proxy, throttling excluded."
    return Family(f"{_PREFIX}_added_latency_seconds", "histogram", help_, samples)


def _limits(managers: Iterable[ClientQuotaManager]) -> Family:
    samples = [
        (labels(kind=manager.kind.label, user=_entity(rule.user), client_id=_entity(rule.client_id)), limit)
        for manager in managers
        for rule in manager.table.rules()
        if (limit := manager.kind.limit_of(rule)) is not None
    ]
    help_ = "The limit in force of each rule: bytes, per cent of a thread's time, requests or partitions, per second."
    return _gauge("quota_limit", help_, samples)


def _is_in_use(kind: QuotaKind, managers: Sequence[ClientQuotaManager]) -> bool:
    """Whether a kind is shown: bytes always are, of all others those that limit somebody or did."""
    if kind.spec.is_always_shown:
        return True
    return any(len(manager.table) or len(manager) or manager.departed_usage.requests for manager in managers)


def _of_tables(managers_of: Mapping[QuotaKind, Sequence[ClientQuotaManager]]) -> Iterator[Family]:
    managers = {labels(kind=kind.label): of_a_kind for kind, of_a_kind in managers_of.items()}

    def total(value: Callable[[ClientQuotaManager], int]) -> list[tuple[str, float]]:
        return [(text, sum(map(value, of_a_kind))) for text, of_a_kind in managers.items()]

    yield _gauge("buckets", "Buckets that are kept, at all brokers.", total(len))
    yield _counter("evicted_buckets", "Idle buckets that made room for others.", total(attrgetter("evicted")))
    yield _counter(
        "bucket_overflows",
        "Look-ups that found no place for a bucket: the client shares one with all such clients of its rule.",
        total(attrgetter("overflows")),
    )


def _of_buckets(
    own: dict[QuotaKind, list[Row]], other: dict[QuotaKind, UsageTotals | None], rest: Rest
) -> Iterator[Family]:
    rows = [
        (labels(kind=kind.label, user=row.tags.user, client_id=row.tags.client_id), row)
        for kind, of_a_kind in own.items()
        for row in paced(of_a_kind, rest)
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
            yield _counter(counter.name, counter.help, samples)
    for name, help_, read_off in _COUNTERS:
        yield _counter(name, help_, ((text, read_off(usage)) for _, text, usage in usages))
    yield _gauge(
        "quota_utilisation_ratio",
        "Rate over limit of each active bucket.",
        ((text, row.utilisation) for text, row in rows if row.utilisation is not None),
    )
    yield _counter(
        "quota_used_seconds",
        "What was charged, in seconds of the limit in force; of all brokers together.",
        ((text, row.used_s) for text, row in rows if row.utilisation is not None),
    )


def _of_kafka(kind: QuotaKind, own: Iterable[Row], rest: Rest, *, has_values: bool) -> Iterator[Family]:
    names = kind.spec.kafka_metrics
    if names is None:
        return
    prefix = f"kafka_server_{names.group}"
    rows = [(labels(user=sanitize(row.tags.user), client_id=row.tags.client_id), row) for row in paced(own, rest)]
    rates = ((text, row.rate) for text, row in rows)
    yield Family(f"{prefix}_{names.rate}", "gauge", f"What is measured, {names.unit}.", rates)
    if names.has_tokens:
        tokens = ((text, row.tokens) for text, row in rows if row.tokens is not None)
        help_ = "Partitions that may be created or deleted now; below 0: that are owed."
        yield Family(f"{prefix}_tokens", "gauge", help_, tokens)
    yield Family(
        f"{prefix}_throttle_time",
        "gauge",
        "Mean throttle time of the last minute, ms; NaN where there was none.",
        ((text, row.throttle_time_ms) for text, row in rows),
    )
    if has_values and names.value is not None:
        yield Family(
            f"{prefix}_{names.value}",
            "gauge",
            f"The limit in force, {names.unit}.",
            ((text, row.limit) for text, row in rows if row.limit is not None),
        )


def _of_internal_errors() -> Family:
    help_ = "Exceptions that this program did not expect, by the part of it that was at work. Each ended one thing."
    return _counter("internal_errors", help_, [(labels(where=where), n) for where, n in [*internal_errors.items()]])


def _gauge(name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
    return Family(f"{_PREFIX}_{name}", "gauge", help_, samples)


def _counter(name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
    return Family(f"{_PREFIX}_{name}_total", "counter", help_, samples)


def _gone(managers: Iterable[ClientQuotaManager]) -> UsageTotals:
    total = NO_USAGE
    for manager in managers:
        total = total.plus(manager.departed_usage)
    return total


def _entity(name: EntityName) -> str:
    return "" if name is None else str(name)


def _api(key: int) -> str:
    return "other" if key == OTHER_API else API_NAMES.get(key, str(key))


def _api_key(key: int) -> str:
    return "other" if key == OTHER_API else str(key)


def _add(counts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for text, count in more:
        counts[text] = counts.get(text, 0) + count


def _version() -> str:
    try:
        return version("kafka-quota-proxy")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = _version()
