"""Listeners and sweeps: everything of the proxy that is not one connection.

One process, one loop. ``Server.run`` opens the listeners and serves until ``stop``; ``apply`` puts a new configuration
in force without touching a connection.
"""

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from time import monotonic_ns
from typing import Final, cast

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import (
    Address,
    ClientTls,
    Enforcement,
    Listener,
    ProxyConfig,
    QuotaRule,
    Replication,
    UpstreamTls,
)
from kafka_quota_proxy.proxy.background.isolation import attempt, kept_up
from kafka_quota_proxy.proxy.background.isolation import watch as watch_loop
from kafka_quota_proxy.proxy.client_quotas.api import Administration
from kafka_quota_proxy.proxy.client_quotas.manager import QuotaManager
from kafka_quota_proxy.proxy.client_quotas.rule_timer import wall_ms
from kafka_quota_proxy.proxy.client_quotas.sources.broker_source import BrokerFollower, broker_follower
from kafka_quota_proxy.proxy.client_quotas.sources.topic_source import QuotaTopic, quota_topic
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.rule_changes import Changes, IpChanges, RuleChanges
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView, servers_behind
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.acceptor import Acceptor, bind
from kafka_quota_proxy.proxy.server.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.broker_dialer import BrokerDialer, probe
from kafka_quota_proxy.proxy.server.broker_finder import BrokerFinder
from kafka_quota_proxy.proxy.server.broker_queue import BrokerQueue
from kafka_quota_proxy.proxy.server.broker_registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.cluster_listeners import BrokerCluster, ClusterListener
from kafka_quota_proxy.proxy.server.drain import Drain
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.route import Route
from kafka_quota_proxy.proxy.server.sweeps import Sweeps
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from kafka_quota_proxy.proxy.server.tls.contexts import watch as watch_tls
from kafka_quota_proxy.proxy.server.tls_handshake import TlsHandshakes
from kafka_quota_proxy.proxy.session.client_account import Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from kafka_quota_proxy.proxy.usage.log import usage_log
from kafka_quota_proxy.proxy.usage.meter import FOLLOWER_REPLICATION, LEADER_REPLICATION, MeteredBroker, MeteredReplicas

log = logging.getLogger(__name__)

_DRAIN_STEP_S: Final = 0.02
# How long clients wait for the rules of a topic, or of the brokers, before they are served without.
_FIRST_RULES_S: Final = 15.0


class Server:
    """The running proxy.

    Args:
        config: What the process is started with.
        wall_ms: Returns Unix time, by which rules expire.

    Raises:
        TlsFileError: A file of certificates or a key cannot be used.
        MissingPackageError: The configuration wants what is not installed.
    """

    def __init__(self, config: ProxyConfig, *, wall_ms: Callable[[], int] = wall_ms) -> None:
        self.config = self.started_with = config
        self._file = config  # with every rule, as it stands there; ``config`` has those that hold now
        self.tls: dict[ClientTls | UpstreamTls, TlsContext] = {}
        self.listeners: list[ListenerState] = []
        self.clusters: dict[frozenset[Address], BrokerCluster] = {}
        self.throttle = Throttle(config.replication, config.kafka)
        self.is_listening = False
        self.brokers = BrokerRegistry(self._on_moved)
        self._brokers: dict[Address, Upstream] = {}  # of the listeners that lead to one broker
        self._finder = BrokerFinder(self.brokers, _node_ids(config), config.upstream_bind)
        self._doors: list[Route | ClusterListener] = []  # of each listener
        self._tls_doors: list[TlsHandshakes] = []
        self.watcher: ReplicationWatcher | None = None  # where limits on replication are set
        self._following: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._dialler: BrokerDialer
        self._sweeps = Sweeps(self.listeners, lambda: self.config, lambda: self.quotas)
        self.usage = usage_log(config, brokers=self._logged_brokers, replicas=self._logged_replicas)
        self.quota_topic = quota_topic(config, on_changes=self._change_quotas)
        self.broker_quotas = broker_follower(config, on_changes=self._change_rules, wall_ms=wall_ms)
        self.quota_manager = QuotaManager(config, on_changes=self._change_stored_rules, wall_ms=wall_ms)
        self.config = config = self._with_changed()
        self._rules = RuleTables(config)
        for listener in config.listeners:
            port = ListenerState(
                settings=listener, counters=Counters(), dial=lambda client: self._dialler.start(client)
            )
            self.listeners.append(port)
            if listener.client_tls is not None:
                tls_door = TlsHandshakes(port, listener.client_tls, self._tls_context(listener.client_tls))
                self._tls_doors.append(tls_door)
                port.handshake = tls_door.greet
            self._doors.append(self._door(listener, port))

    @property
    def upstreams(self) -> list[Upstream]:
        """All ways to brokers behind the proxy that are known; more than one may lead to a broker."""
        return [*self._brokers.values(), *(one for fleet in self.clusters.values() for one in fleet.upstreams)]

    @property
    def quotas(self) -> list[BrokerQuotas]:
        """Those of all brokers, each once, and of the bootstrap ports."""
        return [broker.quotas for broker in self.brokers] + [fleet.door for fleet in tuple(self.clusters.values())]

    def upstreams_behind(self, port: ListenerState) -> list[Upstream]:
        """Return the brokers that a listener leads to."""
        return self._doors[self.listeners.index(port)].upstreams

    @property
    def quotas_by_name(self) -> list[tuple[str, BrokerQuotas]]:
        """The quotas of all brokers by their addresses, and those of the bootstrap ports, where connections come in.

        A broker to which there is more than one way is there by the first.
        """
        fleets = tuple(self.clusters.values())
        ways = [*self._brokers.values(), *(one for fleet in fleets for one in tuple(fleet.brokers.values()))]
        named = {way.broker: str(way.address) for way in reversed(ways)}
        return [(named[broker], broker.quotas) for broker in reversed(named)] + [
            ("bootstrap", fleet.door) for fleet in fleets
        ]

    @property
    def queues_by_name(self) -> list[tuple[str, BrokerQueue]]:
        """The queues in front of brokers by the brokers' addresses, likewise."""
        named = {way.broker: str(way.address) for way in reversed(self.upstreams)}
        return [(named[broker], broker.queue) for broker in reversed(named) if broker.queue is not None]

    def is_reachable(self) -> bool:
        """Whether clients get on: each broker of a listener's own answers, and of each cluster one at least."""
        fleets = self.clusters.values()
        return all(one.is_reachable for one in self._brokers.values()) and all(fleet.is_reachable for fleet in fleets)

    def apply(self, config: ProxyConfig) -> None:
        """Put the rules and policies of ``config`` in force, from the next request on. Listeners stay as they are."""
        # What a bucket is to remember for the usage log is fixed when it is made.
        started = self.started_with
        config = replace(config, usage_log=started.usage_log, quotas_from=started.quotas_from, store=started.store)
        self._file = config
        changes: Changes | None = self.quota_manager.follow_file(config)
        if self.quota_topic is not None:
            changes = None
            self.quota_topic.follow_file(config.quotas)
        if self.broker_quotas is not None:
            changes = self.broker_quotas.follow_file(config)
        self.config = config
        self.config = config = self._with_changed()
        self.throttle.update(config.replication, now_ms=monotonic_ns() // 1_000_000)
        self._follow_cluster(config.replication)
        by_name = {listener.name: listener for listener in config.listeners}
        for port, door in zip(self.listeners, self._doors, strict=True):
            listener = by_name.get(port.name)
            if listener is None:
                # It is open until the next start; who may set quotas is said for all listeners.
                administration = self._administration(config, port.name, is_inter_broker=door.policy.is_inter_broker)
                door.policy = door.policy._replace(administration=administration)
            else:
                port.update(listener)
                door.policy = self._policy(config, listener)
                door.attach_queue()
        self._put_in_force(config, changes)

    def _with_changed(self) -> ProxyConfig:
        """Return what is in force, with what was changed since the file was read: by whomever, or by the time."""
        if self.broker_quotas is not None:
            rules = self.broker_quotas
            return replace(self.config, quotas=rules.quotas, ip_quotas=rules.ip_quotas)
        of_topic = () if self.quota_topic is None else self.quota_topic.rules
        manager = self.quota_manager
        return replace(self.config, quotas=(*manager.quotas, *of_topic), ip_quotas=manager.ip_quotas)

    def _put_in_force(self, config: ProxyConfig, changes: Changes | None) -> None:
        """Have every broker's quotas follow, also of one that the new file has no listener for: it is served still."""
        shapings = {
            frozenset(listener.cluster.bootstrap_servers) if listener.cluster else listener.upstream: listener.shaping
            for listener in (*self.started_with.listeners, *config.listeners)
        }
        changed = None
        if changes is None:
            self._rules.update(config)
        else:
            changed = self._rules.change(config, changes)
        for address, upstream in self._brokers.items():
            upstream.shaping = shapings[address]
        for servers, fleet in self.clusters.items():
            fleet.shaping = shapings[servers]
            fleet.door.update(config, shaping=fleet.shaping, changed=changed)
        for broker in self.brokers:
            broker.quotas.update(config, shaping=self.brokers.first(broker).shaping, changed=changed)

    def _change_quotas(self, changes: Mapping[Entity, QuotaRule | None]) -> None:
        """Put rules of the topic in force, or, with None, none, from the next request on."""
        if self.quota_topic is not None:
            self.config = self._with_changed()
            self._change_rules(changes, {})

    def _change_stored_rules(self, changes: RuleChanges, ips: IpChanges) -> None:
        """Put rules in force that were changed through the proxy, or by the time, likewise."""
        # Where the brokers' are followed, the file's are followed with them.
        if self.broker_quotas is None:
            self._change_rules(changes, ips)

    def _change_rules(self, changes: RuleChanges, ips: IpChanges) -> None:
        """Put rules that were changed through the proxy, of the brokers, or by the time, in force, likewise."""
        # Not put into ``config``: one rule is not to cost a copy of all.
        changed = self._rules.change(self.config, Changes(changes, ips))
        for quotas in self.quotas:
            quotas.follow(changed)

    def _on_moved(self, upstream: Upstream) -> None:
        """Have the connections of this way go by the broker to which it is known to lead by now."""
        for door in self._doors:
            for gate in door.routes_to(upstream):
                gate.follow_broker()

    def _policy(self, config: ProxyConfig, listener: Listener) -> Policy:
        return Policy(
            listener.max_frame_size_bytes,
            listener.enforcement or config.enforcement,
            listener.inter_broker,
            listener.sasl.oauthbearer_claim,
            self._administration(config, listener.name, is_inter_broker=listener.inter_broker),
            self.broker_quotas,
        )

    def _administration(self, config: ProxyConfig, listener: str, *, is_inter_broker: bool) -> Administration | None:
        principals = config.principals
        # Beside these two there are none (config.store_checks), also where the new file has neither.
        is_followed = self.quota_topic is not None or self.broker_quotas is not None
        if not principals.admins or is_inter_broker or is_followed:
            return None
        return Administration(principals.admins, principals.forward_quota_requests, self.quota_manager, listener)

    def _follow_cluster(self, replication: Replication | None) -> None:
        """Have somebody ask the cluster for what the limits on replication need to know, as long as there are any.

        Where the file names no broker to ask, nobody is: ``config.replication_checks`` has said what that costs.
        """
        fallback = servers_behind(self.started_with)
        if replication is None or not (replication.admin_client.bootstrap_servers or fallback):
            if self._following is not None:
                self._following.cancel()
                self._see(ClusterView())  # what was known last is old when there are limits again
            self.watcher = self._following = None
        elif self.watcher is not None:
            self.watcher.update(replication)
        else:
            upstreams = _node_ids(self.started_with)
            self.watcher = ReplicationWatcher(replication, upstreams, fallback=fallback, on_view=self._see)
            self.throttle.ask = self.watcher.request
            self._following = self._tasks.create_task(kept_up(self.watcher.run))

    def _see(self, view: ClusterView) -> None:
        self.throttle.see(view, now_ms=monotonic_ns() // 1_000_000)

    def _door(self, listener: Listener, port: ListenerState) -> Route | ClusterListener:
        """Return what lets a listener's clients in; listeners in front of the same brokers share their quotas."""
        policy = self._policy(self.config, listener)
        tls = self._tls_context(listener.upstream_tls) if listener.upstream_tls else None
        if listener.cluster is not None:
            servers = frozenset(listener.cluster.bootstrap_servers)
            fleet = self.clusters.get(servers)
            if fleet is None:
                fleet = self.clusters[servers] = BrokerCluster(
                    listener.cluster.bootstrap_servers,
                    lambda: self.config,
                    self._rules,
                    listener.shaping,
                    self.throttle,
                    self.brokers,
                    tls,
                )
            return fleet.front(port, listener.bind.host, listener.cluster, policy)
        address = cast(Address, listener.upstream)
        upstream = self._brokers.get(address)
        if upstream is None:

            def make() -> Broker:
                quotas = BrokerQuotas(self.config, shaping=listener.shaping, rules=self._rules)
                return Broker(quotas, self.throttle.leader(address, _node_ids(self.started_with)[address]))

            upstream = self.brokers.add(Upstream(address, make, tls=tls, shaping=listener.shaping))
            self._brokers[address] = upstream
        gate = Route(port, upstream, policy)
        self._finder.listen(gate)
        return gate

    def _tls_context(self, settings: ClientTls | UpstreamTls) -> TlsContext:
        """Return the context of these settings: listeners that have the same share it."""
        context = self.tls.get(settings)
        if context is None:
            context = self.tls[settings] = TlsContext(settings)
        return context

    @property
    def is_draining(self) -> bool:
        """Whether it takes no more connections, and waits for those that there are to end."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Drain, then let ``run`` return. Called once more, do not wait for anybody."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def run(self, *, beside: Callable[[], Coroutine[None, None, None]] | None = None) -> None:
        """Serve until ``stop``.

        Args:
            beside: what is to run for as long as the server does.

        Raises:
            StartError: A listener's address cannot be bound, or its store cannot be used.
        """
        bound: list[list[socket.socket]] = []
        watch_loop(asyncio.get_running_loop())
        try:
            for index, listener in enumerate(self.config.listeners):
                try:
                    bound.append(bind(listener.bind))
                except OSError as error:
                    raise StartError(("listeners", index, "bind"), error.strerror or str(error)) from error
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    await self._serve(bound, beside)
            finally:
                if self.quota_topic is not None:
                    await self.quota_topic.stop()
                await self.quota_manager.stop()
                if self.usage is not None:
                    await self.usage.stop(self._hurrying)
        finally:
            for one in chain.from_iterable(bound):
                one.close()

    async def _serve(
        self, bound: list[list[socket.socket]], beside: Callable[[], Coroutine[None, None, None]] | None
    ) -> None:
        if self.config.store is not None:
            await self._read_store()
            self.apply(self._file)
        background: list[asyncio.Task[None]] = []
        if self.quota_topic is not None:
            self.quota_topic.start()
            await self._read_quotas(self.quota_topic)
        if self.broker_quotas is not None:
            background.append(self._keep_up(self.broker_quotas.run))
            await self._read_quotas(self.broker_quotas)
        # What exists now lives for long, the rules above all: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        source = self.config.upstream_bind
        self._dialler = BrokerDialer(self._tasks, source)
        acceptors: list[Acceptor] = []
        for listener, port, door, sockets in zip(
            self.config.listeners, self.listeners, self._doors, bound, strict=True
        ):
            acceptors += (Acceptor(one, port, door.accept, door.arrivals, self._tasks) for one in sockets)
            address = Address(host=listener.bind.host, port=sockets[0].getsockname()[1])
            # stdout, not the log: scripts wait for this line.
            sys.stdout.write(f"listening on {address} ({listener.name}) -> {listener.upstream or listener.cluster}\n")
        sys.stdout.flush()
        self.is_listening = True
        background += [
            self._keep_up(self._sweeps.sweep),
            self._keep_up(self._sweeps.expire_buckets),
            self._keep_up(lambda: watch_tls(self.tls.values())),
            *(self._keep_up(partial(self._probe, upstream, source)) for upstream in self._brokers.values()),
            *(self._keep_up(partial(fleet.run, self._tasks)) for fleet in self.clusters.values()),
            *([self._keep_up(beside)] if beside else []),
        ]
        if self.usage is not None:
            self.usage.start()
            background.append(self._keep_up(self.usage.run))
        if self.quota_topic is not None:
            background.append(self._keep_up(self.quota_topic.run))
        background.append(self._keep_up(self.quota_manager.run))
        self._follow_cluster(self.config.replication)
        await self._stopping.wait()
        for acceptor in acceptors:
            acceptor.close()
        for fleet in self.clusters.values():
            fleet.close()
        for port in self.listeners:
            port.refused_sockets.close()
        await self._drain()
        for port in self.listeners:
            port.orphans.close()
        self._dialler.cancel()
        self._finder.close()
        self._follow_cluster(None)
        for task in background:
            task.cancel()

    def _keep_up(self, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        return self._tasks.create_task(kept_up(work))

    async def _probe(self, upstream: Upstream, source: str | None) -> None:
        """See whether the broker answers, and which one it is; until cancelled."""
        await probe(upstream, source, lambda peer, was_away: self._finder.reached(upstream, peer, is_back=was_away))

    async def _read_store(self) -> None:
        """Wait for the quotas that are kept, or until this is to stop: a topic may be away for a while."""
        # None of the group's: its failure is told by who waits for it.
        reading = asyncio.ensure_future(self.quota_manager.read())
        stopping = self._tasks.create_task(self._stopping.wait())
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if reading.done():
            reading.result()
        else:
            reading.cancel()

    async def _read_quotas(self, rules: QuotaTopic | BrokerFollower) -> None:
        """Wait for the rules of a topic or of the brokers, for a while, or until this is to stop."""
        waits = [self._tasks.create_task(event.wait()) for event in (rules.may_serve, self._stopping)]
        await asyncio.wait(waits, timeout=_FIRST_RULES_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not rules.has_read.is_set() and not self.is_draining:
            within = "" if rules.may_serve.is_set() else f" within {_FIRST_RULES_S:.0f} s"
            log.warning(
                "quotas_from %s: not read to its end%s: clients are served with what is known", rules.name, within
            )

    async def _drain(self) -> None:
        """Let every connection end in good order, one after the other; close what is left at the end of the time."""
        timeout_ms = self.config.drain_timeout_ms
        connections = [connection for port in self.listeners for connection in port.connections]
        log.info("stopping: %d connections have %d ms to end", len(connections), timeout_ms)
        drain = Drain(len(connections), now_ms=monotonic_ns() // 1_000_000, timeout_ms=timeout_ms)
        for connection in connections:
            connection.release()
        done = 0
        while any(port.occupancy.total or port.broker_count for port in self.listeners):
            now_ms = monotonic_ns() // 1_000_000
            if now_ms >= drain.ends_ms or self._hurrying.is_set():
                break
            turns = drain.turns(now_ms=now_ms)
            for connection in connections[done:turns]:
                connection.drain("shutdown")
            done = turns
            if done == len(connections):
                for tls_door in self._tls_doors:
                    tls_door.close()
                for port in self.listeners:
                    for connection in tuple(port.connections):  # those that were being accepted at the start, too
                        connection.drain("shutdown")
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_STEP_S):
                    await self._hurrying.wait()
        for tls_door in self._tls_doors:
            tls_door.close()
        left = [connection for port in self.listeners for connection in port.connections]
        if left:
            level = logging.INFO if self._hurrying.is_set() else logging.WARNING
            log.log(level, "stopping: %d connections did not end in time and were closed", len(left))
        for connection in left:
            attempt(connection.close, "shutdown")

    # -- what the usage log reads --

    def _logged_brokers(self) -> Iterator[MeteredBroker]:
        enforcing = {
            upstream
            for door in self._doors
            if door.policy.enforcement is not Enforcement.OBSERVE
            for upstream in door.upstreams
        }
        found: dict[BrokerQuotas, MeteredBroker] = {}

        def add(node_id: int | None, quotas: BrokerQuotas, enforces: bool) -> None:
            before = found.get(quotas)
            if before is not None:
                node_id, enforces = (node_id if before.node_id is None else before.node_id), enforces or before.enforces
            found[quotas] = MeteredBroker(node_id, quotas, enforces)

        for upstream in self._brokers.values():
            leader, identity = upstream.broker.leader, upstream.identity
            node_id = leader.node_id if leader else None
            add(identity.node_id if identity else node_id, upstream.quotas, upstream in enforcing)
        for fleet in self.clusters.values():
            # Clients pass by ways that come and go, so all of its fronts count for each of its brokers.
            enforces = any(front.policy.enforcement is not Enforcement.OBSERVE for front in fleet.fronts)
            for node_id, quotas in fleet.quotas_by_node_id():
                add(node_id, quotas, enforces)
        yield from found.values()

    def _logged_replicas(self) -> Iterator[MeteredReplicas]:
        for leader in self.throttle.leaders:
            if leader.known_quota is not None:
                yield MeteredReplicas(LEADER_REPLICATION, leader.node_id, leader.known_quota)
        for node_id, quota in (*self.throttle.departed, *self.throttle.followers.items()):
            yield MeteredReplicas(FOLLOWER_REPLICATION, node_id, quota)


def _node_ids(config: ProxyConfig) -> dict[Address, int | None]:
    """Return the node id of each upstream; None where no listener in front of it says it."""
    node_ids: dict[Address, int | None] = {}
    for listener in config.listeners:
        if listener.upstream is not None:
            known = node_ids.get(listener.upstream)
            node_ids[listener.upstream] = listener.node_id if known is None else known
    return node_ids
