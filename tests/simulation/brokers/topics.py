"""Requests that create, delete and grow topics. Only the controller obeys them."""

from typing import TYPE_CHECKING, Final

from tests.simulation.brokers.partition import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from tests.simulation.wire import administration
from tests.simulation.wire.common import NO_TOPIC_ID, RequestHeader

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster
    from tests.simulation.brokers.connection import Connection

_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION_FACTOR: Final = 38
_INVALID_REPLICA_ASSIGNMENT: Final = 39
_NOT_CONTROLLER: Final = 41


def _is_controller(connection: "Connection") -> bool:
    broker = connection.broker
    return broker.cluster.controller == broker.node_id


def answer_create(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Create topics."""
    request = administration.create_topics.parse_request(frame)
    cluster = connection.broker.cluster
    is_controller = _is_controller(connection)
    created = [
        _create(cluster, topic, dry=request.validate_only)
        if is_controller
        else administration.CreatedTopic(topic.name, _NOT_CONTROLLER)
        for topic in request.topics
    ]
    connection.answer(administration.create_topics, header, created, throttle_ms=connection.broker.draw_throttle())


def _create(cluster: "Cluster", topic: administration.NewTopic, *, dry: bool) -> administration.CreatedTopic:
    count = len(topic.assignments) or (cluster.default_partitions if topic.partitions == -1 else topic.partitions)
    replication = 1 if topic.replication_factor == -1 else topic.replication_factor
    error = 0
    if topic.name in cluster.topics:
        error = _TOPIC_ALREADY_EXISTS
    elif count < 1:
        error = _INVALID_PARTITIONS
    elif not 1 <= replication <= len(cluster.brokers):
        error = _INVALID_REPLICATION_FACTOR
    elif not all(set(placed.brokers) <= set(cluster.brokers) and placed.brokers for placed in topic.assignments):
        error = _INVALID_REPLICA_ASSIGNMENT
    if error:
        return administration.CreatedTopic(topic.name, error)
    topic_id = NO_TOPIC_ID
    if not dry:
        replicas = [placed.brokers for placed in topic.assignments] or None
        topic_id = cluster.create_topic(topic.name, count, replication=replication, replicas=replicas).topic_id
        cluster.world.story.tell(f"topic {topic.name} is created with {count} partitions")
    return administration.CreatedTopic(topic.name, topic_id=topic_id, partitions=count, replication_factor=replication)


def answer_delete(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Delete topics, by name or by id."""
    request = administration.delete_topics.parse_request(frame)
    is_controller = _is_controller(connection)
    deleted = [
        _delete(connection.broker.cluster, topic)
        if is_controller
        else administration.DeletedTopic(topic.name, _NOT_CONTROLLER, None, topic.topic_id)
        for topic in request.topics
    ]
    connection.answer(administration.delete_topics, header, deleted, throttle_ms=connection.broker.draw_throttle())


def _delete(cluster: "Cluster", doomed: administration.DoomedTopic) -> administration.DeletedTopic:
    if doomed.name is None:
        topic = cluster.topics_by_id.get(doomed.topic_id)
        if topic is None:
            return administration.DeletedTopic(None, UNKNOWN_TOPIC_ID, None, doomed.topic_id)
    else:
        topic = cluster.topics.get(doomed.name)
        if topic is None:
            return administration.DeletedTopic(doomed.name, UNKNOWN_TOPIC_OR_PARTITION)
    cluster.delete_topic(topic.name)
    return administration.DeletedTopic(topic.name, topic_id=topic.topic_id)


def answer_grow(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Add partitions to topics."""
    request = administration.create_partitions.parse_request(frame)
    is_controller = _is_controller(connection)
    results = [
        _grow(connection.broker.cluster, topic, dry=request.validate_only)
        if is_controller
        else administration.GrowthResult(topic.name, _NOT_CONTROLLER)
        for topic in request.topics
    ]
    connection.answer(administration.create_partitions, header, results, throttle_ms=connection.broker.draw_throttle())


def _grow(cluster: "Cluster", grown: administration.GrownTopic, *, dry: bool) -> administration.GrowthResult:
    topic = cluster.topics.get(grown.name)
    if topic is None:
        return administration.GrowthResult(grown.name, UNKNOWN_TOPIC_OR_PARTITION)
    has = len(topic.partitions)
    if grown.partitions <= has:
        return administration.GrowthResult(grown.name, _INVALID_PARTITIONS)
    if not dry:
        replicas = None
        if grown.assignments is not None:
            replicas = [partition.replicas for partition in topic.partitions]
            replicas += [list(assignment.brokers) for assignment in grown.assignments]
            if len(replicas) != grown.partitions:
                return administration.GrowthResult(grown.name, _INVALID_REPLICA_ASSIGNMENT)
        replication = len(topic.partitions[0].replicas)
        cluster.add_partitions(topic, grown.partitions, replication=replication, replicas=replicas)
        cluster.world.story.tell(f"topic {grown.name} has {grown.partitions} partitions from now on")
    return administration.GrowthResult(grown.name)
