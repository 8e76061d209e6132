"""Keeps all brokers behind the proxy, and to which of them each listener forwards its clients."""

from collections.abc import Iterable, Mapping
from typing import cast

from kafka_quota_proxy.config.model import Address, Enforcement, Listener, ProxyConfig
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleTableChanges
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.active_rules import ActiveRules
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.cluster_listeners import BrokerCluster, ClusterListener
from kafka_quota_proxy.proxy.server.brokers.dialer import Prober
from kafka_quota_proxy.proxy.server.brokers.faults import Fault
from kafka_quota_proxy.proxy.server.brokers.finder import BrokerFinder
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue
from kafka_quota_proxy.proxy.server.brokers.registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.route import Route
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from kafka_quota_proxy.proxy.usage.meter import MeteredBroker


class KnownBrokers:
    """All brokers to which the listeners forward their clients. Listeners in front of the same broker share its quotas.

    Attributes:
        single: The brokers that listeners name with the key ``upstream``, by address. Each is an ``Upstream``.
        clusters: The clusters that listeners name with the key ``cluster``, by the set of their ``bootstrap_servers``.
        entrances: For each listener, the object that creates the protocols of its new connections.
        registry: Keeps all addresses at which brokers are reached, grouped by broker.
        prober: Tries regularly whether the brokers can be reached.
    """

    def __init__(self, rules: ActiveRules, throttle: Throttle) -> None:
        self._rules = rules
        self._throttle = throttle
        self._node_ids = node_ids(rules.config)
        self.single: dict[Address, Upstream] = {}
        self.clusters: dict[frozenset[Address], BrokerCluster] = {}
        self.entrances: dict[ListenerState, Route | ClusterListener] = {}
        source = rules.config.upstream_bind
        self.prober = Prober(lambda: self.in_use, source)
        self.registry = BrokerRegistry(self._on_joined, self.prober.add)
        self._finder = BrokerFinder(self.registry, self._node_ids, source)
        # If all listeners lead to one address or cluster, no other listener can lead to its brokers.
        self._is_alone = len({_destination(listener) for listener in rules.config.listeners}) == 1

    def connect(self, listener: ListenerState, tls: TlsContext | None) -> None:
        """Connect a listener to its broker or cluster.

        ``tls`` is the TLS context for connections to brokers, or None for plaintext.
        """
        settings = listener.settings
        listener.policy = self._rules.policy(settings)
        if settings.cluster is not None:
            cluster = self._cluster(settings, tls)
            self.entrances[listener] = cluster.add_listener(listener)
        else:
            self._connect(listener, self._single(settings, tls))

    def _connect(self, listener: ListenerState, upstream: Upstream) -> None:
        route = self.entrances[listener] = Route(listener, upstream)
        self._finder.listen(route)

    def is_introduced(self, listener: ListenerState) -> bool:
        """Whether it is settled which quotas count the clients of a listener, so that they can be served."""
        return all(upstream.is_settled for upstream in self._asked(listener))

    async def introduce(self, listener: ListenerState) -> bool:
        """Ask the brokers of a listener who they are, before its first client is served. Takes two seconds at most.

        Return whether this is settled. It is not as long as no broker can be reached.
        """
        entrance = self.entrances[listener]
        if isinstance(entrance, Route):
            return await self._finder.introduce(listener.name, self._asked(listener), None)
        is_settled = await self._finder.introduce(listener.name, self._asked(listener), entrance.cluster.answered)
        if is_settled:
            entrance.cluster.may_serve.set()
        return is_settled

    def _asked(self, listener: ListenerState) -> list[Upstream]:
        entrance = self.entrances[listener]
        return [entrance.upstream] if isinstance(entrance, Route) else entrance.cluster.servers

    def _cluster(self, settings: Listener, tls: TlsContext | None) -> BrokerCluster:
        servers = settings.cluster.bootstrap_servers if settings.cluster else ()
        cluster = self.clusters.get(frozenset(servers))
        if cluster is None:
            cluster = self.clusters[frozenset(servers)] = BrokerCluster(
                servers, self._rules, settings.shaping, self._throttle, self.registry, tls
            )
            if self._is_alone:
                for server in cluster.servers:
                    self.registry.settle(server)
                cluster.may_serve.set()
        return cluster

    def _single(self, settings: Listener, tls: TlsContext | None) -> Upstream:
        address = cast(Address, settings.upstream)
        upstream = self.single.get(address)
        if upstream is None:

            def make() -> Broker:
                quotas = BrokerQuotas(self._rules.config, shaping=settings.shaping, rules=self._rules.tables)
                return Broker(quotas, self._throttle.leader(address, self._node_ids[address]))

            upstream = self.registry.add(Upstream(address, make, tls=tls, shaping=settings.shaping))
            self.single[address] = upstream
            if self._is_alone:
                self.registry.settle(upstream)
        return upstream

    def update(self, listeners: Mapping[str, Listener], changed: RuleTableChanges, config: ProxyConfig) -> None:
        """Apply a reloaded file. ``changed`` contains the changed rules.

        ``listeners`` contains the listeners of the file by name, and ``config`` is the configuration in force.
        """
        for listener, entrance in self.entrances.items():
            settings = listeners.get(listener.name)
            if settings is None:
                # The listener stays open until the next start. The right to change quotas follows the file at once.
                policy = listener.policy
                administration = self._rules.administration(listener.name, is_inter_broker=policy.is_inter_broker)
                listener.policy = policy._replace(administration=administration)
            else:
                listener.update(settings)
                listener.policy = self._rules.policy(settings)
            for route in entrance.all_routes():
                route.follow_listener()
        for settings in listeners.values():
            if settings.upstream in self.single:
                self.single[settings.upstream].shaping = settings.shaping
            elif settings.cluster and frozenset(settings.cluster.bootstrap_servers) in self.clusters:
                self.clusters[frozenset(settings.cluster.bootstrap_servers)].set_shaping(settings.shaping)
        for cluster in self.clusters.values():
            cluster.bootstrap_quotas.update(config, shaping=cluster.shaping, changed=changed)
        for broker in self.registry.brokers:
            broker.quotas.update(config, shaping=self.registry.first(broker).shaping, changed=changed)

    def follow(self, changes: QuotaChanges) -> None:
        """Enforce rules that have changed, begun or expired at all brokers, from the next request on."""
        changed = self._rules.tables.change(changes)
        for broker in self.registry.brokers:
            broker.quotas.rules_changed(changed)
        for cluster in self.clusters.values():
            cluster.bootstrap_quotas.rules_changed(changed)

    def close(self) -> None:
        """Cancel the timers of the queues, and the queries which find out which brokers the proxy is connected to."""
        self._finder.close()
        for broker in self.registry.brokers:
            if broker.queue is not None:
                broker.queue.close()

    def _on_joined(self, upstream: Upstream) -> None:
        for listener, entrance in self.entrances.items():
            if isinstance(entrance, Route) and entrance.upstream is upstream:
                self._connect(listener, upstream)  # no client has used the route yet

    # -- views, for metrics and the usage log --

    @property
    def upstreams(self) -> list[Upstream]:
        """All addresses at which the proxy reaches brokers. Several of them may lead to the same broker."""
        return [*self.single.values(), *(one for cluster in self.clusters.values() for one in cluster.upstreams)]

    @property
    def quotas(self) -> list[BrokerQuotas]:
        """The quotas of all brokers, each broker once, and the quotas of the bootstrap ports."""
        clusters = self.clusters.values()
        return [broker.quotas for broker in self.registry.brokers] + [cluster.bootstrap_quotas for cluster in clusters]

    @property
    def quotas_by_name(self) -> list[tuple[str, BrokerQuotas]]:
        """Each broker's quotas with the address of its first upstream; those of bootstrap ports as ``bootstrap``."""
        clusters = tuple(self.clusters.values())
        upstreams = [*self.single.values(), *(one for cluster in clusters for one in tuple(cluster.brokers.values()))]
        names = _first_names(upstreams)
        return [(name, broker.quotas) for broker, name in names.items()] + [
            ("bootstrap", cluster.bootstrap_quotas) for cluster in clusters
        ]

    @property
    def queues_by_name(self) -> list[tuple[str, BrokerQueue]]:
        """The fair call queue of each broker that has one, with the first address at which it is reached."""
        return [(name, one.queue) for one, name in _first_names(self.upstreams).items() if one.queue is not None]

    def upstreams_of(self, listener: ListenerState) -> list[Upstream]:
        """Return the ``Upstream`` objects of the brokers to which a listener forwards its clients now."""
        return list(dict.fromkeys(route.upstream for route in self.entrances[listener].all_routes()))

    def metered(self) -> Iterable[MeteredBroker]:
        """Return what the usage log must read: each broker's quotas once, with the broker's node id if it is known."""
        enforcing = {
            upstream
            for listener in self.entrances
            if listener.policy.enforcement is not Enforcement.OBSERVE
            for upstream in self.upstreams_of(listener)
        }
        found: dict[BrokerQuotas, MeteredBroker] = {}

        def add(node_id: int | None, quotas: BrokerQuotas, enforces: bool, cluster_id: str | None) -> None:
            before = found.get(quotas)
            if before is not None:
                node_id, enforces = (node_id if before.node_id is None else before.node_id), enforces or before.enforces
                cluster_id = before.cluster or cluster_id
            found[quotas] = MeteredBroker(node_id, quotas, enforces, cluster_id)

        for upstream in self.single.values():
            leader, identity = upstream.broker.leader, upstream.broker.identity
            node_id = identity.node_id if identity else leader.node_id if leader else None
            add(node_id, upstream.quotas, upstream in enforcing, identity.cluster_id if identity else None)
        for cluster in self.clusters.values():
            # The routes of a cluster come and go, so each of its listeners counts for each of its brokers.
            enforces = any(one.listener.policy.enforcement is not Enforcement.OBSERVE for one in cluster.listeners)
            for node_id, quotas in cluster.quotas_by_node_id():
                add(node_id, quotas, enforces, cluster.cluster_id)
        return found.values()

    @property
    def in_use(self) -> list[Upstream]:
        """The addresses at which the proxy reaches brokers now. A cluster's bootstrap servers are its stand-ins."""
        clusters = tuple(self.clusters.values())
        return [*self.single.values(), *(one for cluster in clusters for one in cluster.members)]

    def faults(self) -> dict[Address, Fault | None]:
        """Return why each broker cannot be reached, by its address, or None if it can.

        A cluster is represented by its bootstrap servers until its brokers are known.
        """
        found: dict[Address, Fault | None] = {}
        for upstream in self.in_use:
            found[upstream.address] = found.get(upstream.address) or upstream.fault
        for cluster in tuple(self.clusters.values()):
            for listener in tuple(cluster.listeners):
                found.update(listener.without_port)
        return found

    def bypasses(self) -> dict[Address, Address]:
        """Return the upstreams that send clients past the proxy, and the addresses that they advertise."""
        return {one.address: one.bypass for one in tuple(self.single.values()) if one.bypass is not None}

    def is_reachable(self) -> bool:
        """Whether clients can reach every broker in ``single``, and one broker through each listener of a cluster."""
        listeners = (one for cluster in self.clusters.values() for one in cluster.listeners)
        return all(one.is_reachable for one in self.single.values()) and all(one.has_broker for one in listeners)


def _first_names(upstreams: list[Upstream]) -> dict[Broker, str]:
    names: dict[Broker, str] = {}
    for upstream in upstreams:
        names.setdefault(upstream.broker, str(upstream.address))
    return names


def _destination(listener: Listener) -> Address | frozenset[Address] | None:
    return frozenset(listener.cluster.bootstrap_servers) if listener.cluster else listener.upstream


def node_ids(config: ProxyConfig) -> dict[Address, int | None]:
    """Return the node id that the configuration file gives for each ``upstream``, or None."""
    found: dict[Address, int | None] = {}
    for listener in config.listeners:
        if listener.upstream is not None:
            known = found.get(listener.upstream)
            found[listener.upstream] = listener.node_id if known is None else known
    return found
