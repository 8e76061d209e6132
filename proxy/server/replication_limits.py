"""Applies the limits on replication, and runs the watcher that reads the cluster's own limits and its topic ids."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from time import monotonic_ns

from kafka_quota_proxy.config.model import ProxyConfig, Replication
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView, servers_behind
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.brokers.known_brokers import node_ids
from kafka_quota_proxy.proxy.usage.meter import FOLLOWER_REPLICATION, LEADER_REPLICATION, MeteredReplicas


class ReplicationLimits:
    """Applies the replication limits that are set in the configuration file and in the cluster.

    A ``ReplicationWatcher`` runs while the configuration file sets limits and there is at least one broker to ask.
    """

    def __init__(
        self, config: ProxyConfig, start: Callable[[Callable[[], Coroutine[None, None, None]]], asyncio.Task[None]]
    ) -> None:
        self._start = start
        self.throttle = Throttle(config.replication, config.kafka)
        self.watcher: ReplicationWatcher | None = None
        self._node_ids = node_ids(config)
        self._fallback = servers_behind(config)
        self._watching: asyncio.Task[None] | None = None

    def update(self, replication: Replication | None) -> None:
        """Apply the limits of a reloaded configuration file. ``replication`` is None if the file sets no limits."""
        self.throttle.update(replication, now_ms=monotonic_ns() // 1_000_000)
        self.watch(replication)

    def watch(self, replication: Replication | None) -> None:
        """Start, update or stop the watcher, depending on the section ``replication`` of the configuration file."""
        if replication is None or not (replication.admin_client.bootstrap_servers or self._fallback):
            self.stop()
        elif self.watcher is not None:
            self.watcher.update(replication)
        else:
            self.watcher = ReplicationWatcher(replication, self._node_ids, fallback=self._fallback, on_view=self.see)
            self.throttle.ask = self.watcher.request
            self._watching = self._start(self.watcher.run)

    def stop(self) -> None:
        """Stop polling the cluster for replication throttles, and enforce none that were read from the cluster."""
        if self._watching is not None:
            self._watching.cancel()
            self.see(ClusterView())
        self.watcher = self._watching = None

    def see(self, view: ClusterView) -> None:
        """Apply the cluster's replication throttles, topic ids and reassignments, which were read from the cluster."""
        self.throttle.see(view, now_ms=monotonic_ns() // 1_000_000)

    def metered(self) -> Iterator[MeteredReplicas]:
        """Yield what the usage log must read: the quotas on the replication traffic of all leaders and followers."""
        throttle = self.throttle
        for leader in throttle.leaders:
            if leader.known_quota is not None:
                yield MeteredReplicas(LEADER_REPLICATION, leader.node_id, leader.known_quota)
        for node_id, quota in (*throttle.departed, *throttle.followers.items()):
            yield MeteredReplicas(FOLLOWER_REPLICATION, node_id, quota)
