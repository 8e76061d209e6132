"""Reads the metrics of listeners and of the process, such as connections, requests, logins and TLS certificates."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.protocol.api import API_NAMES
from kafka_quota_proxy.proxy.admin.metrics.exposition import PROXY, Family, Metric, labels
from kafka_quota_proxy.proxy.runtime.build import implementation, installed_version
from kafka_quota_proxy.proxy.runtime.isolation import internal_errors
from kafka_quota_proxy.proxy.server.brokers.faults import Fault
from kafka_quota_proxy.proxy.server.brokers.known_brokers import KnownBrokers
from kafka_quota_proxy.proxy.server.clients.latency import BOUNDS_NS
from kafka_quota_proxy.proxy.server.config_reloader import LastRead
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.counters import OTHER as OTHER_API

_BUILD: Final = labels(version=installed_version() or "unknown", implementation=implementation())

_BOUNDS: Final = (*(repr(bound / 1e9) for bound in BOUNDS_NS), "+Inf")


class Reloads(Protocol):
    """The results of reloading the configuration file, as the admin port reads them from ``server.config_reloader``."""

    last_reload_successful: bool
    last_reload_timestamp_seconds: float
    last_read: LastRead

    @property
    def hash(self) -> str:
        """The hash of the configuration that is in force."""


_OF_RELOADS: Final[tuple[Metric[Reloads], ...]] = (
    ("config_last_reload_successful", "Whether the last change of the configuration file was accepted.",
     lambda reloads: reloads.last_reload_successful),
    ("config_last_reload_timestamp_seconds", "When a configuration was last accepted, Unix time.",
     lambda reloads: reloads.last_reload_timestamp_seconds),
)  # fmt: skip


_OF_TLS: Final[tuple[Metric[TlsContext], ...]] = (
    ("tls_last_reload_successful", "Whether the last change of certificate, key and CA files was accepted.",
     lambda context: context.last_reload_successful),
    ("tls_certificate_expiry_timestamp_seconds", "When the presented certificate expires, Unix time.",
     lambda context: None if context.expires_at is None else context.expires_at.timestamp()),
)  # fmt: skip


def process_metrics(reloads: Reloads) -> Iterator[Family]:
    """Yield the metrics of the configuration file, the program version and the internal errors."""
    yield from PROXY.single_values(_OF_RELOADS, reloads)
    yield PROXY.gauge("config_info", "Which configuration is in force.", [(labels(hash=reloads.hash), 1)])
    yield PROXY.gauge("build_info", "Which program this is.", [(_BUILD, 1)])
    help_ = "Unexpected exceptions, by the module that the event loop or a thread had called. Each ended one thing."
    yield PROXY.counter("internal_errors", help_, [(labels(where=where), n) for where, n in [*internal_errors.items()]])


def listener_metrics(listeners: Sequence[ListenerState], now_ms: int) -> Iterator[Family]:
    """Yield the metrics of connections, requests and logins."""
    open_connections: list[tuple[str, float]] = []
    muted: list[tuple[str, float]] = []
    waiting: list[tuple[str, float]] = []
    disconnects: list[tuple[str, float]] = []
    logins: list[tuple[str, float]] = []
    frames: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for listener in listeners:
        open_now = tuple(listener.connections)
        open_connections.append((labels(listener=listener.name), len(open_now)))
        muted.append((labels(listener=listener.name), sum(one.session.muted_until_ms > now_ms for one in open_now)))
        reasons = Counter(one.state.blocked_by for one in open_now)
        waiting += ((labels(listener=listener.name, waits_for=by.value), reasons[by]) for by in BlockedBy)
        counters = listener.counters
        for cause, count in counters.disconnects.copy().items():
            disconnects.append((labels(listener=listener.name, cause=cause), count))
        for (mechanism, result), count in counters.logins.copy().items():
            logins.append((labels(listener=listener.name, mechanism=mechanism, result=result), count))
        for key, count in enumerate(counters.frames):
            if count:
                frames[labels(api=_api(key))] += count
        for key, count in counters.unknown_apis.copy().items():
            unknown[labels(api_key="other" if key == OTHER_API else str(key))] += count
        for reason, count in counters.protocol_errors.copy().items():
            errors[labels(reason=reason)] += count
    yield PROXY.gauge("connections", "Open client connections.", open_connections)
    yield PROXY.gauge("muted_connections", "Client connections that wait for the end of a throttle time.", muted)
    help_ = "Client connections whose next request waits, by what it waits for."
    yield PROXY.gauge("waiting_connections", help_, waiting)
    yield PROXY.counter("frames", "Requests by API.", frames.items())
    yield PROXY.counter("unknown_api", "Forwarded requests whose API or version is unknown here.", unknown.items())
    yield PROXY.counter(
        "protocol_errors",
        "Errors in the bytes of clients and brokers, which were not Kafka's protocol.",
        errors.items(),
    )
    yield PROXY.counter("disconnects", "Ends of client connections.", disconnects)
    yield PROXY.counter(
        "abandoned_requests",
        "Requests that were not forwarded, because their clients had gone while they waited for a quota.",
        [(labels(listener=listener.name), listener.counters.abandoned) for listener in listeners],
    )
    yield PROXY.gauge(
        "awaited_answers",
        "Connections to brokers that wait for the response to a fetch whose client is gone.",
        [(labels(listener=listener.name), len(listener.orphans)) for listener in listeners],
    )
    yield PROXY.counter(
        "late_answers",
        "Connections to brokers that waited for the response to a fetch whose client is gone, by how they ended.",
        [
            (labels(listener=listener.name, result=result), count)
            for listener in listeners
            for result, count in listener.orphans.counts.items()
        ],
    )
    yield PROXY.counter(
        "logins", "SASL logins, by result; unknown: accepted, but the mechanism does not show the user.", logins
    )


def upstream_metric(faults: Mapping[Address, Fault | None]) -> Family:
    """Return the metric of which brokers are reached, and why others are not."""
    help_ = "Whether the broker can be reached; reason: why not."
    samples = [
        (labels(broker=str(one), reason=fault.reason if fault else ""), float(not fault))
        for one, fault in faults.items()
    ]
    return PROXY.gauge("upstream_reachable", help_, samples)


def bypass_metric(brokers: KnownBrokers) -> Family:
    """Return the metric of which brokers send clients past the proxy. Only those of ``upstream`` can."""
    found = brokers.bypasses()
    samples = [(labels(broker=str(one)), float(one in found)) for one in tuple(brokers.single)]
    return PROXY.gauge("upstream_bypassed", "Whether the broker tells clients its own address.", samples)


def certificate_metrics(server: Server) -> Iterator[Family]:
    """Yield the metrics of each listener's certificate files, both for TLS with clients and for TLS with brokers."""
    contexts = [
        (labels(listener=listener.name, side=side), server.tls[settings])
        for listener in server.started_with.listeners
        for side, settings in (("client", listener.client_tls), ("upstream", listener.upstream_tls))
        if settings is not None
    ]
    yield from PROXY.table(_OF_TLS, contexts)


def latency_metric(listeners: Iterable[ListenerState]) -> Family:
    """Return a histogram, by API, of the time that a request and its response spend in the proxy.

    The time for which the proxy throttles them is excluded.
    """
    counts: dict[int, list[int]] = {}
    sums_ns: dict[int, int] = {}
    for listener in listeners:
        for api_key, per_bound in listener.latency.counts.copy().items():
            known = counts.get(api_key) or [0] * len(per_bound)
            counts[api_key] = [mine + its for mine, its in zip(known, per_bound, strict=True)]
            sums_ns[api_key] = sums_ns.get(api_key, 0) + listener.latency.sums_ns.get(api_key, 0)
    samples: list[tuple[str, float]] = []
    for api_key, per_bound in counts.items():
        up_to_here = 0
        for bound, count in zip(_BOUNDS, per_bound, strict=True):
            up_to_here += count
            samples.append(("_bucket" + labels(api=_api(api_key), le=bound), up_to_here))
        samples.append(("_count" + labels(api=_api(api_key)), up_to_here))
        samples.append(("_sum" + labels(api=_api(api_key)), sums_ns[api_key] / 1e9))
    help_ = "Time that a request and its response spent inside the proxy, throttling excluded."
    return Family(f"{PROXY.prefix}_added_latency_seconds", "histogram", help_, samples)


def _api(key: int) -> str:
    return "other" if key == OTHER_API else API_NAMES.get(key, str(key))
