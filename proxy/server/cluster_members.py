"""The brokers of one cluster, as its own answers tell of them, and what clients are told instead.

Whoever reads an answer that names brokers hands it in here (``see``), and gets what has changed: ports are opened and
closed by it before the answer goes on to a client. No I/O, no clock.

Source: MetadataResponse.json and DescribeClusterResponse.json of Apache Kafka, which list the brokers that are alive.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address, Cluster

# A broker that restarts is missing from its cluster's answers for some seconds, and one that answers may lag behind.
LEAVES_AFTER_MS: Final = 30_000


class MemberChanges(NamedTuple):
    """What is different since the last answer: node ids, with addresses where they are needed."""

    joined: Mapping[int, Address] = {}
    moved: Mapping[int, Address] = {}  # known under another address before
    left: tuple[int, ...] = ()
    without_port: tuple[int, ...] = ()  # said once each: outside broker_ports


NO_CHANGES: Final = MemberChanges()


class ClusterMembers:
    """Who is in the cluster. ``brokers`` has those that have a port of ours, by node id."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.brokers: dict[int, Address] = {}
        self._absent_since_ms: dict[int, int] = {}
        self._without_port: set[int] = set()

    def see(self, brokers: Mapping[int, Address], *, is_all: bool, now_ms: int) -> MemberChanges:
        """Take up what an answer said.

        Args:
            brokers: node id and address of each broker that the answer named.
            is_all: whether these are all brokers that are alive, as in Metadata; else some of them.
            now_ms: when the answer came.
        """
        if brokers == self.brokers and not self._absent_since_ms:
            return NO_CHANGES
        joined, moved, without_port = {}, {}, []
        for node_id, address in brokers.items():
            known = self.brokers.get(node_id)
            if known is None and self.cluster.port_of(node_id) is None:
                if node_id not in self._without_port:
                    without_port.append(node_id)
            elif known is None:
                joined[node_id] = address
            elif known != address:
                moved[node_id] = address
            self._absent_since_ms.pop(node_id, None)
        self._without_port.update(without_port)
        self.brokers.update(joined)
        self.brokers.update(moved)
        left = self._leave(brokers, now_ms) if is_all else ()
        return MemberChanges(joined, moved, left, tuple(without_port))

    def _leave(self, alive: Mapping[int, Address], now_ms: int) -> tuple[int, ...]:
        """Forget those that have been missing for long."""
        left = sorted(
            node_id
            for node_id in self.brokers.keys() - alive.keys()
            if now_ms - self._absent_since_ms.setdefault(node_id, now_ms) >= LEAVES_AFTER_MS
        )
        for node_id in left:
            del self.brokers[node_id], self._absent_since_ms[node_id]
        return tuple(left)
