"""Defines a route: the state that all connections from one listener to one broker share."""

import asyncio

from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.server.brokers.broker import Upstream
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext
from kafka_quota_proxy.proxy.session.session import Session
from kafka_quota_proxy.proxy.session.testing.session import OnDemandSession


class Route:
    """Holds the state that all connections from one listener to one broker share.

    ``addresses`` replaces the brokers' addresses in responses to clients. If it is None, responses are not changed.
    """

    __slots__ = ("context", "listener", "upstream")

    def __init__(self, listener: ListenerState, upstream: Upstream, addresses: Addresses | None = None) -> None:
        self.listener = listener
        self.upstream = upstream
        broker = upstream.broker
        self.context = ConnectionContext(
            listener.policy,
            broker.quotas,
            listener.counters,
            addresses,
            leader=broker.leader,
            service=broker.service,
        )
        broker.quotas.lines.wake = _wake_soon
        self._attach_queue()

    def all_routes(self) -> list["Route"]:
        """Return a list of this route only. ``ClusterListener.all_routes`` returns several routes."""
        return [self]

    def arrivals(self) -> ListenerQuota:
        """Return the quota on new connections from this listener to this broker."""
        return self.context.quotas.arrivals.listener(self.listener.name)

    def follow_listener(self) -> None:
        """Apply the listener's settings, including those of the fair call queue, after a reload has replaced them."""
        self.context.policy = self.listener.policy
        self._attach_queue()

    def _attach_queue(self) -> None:
        """Start or stop using the broker's fair call queue, depending on the listener's settings."""
        priorities, broker, before = self.listener.priorities, self.upstream.broker, self.context.queue
        if priorities is None:
            self.context.queue = None
        else:
            if broker.queue is None:
                broker.queue = BrokerQueue(priorities.settings)
            self.context.queue = broker.queue.listener_queue(priorities, before)
        if (before is None) != (priorities is None):
            self.context.quotas.renew()

    def session(self, owner: Waiter) -> Session:
        """Return the session of a new client connection, which ``owner`` serves."""
        testing = self.listener.testing
        return Session(self.context, owner) if testing is None else OnDemandSession(self.context, testing, owner)

    def accept(self) -> ClientConnection:
        """Return the protocol that serves a new client connection."""
        return ClientConnection(self)


def _wake_soon(waiter: Waiter) -> None:
    """Let a waiting connection resume its request once the running callback of another connection has ended."""
    asyncio.get_running_loop().call_soon(waiter.take_turn)
