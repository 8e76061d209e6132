"""What clients ask first: the versions that a broker supports, and where topics live."""

from typing import TYPE_CHECKING, Final

from tests.simulation.brokers.partition import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from tests.simulation.brokers.profiles import NEWEST, OF_TOMORROW
from tests.simulation.wire import greeting, transfer
from tests.simulation.wire.common import NO_TOPIC_ID, NodeEndpoint, RequestHeader

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster, Topic
    from tests.simulation.brokers.connection import Connection
    from tests.simulation.brokers.partition import Partition

_API_VERSIONS: Final = 18
# Before it, each request asks for the creation of its topics.
_FIRST_AUTO_CREATION: Final = 4


def answer_api_versions(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Answer with all versions; in v0 and with an error if the version of the request is unknown."""
    cluster = connection.broker.cluster
    lowest, highest = cluster.versions[_API_VERSIONS]
    if lowest <= header.api_version <= highest:
        greeting.api_versions.parse_request(frame)
        offered = OF_TOMORROW if cluster.versions is NEWEST else cluster.versions
        response = greeting.api_versions.response(header.correlation_id, header.api_version, offered)
    else:
        response = greeting.api_versions.response(
            header.correlation_id,
            0,
            {_API_VERSIONS: (lowest, highest)},
            error_code=greeting.UNSUPPORTED_VERSION,
        )
    connection.respond(header, response)


def answer_metadata(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Answer with the live brokers and the topics that were asked for. A topic may be created by the way."""
    request = transfer.metadata.parse_request(frame)
    cluster = connection.broker.cluster
    if request.topics is None:
        topics = [_describe(cluster, topic) for topic in cluster.topics.values()]
    else:
        asks_to_create = request.allow_auto_creation or header.api_version < _FIRST_AUTO_CREATION
        creates = asks_to_create and cluster.is_creating_topics
        topics = [_find(cluster, asked, creates=creates) for asked in request.topics]
    addresses = cluster.advertised
    live = [NodeEndpoint(node_id, *addresses[node_id, connection.listener]) for node_id in cluster.live_nodes()]
    connection.answer(transfer.metadata, header, live, topics, cluster.controller, cluster.cluster_id)


def _find(cluster: "Cluster", asked: transfer.AskedTopic, *, creates: bool) -> transfer.DescribedTopic:
    name, topic_id = asked
    if topic_id != NO_TOPIC_ID:
        topic = cluster.topics_by_id.get(topic_id)
        if topic is None:
            return transfer.DescribedTopic(None, (), topic_id, UNKNOWN_TOPIC_ID)
        return _describe(cluster, topic)
    topic = cluster.topics.get(name or "")
    if topic is None:
        if creates and name:
            cluster.create_topic(name, cluster.default_partitions)
            return transfer.DescribedTopic(name, (), NO_TOPIC_ID, LEADER_NOT_AVAILABLE)
        return transfer.DescribedTopic(name, (), NO_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION)
    return _describe(cluster, topic)


def _describe(cluster: "Cluster", topic: "Topic") -> transfer.DescribedTopic:
    return transfer.DescribedTopic(
        topic.name, [_describe_partition(cluster, partition) for partition in topic.partitions], topic.topic_id
    )


def _describe_partition(cluster: "Cluster", partition: "Partition") -> transfer.DescribedPartition:
    return transfer.DescribedPartition(
        partition.index,
        partition.leader,
        partition.replicas,
        partition.isr,
        partition.leader_epoch,
        0 if partition.leader >= 0 else LEADER_NOT_AVAILABLE,
        [node_id for node_id in partition.replicas if not cluster.brokers[node_id].is_up],
    )
