"""Metadata (key 3, v1-13), asked by ourselves: how many partitions topics have.

    request    array of { [v10+ uuid topic_id], string name }, [v4+ bool allow_auto_topic_creation]
               [v8-10 bool include_cluster_authorized_operations] [v8+ bool include_topic_authorized_operations]
    response   [v3+ int32 throttle_time_ms]
               array of { int32 node_id, string host, int32 port, string rack }, [v2+ string cluster_id]
               int32 controller_id
               array of { int16 error_code, string name, [v10+ uuid topic_id], bool is_internal,
                          array of { int16 error_code, int32 partition_index, int32 leader_id,
                                     [v7+ int32 leader_epoch], arrays of int32 replica_nodes, isr_nodes
                                     and [v5+] offline_replicas },
                          [v8+ int32 topic_authorized_operations] }
               [v8-10 int32 cluster_authorized_operations] [v13 int16 error_code]

From v9 on strings and arrays are compact, and each of the structures ends with tags. A topic that is not there must not
come to be by being asked for. Below v4 a request cannot say so, and topics are not named: all of them are asked for.

Source: MetadataRequest.json, MetadataResponse.json (0 to 13) in Apache Kafka; ``KafkaApis.handleTopicMetadataRequest``.
"""

from collections.abc import Collection
from struct import Struct
from typing import Final
from uuid import UUID

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.field_reader import (
    NO_TAGS,
    NULL_UUID,
    FieldReader,
    framed,
    response_reader,
    written_count,
    written_nullable,
)
from kafka_quota_proxy.protocol.primitives import write_string
from kafka_quota_proxy.protocol.topic_mutations import NO_ERROR, Topic

FIRST_VERSION: Final = 1
# The first version in which a topic can be asked for by its id (KIP-516); v10 and v11 have the field, for later.
FIRST_TOPIC_ID: Final = 12
LATEST_VERSION: Final = HIGHEST_VERSION[ApiKey.METADATA]

_METADATA: Final = int(ApiKey.METADATA)
_FIRST_CLUSTER_ID: Final = 2
_FIRST_THROTTLE: Final = 3
_FIRST_NO_AUTO_CREATION: Final = 4
_FIRST_OFFLINE_REPLICAS: Final = 5
_FIRST_LEADER_EPOCH: Final = 7
_FIRST_AUTHORIZED_OPERATIONS: Final = 8
_FIRST_ID_FIELD: Final = 10
_LAST_CLUSTER_AUTHORIZED_OPERATIONS: Final = 10
_FIRST_ERROR: Final = 13
_HEADER: Final = Struct(">hhi")
_ALL_TOPICS: Final = b"\xff\xff\xff\xff"

# Whoever is answered so can neither delete nor grow the topic: it has no partitions for this client.
# UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID.
_NOT_THERE: Final = frozenset({3, 17, 29, 100})


def write_request(
    topics: Collection[Topic], *, correlation_id: int, client_id: bytes | None, api_version: int
) -> bytes:
    """Return a whole request that makes no topic.

    Args:
        topics: Names, and from ``FIRST_TOPIC_ID`` on ids. Below v4 all topics are asked for.
        correlation_id: Of it.
        client_id: In UTF-8.
        api_version: ``FIRST_VERSION`` to ``LATEST_VERSION``.
    """
    flexible = is_flexible(_METADATA, api_version)
    parts = [_HEADER.pack(_METADATA, api_version, correlation_id), written_nullable(client_id, is_flexible=False)]
    if flexible:
        parts.append(NO_TAGS)
    if api_version < _FIRST_NO_AUTO_CREATION:
        return framed([*parts, _ALL_TOPICS])
    parts.append(written_count(len(topics), is_flexible=flexible))
    parts += (_written_topic(topic, api_version) for topic in topics)
    parts.append(b"\0")  # allow_auto_topic_creation
    if _FIRST_AUTHORIZED_OPERATIONS <= api_version <= _LAST_CLUSTER_AUTHORIZED_OPERATIONS:
        parts.append(b"\0")
    if api_version >= _FIRST_AUTHORIZED_OPERATIONS:
        parts.append(b"\0")
    return framed([*parts, NO_TAGS if flexible else b""])


def read_partition_counts(frame: bytes, topics: Collection[Topic], api_version: int) -> dict[Topic, int]:
    """Read how many partitions topics have out of a whole response.

    Args:
        frame: The response.
        topics: Which; others in it are passed over.
        api_version: As in ``write_request``.

    Returns:
        The count of each; 0 for one that is not there for this client. What the response does not say is left out, and
        what it says behind more partitions and so on than ``MAX_RESPONSE_ELEMENTS``.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    walk = response_reader(frame, _METADATA, api_version)
    counts: dict[Topic, int] = {}
    try:
        _read_topics(walk, set(topics), api_version, counts)
    except TooManyElements:
        # A large cluster, all of which was asked for.
        return counts
    if _FIRST_AUTHORIZED_OPERATIONS <= api_version <= _LAST_CLUSTER_AUTHORIZED_OPERATIONS:
        walk.skip(4)
    if api_version >= _FIRST_ERROR:
        walk.skip(2)
    walk.end()
    return counts


def _read_topics(walk: FieldReader, wanted: set[Topic], api_version: int, counts: dict[Topic, int]) -> None:
    _skip_front(walk, api_version)
    for _ in range(walk.count()):
        error_code, names, partitions = _read_topic(walk, api_version)
        if error_code in _NOT_THERE:
            partitions = 0
        elif error_code != NO_ERROR and not partitions:
            continue
        for topic in wanted.intersection(names):
            counts[topic] = partitions


def _written_topic(topic: Topic, api_version: int) -> bytes:
    flexible = is_flexible(_METADATA, api_version)
    if isinstance(topic, UUID):
        return topic.bytes + written_nullable(None, is_flexible=flexible) + NO_TAGS
    topic_id = NULL_UUID if api_version >= _FIRST_ID_FIELD else b""
    return topic_id + write_string(topic, is_compact=flexible) + (NO_TAGS if flexible else b"")


def _skip_front(walk: FieldReader, api_version: int) -> None:
    """Step over what stands in front of the topics."""
    if api_version >= _FIRST_THROTTLE:
        walk.skip(4)
    for _ in range(walk.count()):
        walk.skip(4)
        walk.string()
        walk.skip(4)
        walk.nullable_string()
        walk.tags()
    if api_version >= _FIRST_CLUSTER_ID:
        walk.nullable_string()
    walk.skip(4)


def _read_topic(walk: FieldReader, api_version: int) -> tuple[int, list[Topic], int]:
    """Read a topic's error_code, its name and its id as far as it has them, and how many partitions are listed."""
    error_code = walk.int16()
    names: list[Topic] = []
    name = walk.nullable_string()
    if name is not None:
        names.append(name)
    if api_version >= _FIRST_ID_FIELD:
        names.append(UUID(bytes=walk.take(16)))
    walk.skip(1)
    partitions = walk.count()
    fixed_bytes = 2 + 4 + 4 + (4 if api_version >= _FIRST_LEADER_EPOCH else 0)
    arrays = 3 if api_version >= _FIRST_OFFLINE_REPLICAS else 2
    for _ in range(partitions):
        walk.skip(fixed_bytes)
        for _ in range(arrays):
            walk.skip_fixed(4)
        walk.tags()
    if api_version >= _FIRST_AUTHORIZED_OPERATIONS:
        walk.skip(4)
    walk.tags()
    return error_code, names, partitions
