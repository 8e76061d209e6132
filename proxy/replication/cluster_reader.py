"""Reads replication throttles, topic ids and reassignments from the cluster, as an admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka.errors import UnknownTopicOrPartitionError

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.proxy.kafka_client.admin_client import BrokerClient, ClusterClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import ConfigKind, ConfigQuery, Topic
from kafka_quota_proxy.proxy.replication.cluster_view import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Readings,
)

_RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
_REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
# aiokafka decodes in Python and holds the interpreter's lock meanwhile. 500 topics take about 10 ms.
_TOPICS_AT_ONCE: Final = 500
_IDENTIFY_TIMEOUT_MS: Final = 3_000


class ClusterReader:
    """Reads the state of one cluster, on connections that stay open between calls.

    Every method blocks, and only one thread at a time may read. After an exception, such as one of
    ``admin_client.ADMIN_ERRORS``, close this reader and create another.
    """

    def __init__(self, settings: AdminClient, fallback: tuple[Address, ...]) -> None:
        self._settings = settings
        self._client = ClusterClient(settings, fallback)

    def close(self) -> None:
        """Close the reader's connections. If a call is in progress in another thread, the call fails."""
        self._client.close()

    def read(self, *, has_topics: bool, has_configs: bool, has_topic_configs: bool) -> Readings:
        """Read the state of the cluster: always its brokers, and the rest as the arguments request.

        Args:
            has_topics: Whether to read topic ids.
            has_configs: Whether to read the brokers' throttles, and the partitions that are being reassigned.
            has_topic_configs: Whether to read the topics' lists of throttled replicas.
        """
        metadata = self._client.metadata(None if has_topics or has_topic_configs else ())
        brokers = tuple(broker.node_id for broker in metadata.brokers)
        topics = [topic for topic in metadata.topics if topic.error_code == 0]
        return Readings(
            brokers=brokers,
            topic_names=_topic_names(topics) if has_topics or has_topic_configs else None,
            broker_configs=self._broker_configs(brokers) if has_configs else None,
            topic_configs=self._topic_configs([topic.name for topic in topics]) if has_topic_configs else None,
            moving=frozenset(self._client.reassignments()) if has_configs else frozenset(),
        )

    def identify(self, upstream: Address, node_ids: Iterable[int]) -> int | None:
        """Return the node id of the broker at the address ``upstream``; None if it is not one of ``node_ids``.

        A Metadata response does not show this if the brokers advertise addresses of a proxy. So the broker is asked for
        the configs of all ``node_ids``. It answers for its own node id, and refuses the others (INVALID_REQUEST).
        """
        query = ConfigQuery(ConfigKind.BROKER, tuple(map(str, node_ids)), _RATES)
        with BrokerClient(self._settings, (upstream,), timeout_ms=_IDENTIFY_TIMEOUT_MS) as client:
            found = [int(configs.name) for configs in client.describe_configs(query) if configs.error_code == 0]
        return found[0] if len(found) == 1 else None

    def _broker_configs(self, node_ids: Iterable[int]) -> Mapping[int, Mapping[str, str | None] | None]:
        """Return the configs of all brokers by node id. The configs of a broker that does not answer are None."""
        queries = [ConfigQuery(ConfigKind.BROKER, (str(node_id),), _RATES, node_id) for node_id in node_ids]
        answers = self._client.configs(queries)
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if failures and len(failures) == len(queries):
            raise failures[0]
        return {
            int(query.names[0]): None if isinstance(answer, Exception) else answer[0].checked()
            for query, answer in zip(queries, answers, strict=True)
        }

    def _topic_configs(self, names: list[str]) -> Mapping[str, Mapping[str, str | None]]:
        configs: dict[str, Mapping[str, str | None]] = {}
        for first in range(0, len(names), _TOPICS_AT_ONCE):
            some = tuple(names[first : first + _TOPICS_AT_ONCE])
            (answer,) = self._client.configs([ConfigQuery(ConfigKind.TOPIC, some, _REPLICAS)])
            if isinstance(answer, Exception):
                raise answer
            for topic in answer:
                if topic.error_code != UnknownTopicOrPartitionError.errno:  # deleted meanwhile
                    configs[topic.name] = topic.checked()
        return configs


def _topic_names(topics: Iterable[Topic]) -> Mapping[bytes, str]:
    """Return topic names by topic id. Clusters older than Kafka 2.8 have no topic ids."""
    return {topic.topic_id: topic.name for topic in topics if topic.topic_id is not None}
