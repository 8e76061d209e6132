"""Connects clients to a proxy that has no broker, and charges their buckets."""

from typing import Final

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.route import Route
from kafka_quota_proxy.proxy.server.server import Server

LISTENER: Final = Listener(
    name="clients",
    bind=Address(host="127.0.0.1", port=0),
    upstream=Address(host="127.0.0.1", port=19092),
    node_id=1,
)


def server_with(*rules: QuotaRule, listeners: tuple[Listener, ...] = (LISTENER,)) -> Server:
    """Return a proxy with these rules."""
    return Server(ProxyConfig(listeners=listeners, quotas=rules))


def connect(
    server: Server,
    client_id: str,
    *,
    now_ms: int,
    user: str = "ANONYMOUS",
    address: str = "10.0.0.5",
    listener: int = 0,
    kind: QuotaKind = QuotaKind.PRODUCE,
) -> Bucket:
    """Open a connection of a client, and return the bucket that its requests are charged to."""
    state = server.listeners[listener]
    route = server.brokers.entrances[state]
    assert isinstance(route, Route)
    connection = ClientConnection(route)
    state.connections[connection] = None
    connection.state.account.peer_host = address
    account = connection.state.account
    account.log_in(user)
    return account.bucket(kind, client_id.encode(), now_ms)
