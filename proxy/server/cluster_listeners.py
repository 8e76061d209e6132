"""All brokers of one cluster, and the ports of each listener in front of them.

All news of brokers goes through ``BrokerCluster.see``. It comes from sessions, before the response that names the
brokers goes on to its client, and from a query of the cluster every few seconds. A broker that joins has its port
before any client hears of the broker, because the port is bound in the same step.

A cluster that wants a login does not answer us. Until it has answered a client, every port of the listener is open and
leads to a bootstrap server: clients remember ports from before a restart of the proxy, and most of them (Java before
4.0) never come back to the bootstrap address. What they ask there, any broker can answer, or tells them to ask anew.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from time import monotonic, monotonic_ns
from typing import Final

from kafka_quota_proxy.config.model import Address, Cluster, ProxyConfig, Shaping
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.isolation import attempt
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.acceptor import BACKLOG, Acceptor
from kafka_quota_proxy.proxy.server.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity
from kafka_quota_proxy.proxy.server.broker_registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.cluster_members import ClusterMembers
from kafka_quota_proxy.proxy.server.cluster_query import ask
from kafka_quota_proxy.proxy.server.connection import ClientConnection
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.route import Route
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.client_account import Policy

log = logging.getLogger(__name__)

_ASK_EVERY_S: Final = 5.0
_ASK_AGAIN_S: Final = 1.0
_WARN_EVERY_S: Final = 60.0


class ClusterListener:
    """One listener in front of a cluster: the bootstrap port's clients, and a port for each broker."""

    def __init__(
        self, listener: ListenerState, bind_host: str, cluster: Cluster, policy: Policy, cluster_: "BrokerCluster"
    ) -> None:
        self.listener = listener
        self.routes: dict[int, Route] = {}
        self._policy = policy
        self._membership = ClusterMembers(cluster)
        self._addresses = Addresses(lambda brokers, is_all, cluster_id: cluster_.see(brokers, is_all, cluster_id))
        self._bind_host = bind_host
        self._cluster = cluster_
        self._sockets: dict[int, socket.socket] = {}
        self._stand_ins: dict[int, Route] = {}  # of ports whose broker is not known yet
        self._unopened: set[int] = set()
        self._turn = 0

    @property
    def policy(self) -> Policy:
        """What the listener says about its connections."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        for route in (*self.routes.values(), *self._stand_ins.values()):
            route.context.policy = policy

    @property
    def upstreams(self) -> list[Upstream]:
        """The brokers that it leads to now; before any is known, those that stand in for them."""
        routes = (*self.routes.values(), *self._stand_ins.values())
        return list(dict.fromkeys(route.upstream for route in routes))

    def attach_queue(self) -> None:
        """Have connections wait in queues in front of their brokers, if the listener now has them."""
        for route in (*self.routes.values(), *self._stand_ins.values()):
            route.attach_queue()

    def accept(self) -> ClientConnection:
        """Return the protocol of a client at the bootstrap port: it is led to one broker after the other."""
        routes = [route for route in self.routes.values() if route.upstream.is_reachable] or list(self.routes.values())
        self._turn += 1
        route = routes[self._turn % len(routes)] if routes else self._route(self._cluster.bootstrap(self._turn))
        return route.accept()

    def arrivals(self) -> ListenerQuota:
        """Return what limits how fast connections come to the bootstrap port: it is like one more broker's."""
        return self._cluster.door.arrivals.listener(self.listener.name)

    def routes_to(self, upstream: Upstream) -> Iterator[Route]:
        """Yield the routes that lead there."""
        for route in (*self.routes.values(), *self._stand_ins.values()):
            yield from route.routes_to(upstream)

    def follow(self, brokers: Mapping[int, Address], *, is_all: bool, now_ms: int) -> None:
        """Open and close ports, so that there is one for each broker."""
        changes = self._membership.see(brokers, is_all=is_all, now_ms=now_ms)
        for node_id in changes.without_port:
            log.error(
                "listener %s: broker %d is outside broker_ports (%d-%d, the first port + node id), so clients do not "
                "hear of it and its partitions have no leader for them; widen broker_ports",
                self.listener.name, node_id, self._membership.cluster.first_port, self._membership.cluster.last_port,
            )  # fmt: skip
        for node_id, address in changes.joined.items():
            self._open(node_id, address)
        for node_id in changes.left:
            self._close(node_id)
        if is_all and self._stand_ins:
            self._end_stand_ins()

    def stand_in(self) -> None:
        """Open the ports of all brokers that there may be; each leads to a bootstrap server until its own is known."""
        cluster = self._membership.cluster
        for turn in range(cluster.last_port - cluster.first_port + 1):
            if turn not in self._sockets:
                self._stand_ins[turn] = self._route(self._cluster.bootstrap(turn))
                if not self._bind(turn, logging.DEBUG):
                    del self._stand_ins[turn]

    def close(self) -> None:
        """Take no more clients at any broker's port."""
        for node_id in tuple(self._sockets):
            self._unbind(node_id)

    def _open(self, node_id: int, address: Address) -> None:
        port = self._membership.cluster.port_of(node_id)
        if port is None or not (node_id in self._sockets or self._bind(node_id, logging.ERROR)):
            self._membership.brokers.pop(node_id)  # so that the next answer opens it, if it can be opened then
            return
        self.routes[node_id] = self._route(self._cluster.upstream(node_id, address))
        self._addresses.told[node_id] = (self._membership.cluster.advertised_host.encode(), port)
        log.info(
            "listening on %s:%d (%s) -> broker %d, %s", self._bind_host, port, self.listener.name, node_id, address
        )

    def _close(self, node_id: int) -> None:
        del self.routes[node_id], self._addresses.told[node_id]
        self._unbind(node_id)
        log.info("listener %s: broker %d has left", self.listener.name, node_id)

    def _end_stand_ins(self) -> None:
        """Close the ports of nobody, and end the connections that may lead to another broker than their port says."""
        routes = set(self._stand_ins.values())
        for node_id in self._stand_ins.keys() - self.routes.keys():
            self._unbind(node_id)
        self._stand_ins.clear()
        for connection in self.listener.connections:
            if connection.route in routes:
                # Not now: the answer that told of the brokers is still to be written.
                asyncio.get_running_loop().call_soon(connection.drain, "broker_known")

    def _bind(self, node_id: int, level: int) -> bool:
        """Listen on the port of a broker; say so where it cannot be done, once."""
        port = self._membership.cluster.port_of(node_id)
        family = socket.AF_INET6 if ":" in self._bind_host else socket.AF_INET
        try:
            bound = socket.create_server((self._bind_host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            if node_id not in self._unopened:
                log.log(level, "listener %s: no port for broker %d: %s", self.listener.name, node_id, error)
            if level >= logging.ERROR:
                self._unopened.add(node_id)
            return False
        self._unopened.discard(node_id)
        self._sockets[node_id] = bound
        self._cluster.serve(bound, self.listener, lambda: self._accept_at(node_id), lambda: self._arrivals_at(node_id))
        return True

    def _accept_at(self, node_id: int) -> ClientConnection:
        # A broker may have left while a handshake went on.
        route = self.routes.get(node_id) or self._stand_ins.get(node_id)
        return route.accept() if route else self.accept()

    def _arrivals_at(self, node_id: int) -> ListenerQuota:
        route = self.routes.get(node_id)
        return route.arrivals() if route else self.arrivals()

    def _unbind(self, node_id: int) -> None:
        self._cluster.end(self._sockets.pop(node_id))

    def _route(self, upstream: Upstream) -> Route:
        return Route(self.listener, upstream, self.policy, self._addresses)


class BrokerCluster:
    """The brokers of one cluster, whose quotas all listeners in front of it share.

    Attributes:
        brokers: The ways to those that are known, by node id.
        door: Of the bootstrap ports, where connections come in: limits on these hold there as at one more broker.
        cluster_id: None while the cluster has not said it.
    """

    def __init__(
        self,
        servers: tuple[Address, ...],
        config: Callable[[], ProxyConfig],
        rules: RuleTables,
        shaping: Shaping | None,
        throttle: Throttle,
        ways: BrokerRegistry,
        tls: TlsContext | None = None,
    ) -> None:
        self.brokers: dict[int, Upstream] = {}
        self.cluster_id: str | None = None
        self._ways = ways
        self._config = config
        self._rules = rules
        self._shaping = shaping
        self._throttle = throttle
        self._tls = tls
        self.door = self._quotas()
        self._servers = [
            ways.add(Upstream(server, lambda: Broker(self._quotas()), tls=tls, shaping=shaping, is_bootstrap=True))
            for server in servers
        ]
        self.fronts: list[ClusterListener] = []
        self._serving: dict[socket.socket, Acceptor] = {}
        self._is_closed = False
        self._tasks: asyncio.TaskGroup
        self._last_warning_s = float("-inf")

    @property
    def upstreams(self) -> list[Upstream]:
        """Every broker that is known, and the bootstrap servers."""
        return [*self.brokers.values(), *self._servers]

    def quotas_by_node_id(self) -> Iterator[tuple[int | None, BrokerQuotas]]:
        """Yield those of every broker that is known, of the bootstrap servers and of the door; None: no such broker."""
        node_ids = {upstream.address: node_id for node_id, upstream in self.brokers.items()}
        for node_id, upstream in self.brokers.items():
            yield node_id, upstream.quotas
        for server in self._servers:
            yield node_ids.get(server.address), server.quotas
        yield node_ids.get(self._servers[0].address), self.door

    @property
    def is_reachable(self) -> bool:
        """Whether some broker is."""
        return any(upstream.is_reachable for upstream in self.upstreams)

    def front(self, listener: ListenerState, bind_host: str, cluster: Cluster, policy: Policy) -> ClusterListener:
        """Add a listener."""
        front = ClusterListener(listener, bind_host, cluster, policy, self)
        self.fronts.append(front)
        return front

    @property
    def shaping(self) -> Shaping | None:
        """That of its listeners, also for brokers that join later."""
        return self._shaping

    @shaping.setter
    def shaping(self, shaping: Shaping | None) -> None:
        self._shaping = shaping
        for upstream in self.upstreams:
            upstream.shaping = shaping

    def close(self) -> None:
        """Take no more clients at any broker's port, and open no other."""
        self._is_closed = True
        for front in self.fronts:
            front.close()

    def bootstrap(self, turn: int) -> Upstream:
        """Return a bootstrap server, for clients that come before a broker is known."""
        return self._servers[turn % len(self._servers)]

    def upstream(self, node_id: int, address: Address) -> Upstream:
        """Return a broker; one that comes back finds its clients' usage as it was."""
        upstream = self.brokers.get(node_id)
        if upstream is None:

            def make() -> Broker:
                return Broker(self._quotas(), self._throttle.leader(address, node_id))

            upstream = self.brokers[node_id] = Upstream(address, make, tls=self._tls, shaping=self._shaping)
            upstream.identity = self._identity(node_id)
            upstream.is_reachable = True  # it was named as alive; the next dial may find otherwise
            self._ways.add(upstream)
        return upstream

    def see(self, brokers: Mapping[int, Address], is_all: bool, cluster_id: str | None = None) -> None:
        """Take up what an answer of the cluster said of its brokers, and of itself; None: nothing."""
        if self._is_closed:
            return
        if cluster_id not in (None, self.cluster_id):
            self.cluster_id = cluster_id
            for node_id, upstream in self.brokers.items():
                self._ways.identify(upstream, self._identity(node_id))
        now_ms = monotonic_ns() // 1_000_000
        for node_id, address in brokers.items():
            known = self.brokers.get(node_id)
            if known is not None and known.address != address:
                log.info("broker %d has moved from %s to %s", node_id, known.address, address)
                self._ways.move(known, address)
        for front in self.fronts:
            attempt(front.follow, brokers, is_all=is_all, now_ms=now_ms)

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Ask for the brokers every few seconds, until cancelled."""
        self._tasks = tasks
        turn = 0
        while not self._is_closed:
            turn += 1
            known = [upstream for upstream in self.brokers.values() if upstream.is_reachable] or self._servers
            upstream = known[turn % len(known)]
            try:
                answer = await ask(upstream.address, self._config().upstream_bind, self._tls)
                self.see(answer.brokers, is_all=True, cluster_id=answer.cluster_id)
                self._ways.reached(upstream, answer.peer, is_back=not upstream.is_reachable)
                upstream.is_reachable = True
                await asyncio.sleep(_ASK_EVERY_S)
            except (OSError, ProtocolError) as error:
                upstream.is_reachable = False
                self._warn(upstream, error)
                if not self.brokers and not self._is_closed:
                    for front in self.fronts:
                        attempt(front.stand_in)
                await asyncio.sleep(_ASK_AGAIN_S)

    def serve(
        self,
        bound: socket.socket,
        listener: ListenerState,
        accept: Callable[[], ClientConnection],
        quota: Callable[[], ListenerQuota],
    ) -> None:
        """Let in the clients of a bound socket; they may have come already."""
        self._serving[bound] = Acceptor(bound, listener, accept, quota, self._tasks)

    def end(self, bound: socket.socket) -> None:
        """Take no more clients there."""
        self._serving.pop(bound).close()

    def _identity(self, node_id: int) -> BrokerIdentity | None:
        return None if self.cluster_id is None else BrokerIdentity(self.cluster_id, node_id)

    def _quotas(self) -> BrokerQuotas:
        return BrokerQuotas(self._config(), shaping=self._shaping, rules=self._rules)

    def _warn(self, upstream: Upstream, error: Exception) -> None:
        if monotonic() - self._last_warning_s >= _WARN_EVERY_S:
            self._last_warning_s = monotonic()
            log.warning(
                "cannot ask %s for the brokers: %s; they are taken from the answers to clients", upstream.address, error
            )
