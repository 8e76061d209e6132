"""What a proxy reads of the simulated cluster for replication throttles. The Kafka client itself has other tests."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.replication.cluster_view import Readings

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster


class SimulatedReader:
    """Reads the cluster at once, if one of its brokers is up."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def close(self) -> None:
        """Do nothing."""

    def read(self, *, has_topics: bool, has_configs: bool, has_topic_configs: bool) -> Readings:
        """Return the state of the cluster.

        Raises:
            ConnectionError: If no broker is up.
        """
        cluster = self._cluster
        live = [node_id for node_id, broker in cluster.brokers.items() if broker.is_up and not broker.is_stalled]
        if not live:
            raise ConnectionError("no broker answers")
        return Readings(
            brokers=tuple(live),
            topic_names={topic.topic_id: topic.name for topic in cluster.topics.values()} if has_topics else None,
            broker_configs=_nothing(live) if has_configs else None,
            topic_configs={name: {} for name in cluster.topics} if has_topic_configs else None,
            moving=frozenset(),
        )

    def identify(self, upstream: Address, node_ids: Iterable[int]) -> int | None:
        """Return the node id of the broker at an address."""
        found = self._cluster.world.broker_addresses.get((upstream.host, upstream.port))
        return found if found is not None and found in set(node_ids) else None


def _nothing(node_ids: Iterable[int]) -> Mapping[int, Mapping[str, str | None]]:
    return {node_id: {} for node_id in node_ids}
