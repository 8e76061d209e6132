"""Keeps track of the brokers of a cluster, and opens a port for each of them on the listeners in front of the cluster.

``BrokerCluster.see`` receives the brokers from every response that lists brokers, before the response is forwarded to
its client. The proxy also queries the cluster every few seconds. When a broker joins, ``see`` opens a port for it at
once, before any client learns of the broker.

A cluster that requires a login does not answer the proxy's query. Then every port of the listener is open and leads to
the bootstrap servers in turn, until a response to a client lists all brokers. Otherwise clients could not reconnect
after a restart of the proxy, because most of them (Java before 4.0) never return to the bootstrap address.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic, monotonic_ns
from typing import Final, cast

from kafka_quota_proxy.config.addresses import same_spelling
from kafka_quota_proxy.config.model import Address, Cluster, Shaping
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.runtime.isolation import attempt
from kafka_quota_proxy.proxy.server.active_rules import ActiveRules
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.cluster_members import ClusterMembers
from kafka_quota_proxy.proxy.server.brokers.cluster_query import ClusterDescription, describe_cluster
from kafka_quota_proxy.proxy.server.brokers.faults import NO_PORT, Fault
from kafka_quota_proxy.proxy.server.brokers.identity import BrokerIdentity
from kafka_quota_proxy.proxy.server.brokers.registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.clients.acceptor import BACKLOG, Acceptor
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.route import Route
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses

log = logging.getLogger(__name__)

_QUERY_EVERY_S: Final = 5.0
_RETRY_S: Final = 1.0
_WARN_EVERY_S: Final = 60.0


class ClusterListener:
    """One listener in front of a cluster, with a bootstrap port and a port for each broker.

    ``routes`` contains, by node id, the state that all connections from the listener to one broker share.
    ``cluster`` is that of the start, whatever a reload says.
    """

    def __init__(self, listener: ListenerState, cluster: "BrokerCluster") -> None:
        self.listener = listener
        self.routes: dict[int, Route] = {}
        self._members = ClusterMembers(cast(Cluster, listener.settings.cluster))
        self._addresses = Addresses(cluster.see)
        self._bind_host = listener.settings.bind.host
        self.cluster = cluster
        self._acceptors: dict[int, Acceptor] = {}  # by node id
        # The node ids of the ports that lead to bootstrap servers, and how many clients each port has led there.
        self._stand_ins: dict[int, int] = {}
        self._stand_in_routes: list[Route] = []  # one for each bootstrap server, while there are such ports
        # By node id: the brokers whose ports could not be bound, which has been logged, and why.
        self._unopened: dict[int, tuple[Address, Fault]] = {}
        self._turn = 0

    def all_routes(self) -> list[Route]:
        """Return the routes to the known brokers, and the routes to bootstrap servers in place of unknown brokers."""
        return [*self.routes.values(), *self._stand_in_routes]

    @property
    def without_port(self) -> list[tuple[Address, Fault]]:
        """The brokers to which the listener has no port, and why."""
        members = self._members
        first, last = members.cluster.first_port, members.cluster.last_port
        text = (
            f"has no port on listener {self.listener.name}: widen broker_ports ({first}-{last}, first port + node id)"
        )
        outside = [
            (address, Fault(NO_PORT, f"broker {node_id} {text}")) for node_id, address in members.outside.items()
        ]
        return [*outside, *self._unopened.copy().values()]

    @property
    def has_broker(self) -> bool:
        """Whether a client can reach a broker through this listener."""
        known = [route.upstream for route in tuple(self.routes.values())]
        if not known and not self.without_port:
            known = self.cluster.servers
        return any(upstream.is_reachable for upstream in known)

    def accept(self) -> ClientConnection:
        """Return the protocol for a new client at the bootstrap port, which leads to each reachable broker in turn."""
        routes = [route for route in self.routes.values() if route.upstream.is_reachable] or list(self.routes.values())
        self._turn += 1
        if routes:
            return routes[self._turn % len(routes)].accept()
        return self._route(self.cluster.bootstrap(self._turn)).accept()

    def arrivals(self) -> ListenerQuota:
        """Return the quota on new connections at the bootstrap port."""
        return self.cluster.bootstrap_quotas.arrivals.listener(self.listener.name)

    def follow(self, brokers: Mapping[int, Address], *, is_all: bool, now_ms: int) -> None:
        """Apply a response that lists ``brokers``: open ports for new ones, and close those of brokers that left.

        The arguments are those of ``ClusterMembers.see``.
        """
        changes = self._members.see(brokers, is_all=is_all, now_ms=now_ms)
        for node_id in changes.without_port:
            log.error(
                "listener %s: broker %d is outside broker_ports (%d-%d, the first port + node id), so clients "
                "cannot reach it, and its partitions have no leader for them; widen broker_ports",
                self.listener.name, node_id, self._members.cluster.first_port, self._members.cluster.last_port,
            )  # fmt: skip
        for node_id in self._unopened.keys() - brokers.keys() if is_all else ():
            del self._unopened[node_id]
        for node_id, address in changes.joined.items():
            self._open(node_id, address)
        for node_id in changes.left:
            self._close(node_id)
        if is_all and self._stand_ins:
            self._end_stand_ins()

    def stand_in(self) -> None:
        """Open every port of the listener. Each leads to the bootstrap servers in turn until its broker is known."""
        settings = self._members.cluster
        if not self._stand_in_routes:
            self._stand_in_routes = [self._route(server) for server in self.cluster.servers]
        for node_id in range(settings.last_port - settings.first_port + 1):
            if node_id not in self._acceptors:
                self._stand_ins[node_id] = 0
                if not self._bind(node_id, logging.DEBUG):
                    del self._stand_ins[node_id]

    def close(self) -> None:
        """Close the proxy's ports for all brokers of the cluster."""
        for node_id in tuple(self._acceptors):
            self._unbind(node_id)

    def _open(self, node_id: int, address: Address) -> None:
        port = self._members.cluster.port_of(node_id)
        if port is None or not (node_id in self._acceptors or self._bind(node_id, logging.ERROR, address)):
            self._members.brokers.pop(node_id)  # so that the next answer of the cluster tries again
            return
        self.routes[node_id] = self._route(self.cluster.upstream(node_id, address))
        self._addresses.advertised[node_id] = (self._members.cluster.advertised_host.encode(), port)
        name = self.listener.name
        log.info("listening on %s:%d (%s) -> broker %d, %s", self._bind_host, port, name, node_id, address)

    def _close(self, node_id: int) -> None:
        del self.routes[node_id], self._addresses.advertised[node_id]
        self._unbind(node_id)
        log.info("listener %s: broker %d has left", self.listener.name, node_id)

    def _end_stand_ins(self) -> None:
        """Stop using bootstrap servers in place of brokers, after the cluster has listed all its brokers.

        Close the ports whose node id no broker has, and drain the connections that lead to a bootstrap server.
        """
        routes = set(self._stand_in_routes)
        for node_id in self._stand_ins.keys() - self.routes.keys():
            self._unbind(node_id)
        self._stand_ins.clear()
        self._stand_in_routes = []
        for connection in self.listener.connections:
            if connection.route in routes:
                # Drain it later, because the response that lists the brokers has not been written yet.
                asyncio.get_running_loop().call_soon(connection.drain, "broker_known")

    def _bind(self, node_id: int, level: int, address: Address | None = None) -> bool:
        """Listen on the port of a broker, and return whether that succeeded. Log a failure at ``level``.

        ``address`` is that of the broker, or None if it is not known.
        """
        port = self._members.cluster.port_of(node_id)
        family = socket.AF_INET6 if ":" in self._bind_host else socket.AF_INET
        try:
            bound = socket.create_server((self._bind_host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            if node_id not in self._unopened:
                log.log(level, "listener %s: no port for broker %d: %s", self.listener.name, node_id, error)
            if address is not None:
                text = f"broker {node_id} has no port on listener {self.listener.name}: {error}"
                self._unopened[node_id] = address, Fault(NO_PORT, text)
            return False
        self._unopened.pop(node_id, None)
        accept, arrivals = partial(self._accept_at, node_id), partial(self._arrivals_at, node_id)
        self._acceptors[node_id] = Acceptor(bound, self.listener, accept, arrivals, self.cluster.tasks)
        return True

    def _accept_at(self, node_id: int) -> ClientConnection:
        route = self.routes.get(node_id) or self._next_stand_in(node_id)
        return route.accept() if route else self.accept()

    def _next_stand_in(self, node_id: int) -> Route | None:
        """Return the route to the next bootstrap server for the port of an unknown broker.

        Servers that failed when they were last dialled are left out if another one did not. Return None if the port
        does not lead to bootstrap servers, for example because its broker has left during a TLS handshake.
        """
        turn = self._stand_ins.get(node_id)
        if turn is None:
            return None
        self._stand_ins[node_id] = turn + 1
        routes = [route for route in self._stand_in_routes if not route.upstream.failures] or self._stand_in_routes
        return routes[(node_id + turn) % len(routes)]

    def _arrivals_at(self, node_id: int) -> ListenerQuota:
        route = self.routes.get(node_id)
        return route.arrivals() if route else self.arrivals()

    def _unbind(self, node_id: int) -> None:
        self._acceptors.pop(node_id).close()

    def _route(self, upstream: Upstream) -> Route:
        return Route(self.listener, upstream, self._addresses)


class BrokerCluster:
    """Keeps the brokers of one cluster by node id, and the listeners in front of it, which share the brokers' quotas.

    The bootstrap ports have quotas of their own (``bootstrap_quotas``), because a quota on new connections is checked
    before the client's broker is chosen.
    """

    def __init__(
        self,
        servers: tuple[Address, ...],
        rules: ActiveRules,
        shaping: Shaping | None,
        throttle: Throttle,
        registry: BrokerRegistry,
        tls: TlsContext | None = None,
    ) -> None:
        self.brokers: dict[int, Upstream] = {}
        self.listeners: list[ClusterListener] = []
        self.cluster_id: str | None = None
        self._registry = registry
        self._rules = rules
        self.shaping = shaping
        self._throttle = throttle
        self._tls = tls
        self.bootstrap_quotas = self._quotas()
        self.servers = [
            registry.add(Upstream(server, lambda: Broker(self._quotas()), tls=tls, shaping=shaping))
            for server in servers
        ]
        self.may_serve = asyncio.Event()  # set once it is settled which quotas count clients at the bootstrap servers
        self._is_closed = False
        self.tasks: asyncio.TaskGroup
        self._last_warning_s = float("-inf")

    @property
    def upstreams(self) -> list[Upstream]:
        """The addresses at which the proxy reaches the known brokers and the bootstrap servers of this cluster."""
        return [*self.brokers.values(), *self.servers]

    def quotas_by_node_id(self) -> Iterator[tuple[int | None, BrokerQuotas]]:
        """Yield the quotas of brokers, bootstrap servers and bootstrap ports, each with a node id or None."""
        brokers = tuple(self.brokers.items())  # copied in one step, because the admin port reads it in another thread
        node_ids = {same_spelling(upstream.address): node_id for node_id, upstream in brokers}
        for node_id, upstream in brokers:
            yield node_id, upstream.quotas
        for server in self.servers:
            yield node_ids.get(same_spelling(server.address)), server.quotas
        yield node_ids.get(same_spelling(self.servers[0].address)), self.bootstrap_quotas

    @property
    def members(self) -> list[Upstream]:
        """The brokers that the cluster lists, without those that have left, or the bootstrap servers until it does."""
        present = {node_id for listener in tuple(self.listeners) for node_id in tuple(listener.routes)}
        found = [upstream for node_id, upstream in tuple(self.brokers.items()) if node_id in present]
        return found or self.servers

    def add_listener(self, listener: ListenerState) -> ClusterListener:
        """Add a listener in front of the cluster, and return the object that opens the listener's ports."""
        added = ClusterListener(listener, self)
        self.listeners.append(added)
        return added

    def set_shaping(self, shaping: Shaping | None) -> None:
        """Set the method by which rates are measured at all brokers of the cluster, including those that join later."""
        self.shaping = shaping
        for upstream in self.upstreams:
            upstream.shaping = shaping

    def close(self) -> None:
        """Close the proxy's ports for all brokers of the cluster, and open no more ports."""
        self._is_closed = True
        for listener in self.listeners:
            listener.close()

    def bootstrap(self, turn: int) -> Upstream:
        """Return a bootstrap server. Successive values of ``turn`` select the servers in turn."""
        return self.servers[turn % len(self.servers)]

    def upstream(self, node_id: int, address: Address) -> Upstream:
        """Return the upstream of a broker; create it if it is new.

        The upstream of a broker that has left is kept, so that its clients' usage still counts if the broker rejoins.
        """
        upstream = self.brokers.get(node_id)
        if upstream is None:

            def make() -> Broker:
                return Broker(self._quotas(), self._throttle.leader(address, node_id))

            upstream = self._registry.add(Upstream(address, make, tls=self._tls, shaping=self.shaping))
            self.brokers[node_id] = upstream
            self._registry.settle(upstream, self._identity(node_id))
        return upstream

    def see(self, brokers: Mapping[int, Address], is_all: bool, cluster_id: str | None = None) -> None:
        """Apply a response that lists ``brokers`` by node id: open and close ports, and update addresses.

        ``is_all`` says whether the response lists all brokers that are alive. ``cluster_id`` is None if the response
        contains none.
        """
        if self._is_closed:
            return
        if cluster_id not in (None, self.cluster_id):
            self.cluster_id = cluster_id
            for node_id, upstream in self.brokers.items():
                self._registry.identify(upstream, BrokerIdentity(cluster_id, node_id))
        now_ms = monotonic_ns() // 1_000_000
        for node_id, address in brokers.items():
            known = self.brokers.get(node_id)
            if known is not None and known.address != address:
                log.info("broker %d has moved from %s to %s", node_id, known.address, address)
                known.move(address)
        for listener in self.listeners:
            attempt(listener.follow, brokers, is_all=is_all, now_ms=now_ms)

    def answered(self, answer: ClusterDescription) -> None:
        """Apply an answer to a question of the proxy itself, which lists all brokers."""
        self.see(answer.brokers, is_all=True, cluster_id=answer.cluster_id)

    async def run(self) -> None:
        """Query the cluster for its brokers every few seconds, until cancelled."""
        await self.may_serve.wait()
        turn = 0
        while not self._is_closed:
            turn += 1
            known = [upstream for upstream in self.brokers.values() if upstream.is_reachable] or self.servers
            upstream = known[turn % len(known)]
            try:
                answer = await describe_cluster(upstream.address, self._rules.config.upstream_bind, self._tls)
                self.answered(answer)
                upstream.led_to(answer.peer, is_back=not upstream.is_reachable)
                upstream.reached()
                await asyncio.sleep(_QUERY_EVERY_S)
            except (OSError, ProtocolError) as error:  # perhaps it requires a login, which says nothing about clients
                self._warn(upstream, error)
                if not self.brokers and not self._is_closed:
                    for listener in self.listeners:
                        attempt(listener.stand_in)
                await asyncio.sleep(_RETRY_S)

    def _identity(self, node_id: int) -> BrokerIdentity | None:
        return None if self.cluster_id is None else BrokerIdentity(self.cluster_id, node_id)

    def _quotas(self) -> BrokerQuotas:
        return BrokerQuotas(self._rules.config, shaping=self.shaping, rules=self._rules.tables)

    def _warn(self, upstream: Upstream, error: Exception) -> None:
        if monotonic() - self._last_warning_s >= _WARN_EVERY_S:
            self._last_warning_s = monotonic()
            log.warning(
                "cannot ask %s for the brokers: %s; they are taken from responses to clients", upstream.address, error
            )
