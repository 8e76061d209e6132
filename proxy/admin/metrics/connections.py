"""The metrics of quotas on connections: how fast they come, who is turned away, and how many are open at once."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, labels, summed
from kafka_quota_proxy.proxy.quota.address_limits import UNLIMITED_RATE
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas, ListenerQuota
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

_PREFIX: Final = "kafka_quota_proxy"
_KAFKA: Final = "kafka_server_socket_server_metrics"

# Clients choose their names: of more, those who have most are shown.
_MOST_NAMES: Final = 1_000

# What is read of a broker: its name, and its quotas.
Named = tuple[str, BrokerQuotas]


def families(brokers: Sequence[Named], ports: Sequence[ListenerState], now_ms: int) -> Iterator[Family]:
    """Return them.

    Args:
        brokers: Each by its address; what comes to the bootstrap ports of clusters as one more. A broker may be there
            more than once: behind an ``upstream`` and in a cluster.
        ports: All listeners.
        now_ms: On the clock of the connections.
    """
    rows = [
        (labels(listener=listener.name, upstream=name), listener)
        for name, quotas in brokers
        for listener in quotas.arrivals.listeners
    ]
    yield from _of_listeners(rows, now_ms)
    yield from _of_brokers(brokers, now_ms)
    yield from _of_addresses([(name, quotas.arrivals) for name, quotas in brokers])
    yield _gauge(
        "kept_connections",
        "Connections that are not served, open until their time is over.",
        [(labels(listener=port.name), len(port.refused_sockets)) for port in ports],
    )
    yield _counter(
        "hurried_connections",
        "Of these, who was closed early because too many were kept.",
        [(labels(listener=port.name), port.refused_sockets.hurried) for port in ports],
    )
    yield _gauge(
        "ip_connection_creation_limit",
        "The limit of each rule for an address, connections per second.",
        [(labels(ip=ip), limit) for _, quotas in brokers[:1] for ip, limit in quotas.arrivals.limits.rules()],
    )
    yield from _of_open_connections([quotas for _, quotas in brokers], ports)


def _of_listeners(rows: Sequence[tuple[str, ListenerQuota]], now_ms: int) -> Iterator[Family]:
    rates = [(text, one.rate.peek(now_ms=now_ms)) for text, one in rows]
    yield _gauge(
        "connection_creation_rate", "Connections per second that came, over the windows of Kafka's measure.", rates
    )
    yield _gauge(
        "connection_creation_limit",
        "The limit of a listener, connections per second.",
        [(text, one.limit) for text, one in rows if one.limit < UNLIMITED_RATE],
    )
    yield _counter("connection_pauses", "How often accepting paused.", [(text, one.paused) for text, one in rows])
    yield _counter(
        "connection_pause_seconds",
        "For how long accepting paused.",
        [(text, one.pause_time_ms / 1_000) for text, one in rows],
    )
    yield _counter(
        "throttled_connections",
        "Connections that were not served, for too many came from their address.",
        [(text, one.refused) for text, one in rows],
    )
    yield _counter(
        "observed_throttled_connections",
        "Connections for which accepting would have paused, or that would not have been served.",
        [(text, one.observed) for text, one in rows],
    )
    yield Family(f"{_KAFKA}_connection_accept_rate", "gauge", "Connections per second.", summed(rates))
    yield Family(
        f"{_KAFKA}_connection_accept_throttle_time",
        "gauge",
        "Mean pause of accepting in the last minute, ms; NaN where there was none.",
        [(text, one.pause_time.peek(now_ms=now_ms)) for text, one in rows],
    )
    yield Family(
        f"{_KAFKA}_ip_connection_accept_throttle_time",
        "gauge",
        "Mean time that connections of the last minute were kept unserved, ms; NaN where none was.",
        [(text, one.address_throttle_time.peek(now_ms=now_ms)) for text, one in rows],
    )


def _of_brokers(brokers: Iterable[Named], now_ms: int) -> Iterator[Family]:
    rows = [(labels(upstream=name), quotas.arrivals) for name, quotas in brokers]
    rates = [(text, one.rate.peek(now_ms=now_ms)) for text, one in rows]
    yield _gauge(
        "broker_connection_creation_rate",
        "Connections per second to a broker, without those of inter_broker listeners.",
        rates,
    )
    yield _gauge(
        "broker_connection_creation_limit",
        "The limit of a broker, connections per second.",
        [(text, one.limit) for text, one in rows if one.limit < UNLIMITED_RATE],
    )
    yield Family(f"{_KAFKA}_broker_connection_accept_rate", "gauge", "Connections per second.", summed(rates))


def _of_addresses(rows: Sequence[tuple[str, ConnectionQuotas]]) -> Iterator[Family]:
    yield _gauge(
        "connection_addresses",
        "Addresses whose connections are remembered.",
        [(labels(upstream=name), one.addresses) for name, one in rows],
    )
    yield _counter(
        "evicted_connection_addresses",
        "Addresses that made room for others.",
        [(labels(upstream=name), one.evicted) for name, one in rows],
    )
    yield _counter(
        "connection_address_overflows",
        "Connections of addresses that found no place: all of these share one rate.",
        [(labels(upstream=name), one.overflows) for name, one in rows],
    )


def _of_open_connections(brokers: Sequence[BrokerQuotas], ports: Iterable[ListenerState]) -> Iterator[Family]:
    most: dict[Tags, int] = {}
    for quotas in brokers:
        table = quotas.connections.table
        for tags, count in quotas.connections.open_now().items() if len(table) else ():
            if table.limit_of_tags(user=tags.user, client_id=tags.client_id) is not None:
                most[tags] = max(most.get(tags, 0), count)
    yield _gauge(
        "quota_connections",
        "Open connections of users and client-ids that have a limit, at the broker where each has most.",
        [
            (labels(user=tags.user, client_id=tags.client_id), count)
            for tags, count in nlargest(_MOST_NAMES, most.items(), key=itemgetter(1))
        ],
    )
    yield _counter(
        "observed_connections",
        "Connections above a quota on how many are open, which is only observed.",
        [(labels(listener=port.name), port.counters.observed_connections) for port in ports],
    )


def _gauge(name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
    return Family(f"{_PREFIX}_{name}", "gauge", help_, summed(samples))


def _counter(name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
    return Family(f"{_PREFIX}_{name}_total", "counter", help_, summed(samples))
