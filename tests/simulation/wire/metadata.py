"""Metadata (key 3), v1 to v13."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import NO_TOPIC_ID, NodeEndpoint, RequestHeader
from tests.simulation.wire.fields import Reader, Writer, strict

API_KEY: Final = 3
VERSIONS: Final = range(1, 14)

_FIRST_CLUSTER_ID: Final = 2
_FIRST_THROTTLE: Final = 3
_FIRST_AUTO_CREATION: Final = 4
_FIRST_OFFLINE: Final = 5
_FIRST_LEADER_EPOCH: Final = 7
_OPERATIONS: Final = 8
_LAST_CLUSTER_OPERATIONS: Final = 10
_FIRST_TOPIC_ID: Final = 10
_FIRST_ERROR: Final = 13
# The operations that the client may do were not asked for.
_NO_OPERATIONS: Final = -(2**31)


class AskedTopic(NamedTuple):
    """A topic that is asked for: by its name, or from v12 on by its id alone."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class MetadataRequest(NamedTuple):
    """A request. ``topics`` None asks for all."""

    header: RequestHeader
    topics: Sequence[AskedTopic] | None
    allow_auto_creation: bool


class Partition(NamedTuple):
    partition: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    leader_epoch: int = -1
    error_code: int = 0
    offline: Sequence[int] = ()


class Topic(NamedTuple):
    name: str | None
    partitions: Sequence[Partition]
    topic_id: bytes = NO_TOPIC_ID
    error_code: int = 0
    is_internal: bool = False


class MetadataResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    brokers: Sequence[NodeEndpoint]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[Topic]
    error_code: int = 0


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Sequence[AskedTopic] | None,
    *,
    allow_auto_creation: bool = False,
) -> bytes:
    """Return a request. ``topics`` None asks for all."""
    writer = Writer.request(API_KEY, version, correlation_id, client_id)

    def write_topic(topic: AskedTopic) -> None:
        if version >= _FIRST_TOPIC_ID:
            writer.uuid(topic.topic_id)
        writer.string(topic.name)
        writer.tags()

    writer.array(topics, write_topic)
    if version >= _FIRST_AUTO_CREATION:
        writer.boolean(allow_auto_creation)
    if version >= _OPERATIONS:
        if version <= _LAST_CLUSTER_OPERATIONS:
            writer.boolean(value=False)
        writer.boolean(value=False)
    return writer.end()


@strict
def parse_request(frame: bytes) -> MetadataRequest:
    """Read a request."""
    header, reader = Reader.request(frame, API_KEY, VERSIONS)
    version = header.api_version

    def read_topic() -> AskedTopic:
        topic_id = reader.uuid() if version >= _FIRST_TOPIC_ID else NO_TOPIC_ID
        name = reader.nullable_string() if version >= _FIRST_TOPIC_ID else reader.string()
        reader.tags()
        return AskedTopic(name, topic_id)

    topics = reader.nullable_array(read_topic)
    # Before v4, a broker creates topics if it may.
    allow_auto_creation = reader.boolean() if version >= _FIRST_AUTO_CREATION else True
    if version >= _OPERATIONS:
        if version <= _LAST_CLUSTER_OPERATIONS:
            reader.boolean()
        reader.boolean()
    reader.end()
    return MetadataRequest(header, topics, allow_auto_creation)


def response(
    correlation_id: int,
    version: int,
    brokers: Sequence[NodeEndpoint],
    topics: Sequence[Topic],
    *,
    controller_id: int = -1,
    cluster_id: str | None = None,
    throttle_ms: int = 0,
    error_code: int = 0,
) -> bytes:
    """Return a response."""
    writer = Writer.response(API_KEY, version, correlation_id)

    def write_broker(broker: NodeEndpoint) -> None:
        writer.i32(broker.node_id)
        writer.string(broker.host)
        writer.i32(broker.port)
        writer.string(broker.rack)
        writer.tags()

    def write_partition(partition: Partition) -> None:
        writer.i16(partition.error_code)
        writer.i32(partition.partition)
        writer.i32(partition.leader)
        if version >= _FIRST_LEADER_EPOCH:
            writer.i32(partition.leader_epoch)
        writer.array(partition.replicas, writer.i32)
        writer.array(partition.in_sync, writer.i32)
        if version >= _FIRST_OFFLINE:
            writer.array(partition.offline, writer.i32)
        writer.tags()

    def write_topic(topic: Topic) -> None:
        writer.i16(topic.error_code)
        writer.string(topic.name)
        if version >= _FIRST_TOPIC_ID:
            writer.uuid(topic.topic_id)
        writer.boolean(topic.is_internal)
        writer.array(topic.partitions, write_partition)
        if version >= _OPERATIONS:
            writer.i32(_NO_OPERATIONS)
        writer.tags()

    if version >= _FIRST_THROTTLE:
        writer.i32(throttle_ms)
    writer.array(brokers, write_broker)
    if version >= _FIRST_CLUSTER_ID:
        writer.string(cluster_id)
    writer.i32(controller_id)
    writer.array(topics, write_topic)
    if _OPERATIONS <= version <= _LAST_CLUSTER_OPERATIONS:
        writer.i32(_NO_OPERATIONS)
    if version >= _FIRST_ERROR:
        writer.i16(error_code)
    return writer.end()


@strict
def parse_response(frame: bytes, version: int) -> MetadataResponse:
    """Read a response."""
    correlation_id, reader = Reader.response(frame, API_KEY, version)
    throttle_ms = reader.i32() if version >= _FIRST_THROTTLE else 0
    brokers = reader.array(lambda: _read_broker(reader))
    cluster_id = reader.nullable_string() if version >= _FIRST_CLUSTER_ID else None
    controller_id = reader.i32()
    topics = reader.array(lambda: _read_topic(reader, version))
    if _OPERATIONS <= version <= _LAST_CLUSTER_OPERATIONS:
        reader.i32()
    error_code = reader.i16() if version >= _FIRST_ERROR else 0
    reader.end()
    return MetadataResponse(correlation_id, throttle_ms, brokers, cluster_id, controller_id, topics, error_code)


def _read_broker(reader: Reader) -> NodeEndpoint:
    broker = NodeEndpoint(reader.i32(), reader.string(), reader.i32(), reader.nullable_string())
    reader.tags()
    return broker


def _read_topic(reader: Reader, version: int) -> Topic:
    error_code = reader.i16()
    name = reader.nullable_string()
    topic_id = reader.uuid() if version >= _FIRST_TOPIC_ID else NO_TOPIC_ID
    is_internal = reader.boolean()
    partitions = reader.array(lambda: _read_partition(reader, version))
    if version >= _OPERATIONS:
        reader.i32()
    reader.tags()
    return Topic(name, partitions, topic_id, error_code, is_internal)


def _read_partition(reader: Reader, version: int) -> Partition:
    error_code, number, leader = reader.i16(), reader.i32(), reader.i32()
    leader_epoch = reader.i32() if version >= _FIRST_LEADER_EPOCH else -1
    replicas, in_sync = reader.array(reader.i32), reader.array(reader.i32)
    offline: Sequence[int] = reader.array(reader.i32) if version >= _FIRST_OFFLINE else ()
    reader.tags()
    return Partition(number, leader, replicas, in_sync, leader_epoch, error_code, offline)
