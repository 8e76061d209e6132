"""Keeps track of which brokers a cluster has, from responses that list brokers.

``ClusterMembers.see`` returns what a response has changed. The caller then opens and closes ports, before it forwards
the response to a client. This module does no I/O and reads no clock.

Source: MetadataResponse.json and DescribeClusterResponse.json of Apache Kafka.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address, Cluster

# A broker that restarts is missing for some seconds, and the broker that responds may lag behind.
LEAVES_AFTER_MS: Final = 30_000


class MemberChanges(NamedTuple):
    """Holds what one response has changed in the list of a cluster's brokers, by node id."""

    joined: Mapping[int, Address] = {}
    left: tuple[int, ...] = ()
    without_port: tuple[int, ...] = ()  # brokers outside ``broker_ports``; each is reported once


NO_CHANGES: Final = MemberChanges()


class ClusterMembers:
    """Keeps the list of a cluster's brokers for which a listener has a port.

    ``brokers`` contains their addresses by node id. ``outside`` contains those of the brokers outside ``broker_ports``.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.brokers: dict[int, Address] = {}
        self.outside: dict[int, Address] = {}
        self._absent_since_ms: dict[int, int] = {}
        self._without_port: set[int] = set()  # those that were reported

    def see(self, brokers: Mapping[int, Address], *, is_all: bool, now_ms: int) -> MemberChanges:
        """Apply a response with the addresses of ``brokers`` by node id, and return what has changed.

        ``is_all`` says whether the response lists all brokers that are alive, as Metadata does.
        """
        if brokers == self.brokers and not self._absent_since_ms and not self.outside:
            return NO_CHANGES
        joined = {}
        outside = {} if is_all else self.outside.copy()
        for node_id, address in brokers.items():
            if self.cluster.port_of(node_id) is not None:
                if node_id not in self.brokers:
                    joined[node_id] = address
                self.brokers[node_id] = address
            else:
                outside[node_id] = address
            self._absent_since_ms.pop(node_id, None)
        self.outside = outside  # replaced in one step, because the admin port reads it in another thread
        without_port = [node_id for node_id in outside if node_id not in self._without_port]
        self._without_port.update(without_port)
        left = self._leave(brokers, now_ms) if is_all else ()
        return MemberChanges(joined, left, tuple(without_port))

    def _leave(self, alive: Mapping[int, Address], now_ms: int) -> tuple[int, ...]:
        """Remove the brokers that responses have not listed for ``LEAVES_AFTER_MS``, and return their node ids."""
        left = sorted(
            node_id
            for node_id in self.brokers.keys() - alive.keys()
            if now_ms - self._absent_since_ms.setdefault(node_id, now_ms) >= LEAVES_AFTER_MS
        )
        for node_id in left:
            del self.brokers[node_id], self._absent_since_ms[node_id]
        return tuple(left)
