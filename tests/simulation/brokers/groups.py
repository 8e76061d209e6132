"""What consumer groups and idempotent producers ask of their coordinator, answered simply."""

from typing import TYPE_CHECKING, Final
from zlib import crc32

from tests.simulation.brokers.partition import UNKNOWN_TOPIC_OR_PARTITION
from tests.simulation.clients import impostor
from tests.simulation.wire import groups
from tests.simulation.wire.common import RequestHeader

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster
    from tests.simulation.brokers.connection import Connection

_COORDINATOR_NOT_AVAILABLE: Final = 15
_NOT_COORDINATOR: Final = 16
_FIRST_FETCH_ALL: Final = 2


def coordinator_of(cluster: "Cluster", key: str) -> int:
    """Return the live broker that coordinates a group, or -1."""
    alive = list(cluster.live_nodes())
    return alive[crc32(key.encode()) % len(alive)] if alive else -1


def answer_find(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Say which broker coordinates groups."""
    request = groups.find_coordinator.parse_request(frame)
    cluster = connection.broker.cluster
    found = []
    for key in request.keys:
        node_id = coordinator_of(cluster, key)
        if node_id < 0:
            found.append(groups.Coordinator(key, -1, "", -1, _COORDINATOR_NOT_AVAILABLE))
        else:
            address = cluster.advertised[node_id, connection.listener]
            found.append(groups.Coordinator(key, node_id, *address))
    connection.answer(groups.find_coordinator, header, found)


def _error(connection: "Connection", group_id: str) -> int:
    broker = connection.broker
    return 0 if coordinator_of(broker.cluster, group_id) == broker.node_id else _NOT_COORDINATOR


def answer_markers(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Write no markers of transactions, which only brokers ask for."""
    connection.respond(header, impostor.answer(header.correlation_id))


def answer_heartbeat(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Say that the group is stable."""
    request = groups.heartbeat.parse_request(frame)
    throttle_ms = connection.broker.draw_throttle()
    connection.answer(groups.heartbeat, header, _error(connection, request.group_id), throttle_ms=throttle_ms)


def answer_join(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Let each member lead a group of its own."""
    request = groups.join_group.parse_request(frame)
    member_id = request.member_id or f"member-{header.correlation_id}"
    connection.answer(
        groups.join_group,
        header,
        error_code=_error(connection, request.group_id),
        protocol_name=request.protocols[0].name if request.protocols else "",
        leader=member_id,
        member_id=member_id,
        members=[groups.Member(member_id)],
    )


def answer_commit(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Keep the offsets of a group."""
    request = groups.offset_commit.parse_request(frame)
    cluster = connection.broker.cluster
    error = _error(connection, request.group_id)
    topics = []
    for name, partitions in request.topics:
        results = []
        for partition in partitions:
            code = error or (0 if (name, partition.partition) in cluster.partitions else UNKNOWN_TOPIC_OR_PARTITION)
            if not code:
                cluster.offsets[request.group_id, name, partition.partition] = partition.offset
            results.append(groups.PartitionResult(partition.partition, code))
        topics.append(groups.TopicResult(name, results))
    connection.answer(groups.offset_commit, header, topics, throttle_ms=connection.broker.draw_throttle())


def answer_offsets(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Tell the offsets of a group."""
    request = groups.offset_fetch.parse_request(frame)
    offsets = connection.broker.cluster.offsets
    error = _error(connection, request.group_id)
    asked: dict[str, list[int]] = {}
    if request.topics is None:
        for group_id, name, index in offsets:
            if group_id == request.group_id:
                asked.setdefault(name, []).append(index)
    else:
        asked = {topic.name: list(topic.partitions) for topic in request.topics}
    topics = [
        groups.FoundTopic(
            name,
            [
                groups.FoundPartition(
                    index,
                    offsets.get((request.group_id, name, index), -1),
                    error_code=0 if header.api_version >= _FIRST_FETCH_ALL else error,
                )
                for index in indexes
            ],
        )
        for name, indexes in asked.items()
    ]
    connection.answer(groups.offset_fetch, header, [] if error else topics, error_code=error)


def answer_producer_id(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Give a producer an id that nobody has had."""
    groups.init_producer_id.parse_request(frame)
    cluster = connection.broker.cluster
    cluster.next_producer_id += 1
    throttle_ms = connection.broker.draw_throttle()
    connection.answer(groups.init_producer_id, header, cluster.next_producer_id, throttle_ms=throttle_ms)
