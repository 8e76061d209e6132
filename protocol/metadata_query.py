"""Writes the Metadata request (key 3, v1-13) with which the proxy asks for partition counts, and reads the response.

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

From v9 on strings and arrays are compact, and each structure ends with tags. Before v4 a request for a topic may create
the topic, so in those versions the proxy asks for all topics.

Source: MetadataRequest.json, MetadataResponse.json (0 to 13) in Apache Kafka; ``KafkaApis.handleTopicMetadataRequest``.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.field_reader import FieldReader, response_reader
from kafka_quota_proxy.protocol.field_writer import NULL_UUID, request_writer
from kafka_quota_proxy.protocol.topic_mutations import NO_ERROR, Topic

FIRST_VERSION: Final = 1
# The first version that can ask for a topic by its id (KIP-516). In v10 and v11 the topic id is a reserved field.
FIRST_TOPIC_ID: Final = 12
LATEST_VERSION: Final = HIGHEST_VERSION[ApiKey.METADATA]

_METADATA: Final = int(ApiKey.METADATA)

# With these errors the client cannot change the topic, so the topic counts as one without partitions:
# UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID.
_NOT_THERE: Final = frozenset({3, 17, 29, 100})


def write_request(
    topics: Collection[Topic], *, correlation_id: int, client_id: bytes | None, api_version: int
) -> bytes:
    """Encode a Metadata request as a whole frame, in a version from ``FIRST_VERSION`` to ``LATEST_VERSION``.

    Each of ``topics`` is a name or, in versions from ``FIRST_TOPIC_ID`` on, a topic id. Before v4 the request asks for
    all topics.
    """
    writer = request_writer(_METADATA, api_version, correlation_id, client_id)
    if api_version < 4:
        writer.raw(b"\xff\xff\xff\xff")  # a null array: all topics
        return writer.frame()
    writer.count(len(topics))
    for topic in topics:
        if api_version >= 10:
            writer.raw(topic.bytes if isinstance(topic, UUID) else NULL_UUID)
        writer.string(None if isinstance(topic, UUID) else topic)
        writer.no_tags()
    writer.boolean(False)  # allow_auto_topic_creation
    if 8 <= api_version <= 10:
        writer.boolean(False)  # include_cluster_authorized_operations
    if api_version >= 8:
        writer.boolean(False)  # include_topic_authorized_operations
    writer.no_tags()
    return writer.frame()


def read_partition_counts(frame: bytes, topics: Collection[Topic], api_version: int) -> dict[Topic, int]:
    """Return the partition counts of ``topics`` from a whole Metadata response.

    The count is 0 for a topic that does not exist, or that the client has no right to see. A topic is missing from the
    result if the response does not say its partitions, or if it comes after the first ``MAX_RESPONSE_ELEMENTS`` array
    elements of the response, where reading stops.
    """
    reader = response_reader(frame, _METADATA, api_version)
    counts: dict[Topic, int] = {}
    try:
        _read_topics(reader, set(topics), api_version, counts)
    except TooManyElements:
        # The cluster is large and the response lists all of its topics.
        return counts
    if 8 <= api_version <= 10:
        reader.skip(4)  # cluster_authorized_operations
    if api_version >= 13:
        reader.skip(2)  # error_code
    reader.expect_end()
    return counts


def read_topic_names(reader: FieldReader, api_version: int) -> dict[bytes, bytes]:
    """Return the names of all topics in a Metadata response, v10 or later, by their 16-byte ids."""
    _skip_brokers(reader, api_version)
    found: dict[bytes, bytes] = {}
    for _ in range(reader.count()):
        _, names, _ = _read_topic(reader, api_version)
        if len(names) == 2:
            name, topic_id = names
            if isinstance(name, bytes) and isinstance(topic_id, UUID):
                found[topic_id.bytes] = name
    return found


def _read_topics(reader: FieldReader, wanted: set[Topic], api_version: int, counts: dict[Topic, int]) -> None:
    _skip_brokers(reader, api_version)
    for _ in range(reader.count()):
        error_code, names, partitions = _read_topic(reader, api_version)
        if error_code in _NOT_THERE:
            partitions = 0
        elif error_code != NO_ERROR and not partitions:
            continue
        for topic in wanted.intersection(names):
            counts[topic] = partitions


def _skip_brokers(reader: FieldReader, api_version: int) -> None:
    """Step over the brokers and all other fields of a Metadata response that precede its topics."""
    if api_version >= 3:
        reader.skip(4)  # throttle_time_ms
    for _ in range(reader.count()):
        reader.skip(4)  # node_id
        reader.string()  # host
        reader.skip(4)  # port
        reader.nullable_string()  # rack
        reader.skip_tags()
    if api_version >= 2:
        reader.nullable_string()  # cluster_id
    reader.skip(4)  # controller_id


def _read_topic(reader: FieldReader, api_version: int) -> tuple[int, list[Topic], int]:
    """Return a topic's error_code, its name and id if present, and its number of partitions."""
    error_code = reader.int16()
    names: list[Topic] = []
    name = reader.nullable_string()
    if name is not None:
        names.append(name)
    if api_version >= 10:
        names.append(UUID(bytes=reader.raw(16)))
    reader.skip(1)  # is_internal
    partitions = reader.count()
    fixed_bytes = 2 + 4 + 4 + (4 if api_version >= 7 else 0)
    arrays = 3 if api_version >= 5 else 2
    for _ in range(partitions):
        reader.skip(fixed_bytes)
        for _ in range(arrays):
            reader.skip_fixed_elements(4)
        reader.skip_tags()
    if api_version >= 8:
        reader.skip(4)  # topic_authorized_operations
    reader.skip_tags()
    return error_code, names, partitions
