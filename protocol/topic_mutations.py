"""Reads and rewrites CreateTopics (key 19, v0-7), DeleteTopics (20, v0-6) and CreatePartitions (37, v0-3).

    CreateTopics       array of { string name, int32 num_partitions, int16 replication_factor,
                                  array of { int32 partition, array of int32 broker_id },
                                  array of { string name, string value } }
                       int32 timeout_ms, [v1+ bool validate_only]
    CreatePartitions   array of { string name, int32 count, array of { array of int32 broker_id } }
                       int32 timeout_ms, bool validate_only
    DeleteTopics       v0-5 array of string | v6 array of { string name, uuid topic_id }
                       int32 timeout_ms

    CreateTopics       [v2+ int32 throttle_time_ms]
    response           array of { string name, [v7 uuid topic_id], int16 error_code, [v1+ string error_message]
                                  [v5+ int32 num_partitions, int16 replication_factor,
                                       array of { string name, string value, bool, int8, bool },
                                       tag 0: topic_config_error_code] }
    CreatePartitions   int32 throttle_time_ms, array of { string name, int16 error_code, string error_message }
    response
    DeleteTopics       [v1+ int32 throttle_time_ms]
    response           array of { string name, [v6 uuid topic_id], int16 error_code, [v5+ string error_message] }

From CreateTopics v5, CreatePartitions v2 and DeleteTopics v4 on, strings and arrays are compact and each structure ends
with tags. All functions take whole frames. A topic's entry is kept as a range of bytes, so that it can be copied
unchanged to a frame with fewer topics.

Source: ``*Request.json`` and ``*Response.json`` in Apache Kafka 4.x, and 3.9 for old versions; KIP-599.
"""

from collections import deque
from collections.abc import Callable, Set
from typing import Final, NamedTuple
from uuid import UUID

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, NEVER, ApiKey, is_flexible
from kafka_quota_proxy.protocol.field_reader import FieldReader, read_whole_head, request_reader, response_reader
from kafka_quota_proxy.protocol.field_writer import (
    NULL_UUID,
    FieldWriter,
    framed,
    response_writer,
    written_count,
)
from kafka_quota_proxy.protocol.primitives import skip_compact_string, skip_tags

# A topic's name in UTF-8, or its id.
Topic = bytes | UUID

_CREATE: Final = int(ApiKey.CREATE_TOPICS)
_DELETE: Final = int(ApiKey.DELETE_TOPICS)
_GROW: Final = int(ApiKey.CREATE_PARTITIONS)

# In a CreateTopics request this number of partitions stands for the broker's num.partitions.
BROKER_DEFAULT: Final = -1
NO_ERROR: Final = 0
THROTTLING_QUOTA_EXCEEDED: Final = 89
# The message that Kafka's class ``Errors`` has for this code.
THROTTLING_QUOTA_EXCEEDED_MESSAGE: Final = b"The throttling quota has been exceeded."

# The first versions whose clients know THROTTLING_QUOTA_EXCEEDED and can be refused with it (KIP-599).
FIRST_REFUSABLE_VERSION: Final[dict[int, int]] = {_CREATE: 6, _GROW: 3, _DELETE: 5}
_FIRST_THROTTLE: Final = {_CREATE: 2, _GROW: 0, _DELETE: 1}
_FIRST_MESSAGE: Final = {_CREATE: 1, _GROW: 0, _DELETE: 5}
_FIRST_RESULT_ID: Final = {_CREATE: 7, _GROW: NEVER, _DELETE: 6}
_CREATE_FIRST_DETAILS: Final = 5
_UNKNOWN: Final = -1
_MAX_INT32: Final = 2**31 - 1


class TopicMutation(NamedTuple):
    """One topic in a request. Its entry is the frame's bytes from ``begin`` to ``end``.

    ``partitions`` depends on the API. For CreateTopics it is the number of partitions to create, which may be
    ``BROKER_DEFAULT``. For CreatePartitions it is the total that the topic is to have. For DeleteTopics it is 0.
    """

    topic: Topic
    partitions: int
    begin: int
    end: int


class MutationRequest(NamedTuple):
    """A CreateTopics, CreatePartitions or DeleteTopics request, which may list a topic twice.

    The array of topics consists of the bytes of the frame from the offset ``topics_at`` to ``topics_end``.
    """

    api_key: int
    api_version: int
    correlation_id: int
    topics: tuple[TopicMutation, ...]
    validate_only: bool
    topics_at: int
    topics_end: int


class TopicResult(NamedTuple):
    """The result for one topic in a response. Its entry is the frame's bytes from ``begin`` to ``end``.

    ``name`` is None if DeleteTopics v6 finds no topic with the given id. ``topic_id`` is None if the response has no id
    or an id of zeros. ``partitions`` is the number of partitions that CreateTopics (v5+) created, otherwise -1.
    """

    name: bytes | None
    topic_id: UUID | None
    error_code: int
    partitions: int
    begin: int
    end: int


class MutationResponse(NamedTuple):
    """A CreateTopics, CreatePartitions or DeleteTopics response.

    ``throttle_at`` is the offset of throttle_time_ms in the frame, or of the array of results if the version lacks
    throttle_time_ms. The array of results ends at the offset ``results_end``.
    """

    throttle_time_ms: int
    results: tuple[TopicResult, ...]
    throttle_at: int
    results_end: int


def is_mutation(api_key: int, api_version: int) -> bool:
    """Whether a request is CreateTopics, CreatePartitions or DeleteTopics, in a version that this module can read."""
    return api_key in FIRST_REFUSABLE_VERSION and api_version <= HIGHEST_VERSION[api_key]


# -- requests


def read_request(frame: bytes) -> MutationRequest:
    """Read a whole request for which ``is_mutation`` is true."""
    head = read_whole_head(frame)
    api_key, api_version = head.api_key, head.api_version
    reader = request_reader(frame, head)
    read_topic = _READ_TOPIC[api_key]
    topics = []
    for _ in range(reader.count()):
        begin = reader.at
        topic, partitions = read_topic(reader, api_version)
        topics.append(TopicMutation(topic, partitions, begin, reader.at))
    topics_end = reader.at
    reader.skip(4)  # timeout_ms
    has_validate_only = api_key == _GROW or (api_key == _CREATE and api_version >= 1)
    validate_only = has_validate_only and reader.boolean()
    reader.expect_end()
    return MutationRequest(
        api_key, api_version, head.correlation_id, tuple(topics), validate_only, head.body, topics_end
    )


def without_topics(frame: bytes, request: MutationRequest, left_out: Set[Topic]) -> bytes:
    """Return the frame of a request without the topics in ``left_out``. All other bytes stay as they are."""
    kept = [mutation for mutation in request.topics if mutation.topic not in left_out]
    if len(kept) == len(request.topics):
        return frame
    return framed(
        frame[4 : request.topics_at],
        written_count(len(kept), is_flexible=is_flexible(request.api_key, request.api_version)),
        *(frame[mutation.begin : mutation.end] for mutation in kept),
        frame[request.topics_end :],
    )


def _read_created_topic(reader: FieldReader, api_version: int) -> tuple[Topic, int]:
    name = reader.string()
    num_partitions = reader.int32()
    reader.skip(2)  # replication_factor
    assigned = reader.count()
    for _ in range(assigned):
        reader.skip(4)  # partition
        reader.skip_fixed_elements(4)  # broker_id
        reader.skip_tags()
    for _ in range(reader.count()):
        reader.string()  # a config's name
        reader.nullable_string()  # its value
        reader.skip_tags()
    reader.skip_tags()
    return name, assigned or num_partitions


def _read_grown_topic(reader: FieldReader, api_version: int) -> tuple[Topic, int]:
    name = reader.string()
    count = reader.int32()
    for _ in range(reader.count()):
        reader.skip_fixed_elements(4)
        reader.skip_tags()
    reader.skip_tags()
    return name, count


def _read_deleted_topic(reader: FieldReader, api_version: int) -> tuple[Topic, int]:
    if api_version < 6:
        return reader.string(), 0
    name = reader.nullable_string()
    topic_id = UUID(bytes=reader.raw(16))
    reader.skip_tags()
    return topic_id if name is None else name, 0


_READ_TOPIC: Final[dict[int, Callable[[FieldReader, int], tuple[Topic, int]]]] = {
    _CREATE: _read_created_topic,
    _GROW: _read_grown_topic,
    _DELETE: _read_deleted_topic,
}


# -- responses


def read_response(frame: bytes, api_key: int, api_version: int) -> MutationResponse:
    """Read a whole response to a request for which ``is_mutation`` is true."""
    reader = response_reader(frame, api_key, api_version)
    throttle_at = reader.at
    throttle_time_ms = reader.int32() if api_version >= _FIRST_THROTTLE[api_key] else 0
    results = [_read_result(reader, api_key, api_version) for _ in range(reader.count())]
    results_end = reader.at
    reader.expect_end()
    return MutationResponse(throttle_time_ms, tuple(results), throttle_at, results_end)


def with_refused_topics(frame: bytes, request: MutationRequest, refused: Set[Topic], *, throttle_time_ms: int) -> bytes:
    """Return the broker's response, with entries for the topics that ``without_topics`` left out of the request.

    These topics have the error THROTTLING_QUOTA_EXCEEDED. All topics are in the order of the client's request, and
    topics that appear only in the response are last. The throttle time is the longer of the broker's and
    ``throttle_time_ms``. All other bytes stay as they are.
    """
    api_key, api_version = request.api_key, request.api_version
    response = read_response(frame, api_key, api_version)
    writer = FieldWriter(is_flexible=is_flexible(api_key, api_version))
    writer.raw(frame[4 : response.throttle_at])
    _write_throttle_time(writer, request, max(throttle_time_ms, response.throttle_time_ms))
    entries = _in_order_of_request(request, response, refused)
    writer.count(len(entries))
    for entry in entries:
        if isinstance(entry, TopicResult):
            writer.raw(frame[entry.begin : entry.end])
        else:
            _write_refused(writer, request, entry)
    writer.raw(frame[response.results_end :])
    return writer.frame()


def refuse_all_topics(
    request: MutationRequest, *, throttle_time_ms: int, error_code: int = THROTTLING_QUOTA_EXCEEDED
) -> bytes:
    """Return a response that refuses all topics of a request.

    Clients know THROTTLING_QUOTA_EXCEEDED from ``FIRST_REFUSABLE_VERSION`` on.
    """
    writer = response_writer(request.correlation_id, request.api_key, request.api_version)
    _write_throttle_time(writer, request, throttle_time_ms)
    topics = dict.fromkeys(mutation.topic for mutation in request.topics)
    writer.count(len(topics))
    for topic in topics:
        _write_refused(writer, request, topic, error_code)
    writer.no_tags()
    return writer.frame()


def _read_result(reader: FieldReader, api_key: int, api_version: int) -> TopicResult:
    begin = reader.at
    # The name can be null in DeleteTopics v6 only, but a null would be encoded in the same way in all versions.
    name = reader.nullable_string()
    topic_id = None
    if api_version >= _FIRST_RESULT_ID[api_key]:
        id_bytes = reader.raw(16)
        topic_id = None if id_bytes == NULL_UUID else UUID(bytes=id_bytes)
    error_code = reader.int16()
    if api_version >= _FIRST_MESSAGE[api_key]:
        reader.nullable_string()  # error_message
    partitions = _UNKNOWN
    if api_key == _CREATE and api_version >= _CREATE_FIRST_DETAILS:
        partitions = reader.int32()
        reader.skip(2)  # replication_factor
        _skip_configs(reader)
    reader.skip_tags()
    return TopicResult(name, topic_id, error_code, partitions, begin, reader.at)


def _skip_configs(reader: FieldReader) -> None:
    """Step over the configs of a topic in a CreateTopics response (v5+).

    This has to be fast, because a topic has some 30 configs.
    """
    data, count = reader.data, reader.count()
    at = reader.at
    for _ in range(count):
        at = skip_compact_string(data, skip_compact_string(data, at)) + 1 + 1 + 1
        at = at + 1 if at < len(data) and data[at] == 0 else skip_tags(data, at)
    reader.at = at


def _in_order_of_request(
    request: MutationRequest, response: MutationResponse, refused: Set[Topic]
) -> list[Topic | TopicResult]:
    """Return the refused topics and the broker's results in the order in which the request lists their topics."""
    results: dict[Topic, deque[int]] = {}
    for index, result in enumerate(response.results):
        # The request has the name or the id of a topic. The response may have both.
        for topic in (result.name, result.topic_id):
            if topic is not None:
                results.setdefault(topic, deque()).append(index)
    ordered: list[Topic | TopicResult] = []
    used: set[int] = set()
    for topic in dict.fromkeys(mutation.topic for mutation in request.topics):
        if topic in refused:
            ordered.append(topic)
            continue
        for index in results.get(topic, ()):
            if index not in used:
                used.add(index)
                ordered.append(response.results[index])
    ordered += (result for index, result in enumerate(response.results) if index not in used)
    return ordered


def _write_refused(
    writer: FieldWriter, request: MutationRequest, topic: Topic, error_code: int = THROTTLING_QUOTA_EXCEEDED
) -> None:
    """Write the result for a topic that is refused."""
    api_key, api_version = request.api_key, request.api_version
    writer.string(topic if isinstance(topic, bytes) else None)
    if api_version >= _FIRST_RESULT_ID[api_key]:
        writer.raw(topic.bytes if isinstance(topic, UUID) else NULL_UUID)
    writer.int16(error_code)
    if api_version >= _FIRST_MESSAGE[api_key]:
        writer.string(THROTTLING_QUOTA_EXCEEDED_MESSAGE if error_code == THROTTLING_QUOTA_EXCEEDED else None)
    if api_key == _CREATE and api_version >= _CREATE_FIRST_DETAILS:
        writer.int32(_UNKNOWN)  # num_partitions
        writer.int16(_UNKNOWN)  # replication_factor
        writer.count(0)  # configs
    writer.no_tags()


def _write_throttle_time(writer: FieldWriter, request: MutationRequest, throttle_time_ms: int) -> None:
    if request.api_version >= _FIRST_THROTTLE[request.api_key]:
        writer.int32(min(throttle_time_ms, _MAX_INT32))
