"""Reads the metrics of connection quotas: the rate of new connections, refused connections, and open connections."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Metric, Namespace, labels
from kafka_quota_proxy.proxy.quota.address_limits import UNLIMITED_RATE
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas, ListenerQuota
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

_PROXY: Final = Namespace("kafka_quota_proxy", sums_duplicates=True)
_KAFKA: Final = Namespace("kafka_server_socket_server_metrics", sums_duplicates=True)

# Clients choose their names. If there are more names than this, those with the most connections have series.
_MOST_NAMES: Final = 1_000

# The address of a broker as text, and its quotas.
Named = tuple[str, BrokerQuotas]

_OF_LISTENERS: Final[tuple[Metric[ListenerQuota], ...]] = (
    ("connection_creation_limit", "The limit of a listener, connections per second.",
     lambda one: _or_none(one.limit)),
    ("connection_pauses_total", "How often accepting paused.", lambda one: one.paused),
    ("connection_pause_seconds_total", "For how long accepting paused.", lambda one: one.pause_time_ms / 1_000),
    ("throttled_connections_total", "Connections that were refused because their address connected too often.",
     lambda one: one.refused),
    ("observed_throttled_connections_total",
     "Connections that would have paused accepting, or would have been refused, if limits were enforced.",
     lambda one: one.observed),
)  # fmt: skip
_OF_BROKERS: Final[tuple[Metric[ConnectionQuotas], ...]] = (
    ("broker_connection_creation_limit", "The limit of a broker, connections per second.",
     lambda one: _or_none(one.limit)),
    ("connection_addresses", "Addresses whose rate of new connections is measured.", lambda one: one.addresses),
    ("evicted_connection_addresses_total", "Addresses that were evicted to make room.", lambda one: one.evicted),
    ("connection_address_overflows_total",
     "Connections from addresses that share one rate, because the table is full.", lambda one: one.overflows),
)  # fmt: skip
_OF_REFUSED: Final[tuple[Metric[ListenerState], ...]] = (
    ("kept_connections", "Refused connections that are kept open until their throttle time ends.",
     lambda one: len(one.refused_sockets)),
    ("hurried_connections_total", "Refused connections that were closed early because too many were kept.",
     lambda one: one.refused_sockets.hurried),
    ("observed_connections_total", "Connections above a quota on open connections that is only observed.",
     lambda one: one.counters.observed_connections),
)  # fmt: skip


def connection_metrics(brokers: Sequence[Named], listeners: Sequence[ListenerState], now_ms: int) -> Iterator[Family]:
    """Yield the metrics of connection quotas. ``brokers`` contains the address and the quotas of each broker."""
    yield from _of_listeners(
        [
            (labels(listener=listener.name, upstream=name), listener)
            for name, quotas in brokers
            for listener in quotas.arrivals.listeners
        ],
        now_ms,
    )
    arrivals = [(labels(upstream=name), quotas.arrivals) for name, quotas in brokers]
    yield _PROXY.gauge(
        "broker_connection_creation_rate",
        "New connections per second to a broker, without those of inter_broker listeners.",
        [(text, one.rate.peek(now_ms=now_ms)) for text, one in arrivals],
    )
    yield from _PROXY.table(_OF_BROKERS, arrivals)
    yield from _PROXY.table(_OF_REFUSED, [(labels(listener=one.name), one) for one in listeners])
    yield _PROXY.gauge(
        "ip_connection_creation_limit",
        "The limit of each rule for an address, connections per second.",
        [(labels(ip=ip), limit) for _, quotas in brokers[:1] for ip, limit in quotas.arrivals.limits.rules()],
    )
    yield _open_connections([quotas for _, quotas in brokers])


def _of_listeners(rows: Sequence[tuple[str, ListenerQuota]], now_ms: int) -> Iterator[Family]:
    rates = [(text, one.rate.peek(now_ms=now_ms)) for text, one in rows]
    yield _PROXY.gauge(
        "connection_creation_rate", "New connections per second, over the windows of Kafka's measure.", rates
    )
    yield from _PROXY.table(_OF_LISTENERS, rows)
    yield _KAFKA.gauge("connection_accept_rate", "Connections per second.", rates)


def _open_connections(brokers: Sequence[BrokerQuotas]) -> Family:
    most: dict[Tags, int] = {}
    for quotas in brokers:
        table = quotas.connections.table
        for tags, count in quotas.connections.open_now().items() if len(table) else ():
            if table.limit_of_tags(user=tags.user, client_id=tags.client_id) is not None:
                most[tags] = max(most.get(tags, 0), count)
    return _PROXY.gauge(
        "quota_connections",
        "Open connections of users and client-ids that have a limit, at the broker with the most of them.",
        [
            (labels(user=tags.user, client_id=tags.client_id), count)
            for tags, count in nlargest(_MOST_NAMES, most.items(), key=itemgetter(1))
        ],
    )


def _or_none(limit: float) -> float | None:
    return limit if limit < UNLIMITED_RATE else None
