"""What the usage log reads: the quotas of every broker, and of throttled replicas."""

from collections.abc import Iterator

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.known_brokers import KnownBrokers
from kafka_quota_proxy.proxy.usage.meter import (
    FOLLOWER_REPLICATION,
    LEADER_REPLICATION,
    MeteredBroker,
    MeteredReplicas,
)


def metered_brokers(brokers: KnownBrokers) -> Iterator[MeteredBroker]:
    """Yield the quotas of each broker once, with its node id where that is known."""
    entrances = brokers.entrances.values()
    enforcing = {
        upstream
        for entrance in entrances
        if entrance.policy.enforcement is not Enforcement.OBSERVE
        for upstream in entrance.upstreams
    }
    found: dict[BrokerQuotas, MeteredBroker] = {}

    def add(node_id: int | None, quotas: BrokerQuotas, enforces: bool) -> None:
        before = found.get(quotas)
        if before is not None:
            node_id, enforces = (node_id if before.node_id is None else before.node_id), enforces or before.enforces
        found[quotas] = MeteredBroker(node_id, quotas, enforces)

    for upstream in brokers.single.values():
        leader, identity = upstream.broker.leader, upstream.identity
        node_id = leader.node_id if leader else None
        add(identity.node_id if identity else node_id, upstream.quotas, upstream in enforcing)
    for cluster in brokers.clusters.values():
        # The routes of a cluster come and go, so each of its listeners counts for each of its brokers.
        enforces = any(one.policy.enforcement is not Enforcement.OBSERVE for one in cluster.listeners)
        for node_id, quotas in cluster.quotas_by_node_id():
            add(node_id, quotas, enforces)
    yield from found.values()


def metered_replicas(throttle: Throttle) -> Iterator[MeteredReplicas]:
    """Yield the quotas of replicas that are, or were, throttled."""
    for leader in throttle.leaders:
        if leader.known_quota is not None:
            yield MeteredReplicas(LEADER_REPLICATION, leader.node_id, leader.known_quota)
    for node_id, quota in (*throttle.departed, *throttle.followers.items()):
        yield MeteredReplicas(FOLLOWER_REPLICATION, node_id, quota)
