"""CreateTopics (key 19, v0-7), DeleteTopics (20, v0-6), CreatePartitions (37, v0-3): which topics they are about.

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

From v5, v2 and v4 on strings and arrays are compact, and each of the structures ends with tags. Entries are kept as
ranges of the bytes that came: what is not left out passes as it is. Frames are whole.

Source: the ``*Request.json`` and ``*Response.json`` of these in Apache Kafka 4.x and, for old versions, 3.9; KIP-599.
"""

from collections import deque
from collections.abc import Callable, Set
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.field_reader import (
    NO_TAGS,
    NULL_UUID,
    FieldReader,
    framed,
    read_whole_head,
    response_header,
    response_reader,
    written_count,
    written_nullable,
)
from kafka_quota_proxy.protocol.primitives import skip_compact_string, skip_tags

# A topic's name in UTF-8, or its id.
Topic = bytes | UUID

# In CreateTopics: as many as the broker's num.partitions says.
BROKER_DEFAULT: Final = -1
NO_ERROR: Final = 0
THROTTLING_QUOTA_EXCEEDED: Final = 89
# As Kafka's ``Errors`` has it.
THROTTLING_QUOTA_EXCEEDED_MESSAGE: Final = b"The throttling quota has been exceeded."

# The first versions whose clients know that error, and are refused with it (KIP-599).
FIRST_REFUSABLE_VERSION: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
}
_FIRST_THROTTLE: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.CREATE_PARTITIONS: 0,
    ApiKey.DELETE_TOPICS: 1,
}
_FIRST_MESSAGE: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 1,
    ApiKey.CREATE_PARTITIONS: 0,
    ApiKey.DELETE_TOPICS: 5,
}
_FIRST_RESULT_ID: Final[dict[int, int]] = {ApiKey.CREATE_TOPICS: 7, ApiKey.DELETE_TOPICS: 6}
_CREATE_FIRST_VALIDATE_ONLY: Final = 1
_CREATE_FIRST_DETAILS: Final = 5
_DELETE_FIRST_ID: Final = 6
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
# num_partitions, replication_factor: unknown.
_NO_DETAILS: Final = Struct(">ih").pack(-1, -1)
_MAX_INT32: Final = 2**31 - 1


class TopicMutation(NamedTuple):
    """What is asked of one topic.

    Attributes:
        topic: Its name or id.
        partitions: CreateTopics: how many it is to have, by ``num_partitions`` or, if brokers are assigned, by these;
            or ``BROKER_DEFAULT``. CreatePartitions: how many it is to have in all. DeleteTopics: 0.
        begin: Where its entry begins in the frame.
        end: Where it ends, its tags included.
    """

    topic: Topic
    partitions: int
    begin: int
    end: int


class MutationRequest(NamedTuple):
    """A request.

    Attributes:
        api_key: One of the three.
        api_version: Of it.
        correlation_id: Of it.
        topics: In its order. One may come twice, which Kafka refuses.
        validate_only: Whether nothing is to be done.
        topics_at: Where in the frame the array of topics begins, with its count.
        topics_end: Where it ends.
    """

    api_key: int
    api_version: int
    correlation_id: int
    topics: tuple[TopicMutation, ...]
    validate_only: bool
    topics_at: int
    topics_end: int


class TopicResult(NamedTuple):
    """What became of one topic.

    Attributes:
        name: In UTF-8; DeleteTopics v6 has none for an id that is unknown to the client.
        topic_id: None below CreateTopics v7 and DeleteTopics v6, and where it is null.
        error_code: 0 is none.
        partitions: How many a topic was made with (CreateTopics v5+); else -1.
        begin: Where its entry begins in the frame.
        end: Where it ends, its tags included.
    """

    name: bytes | None
    topic_id: UUID | None
    error_code: int
    partitions: int
    begin: int
    end: int


class MutationResponse(NamedTuple):
    """A response.

    Attributes:
        throttle_time_ms: The broker's own; 0 where the version has none.
        results: In its order.
        throttle_at: Where in the frame its throttle_time_ms is, or would be.
        results_at: Where the array of results begins, with its count.
        results_end: Where it ends.
    """

    throttle_time_ms: int
    results: tuple[TopicResult, ...]
    throttle_at: int
    results_at: int
    results_end: int


def is_mutation(api_key: int, api_version: int) -> bool:
    """Whether it is a request of one of the three, of a version known here."""
    return api_key in FIRST_REFUSABLE_VERSION and api_version <= HIGHEST_VERSION[api_key]


def read_request(frame: bytes) -> MutationRequest:
    """Read a whole request, of which ``is_mutation`` is true.

    Raises:
        ProtocolError: The frame is not such a request, or has too many elements.
    """
    head = read_whole_head(frame)
    api_key, api_version = head.api_key, head.api_version
    walk = FieldReader(frame, head.body, is_flexible=is_flexible(api_key, api_version))
    read_topic = _READ_TOPIC[api_key]
    topics = []
    for _ in range(walk.count()):
        begin = walk.at
        topic, partitions = read_topic(walk, api_version)
        topics.append(TopicMutation(topic, partitions, begin, walk.at))
    topics_end = walk.at
    walk.skip(4)  # timeout_ms
    has_validate_only = api_key == ApiKey.CREATE_PARTITIONS or (
        api_key == ApiKey.CREATE_TOPICS and api_version >= _CREATE_FIRST_VALIDATE_ONLY
    )
    validate_only = has_validate_only and walk.boolean()
    walk.end()
    return MutationRequest(
        api_key, api_version, head.correlation_id, tuple(topics), validate_only, head.body, topics_end
    )


def without_topics(frame: bytes, request: MutationRequest, left_out: Set[Topic]) -> bytes:
    """Write a request anew, without what it asks of some topics.

    Args:
        frame: The whole frame of which ``request`` was read.
        request: It.
        left_out: Topics of it; one that comes twice is left out twice.

    Returns:
        The whole frame; all else is as it was.
    """
    kept = [mutation for mutation in request.topics if mutation.topic not in left_out]
    if len(kept) == len(request.topics):
        return frame
    count = written_count(len(kept), is_flexible=is_flexible(request.api_key, request.api_version))
    return framed(
        [
            frame[4 : request.topics_at],
            count,
            *(frame[mutation.begin : mutation.end] for mutation in kept),
            frame[request.topics_end :],
        ]
    )


def read_response(frame: bytes, api_key: int, api_version: int) -> MutationResponse:
    """Read a whole response to a request of which ``is_mutation`` is true.

    Raises:
        ProtocolError: The frame is not such a response, or has too many elements.
    """
    walk = response_reader(frame, api_key, api_version)
    throttle_at = walk.at
    throttle_time_ms = walk.int32() if api_version >= _FIRST_THROTTLE[api_key] else 0
    results_at = walk.at
    results = [_read_result(walk, api_key, api_version) for _ in range(walk.count())]
    results_end = walk.at
    walk.end()
    return MutationResponse(throttle_time_ms, tuple(results), throttle_at, results_at, results_end)


def with_refused_topics(frame: bytes, request: MutationRequest, refused: Set[Topic], *, throttle_time_ms: int) -> bytes:
    """Write a response anew, with the topics that were left out of its request.

    Args:
        frame: The broker's whole response to what ``without_topics`` wrote.
        request: As it came from the client.
        refused: What was left out of it: these have ``THROTTLING_QUOTA_EXCEEDED``.
        throttle_time_ms: The least to tell the client; the broker's own outlasts it where it is larger.

    Returns:
        The whole frame: topics in the order of the request, then those of the response that are not in it. All else is
        as it was.

    Raises:
        ProtocolError: As ``read_response``.
    """
    api_key, api_version = request.api_key, request.api_version
    response = read_response(frame, api_key, api_version)
    entries = _merged(frame, request, response, refused)
    return framed(
        [
            frame[4 : response.throttle_at],
            _written_throttle_time(request, max(throttle_time_ms, response.throttle_time_ms)),
            written_count(len(entries), is_flexible=is_flexible(api_key, api_version)),
            *entries,
            frame[response.results_end :],
        ]
    )


def refuse_all_topics(request: MutationRequest, *, throttle_time_ms: int) -> bytes:
    """Return a response that no broker sent: every topic has ``THROTTLING_QUOTA_EXCEEDED``.

    Args:
        request: The client's; its clients know the error from ``FIRST_REFUSABLE_VERSION`` on.
        throttle_time_ms: What to tell the client, if the version has the field.
    """
    api_key, api_version = request.api_key, request.api_version
    flexible = is_flexible(api_key, api_version)
    entries = [_refused(request, topic) for topic in dict.fromkeys(mutation.topic for mutation in request.topics)]
    return framed(
        [
            response_header(request.correlation_id, api_key, api_version),
            _written_throttle_time(request, throttle_time_ms),
            written_count(len(entries), is_flexible=flexible),
            *entries,
            NO_TAGS if flexible else b"",
        ]
    )


# -- requests


def _read_created(walk: FieldReader, api_version: int) -> tuple[Topic, int]:
    name = walk.string()
    num_partitions = walk.int32()
    walk.skip(2)
    assigned = walk.count()
    for _ in range(assigned):
        walk.skip(4)
        walk.skip_fixed(4)
        walk.tags()
    for _ in range(walk.count()):
        walk.string()
        walk.nullable_string()
        walk.tags()
    walk.tags()
    return name, assigned or num_partitions


def _read_grown(walk: FieldReader, api_version: int) -> tuple[Topic, int]:
    name = walk.string()
    count = walk.int32()
    for _ in range(walk.count()):
        walk.skip_fixed(4)
        walk.tags()
    walk.tags()
    return name, count


def _read_deleted(walk: FieldReader, api_version: int) -> tuple[Topic, int]:
    if api_version < _DELETE_FIRST_ID:
        return walk.string(), 0
    name = walk.nullable_string()
    topic_id = UUID(bytes=walk.take(16))
    walk.tags()
    return topic_id if name is None else name, 0


_READ_TOPIC: Final[dict[int, Callable[[FieldReader, int], tuple[Topic, int]]]] = {
    ApiKey.CREATE_TOPICS: _read_created,
    ApiKey.CREATE_PARTITIONS: _read_grown,
    ApiKey.DELETE_TOPICS: _read_deleted,
}


# -- responses


def _read_result(walk: FieldReader, api_key: int, api_version: int) -> TopicResult:
    begin = walk.at
    # Null in no version but DeleteTopics v6, and then it is written as everywhere else.
    name = walk.nullable_string()
    topic_id = None
    if api_version >= _FIRST_RESULT_ID.get(api_key, _MAX_INT32):
        id_bytes = walk.take(16)
        topic_id = None if id_bytes == NULL_UUID else UUID(bytes=id_bytes)
    error_code = walk.int16()
    if api_version >= _FIRST_MESSAGE[api_key]:
        walk.nullable_string()
    partitions = -1
    if api_key == ApiKey.CREATE_TOPICS and api_version >= _CREATE_FIRST_DETAILS:
        partitions = walk.int32()
        walk.skip(2)
        _skip_configs(walk)
    walk.tags()
    return TopicResult(name, topic_id, error_code, partitions, begin, walk.at)


def _skip_configs(walk: FieldReader) -> None:
    """Step over the configs of a topic (flexible): some 30 of each, where all else of it is one of each."""
    data, count = walk.data, walk.count()
    at = walk.at
    for _ in range(count):
        at = skip_compact_string(data, skip_compact_string(data, at)) + 1 + 1 + 1
        at = at + 1 if at < len(data) and data[at] == 0 else skip_tags(data, at)
    walk.at = at


def _merged(frame: bytes, request: MutationRequest, response: MutationResponse, refused: Set[Topic]) -> list[bytes]:
    """Return the entries of a response in the order of the request."""
    answered: dict[Topic, deque[int]] = {}
    for index, result in enumerate(response.results):
        # By its name and by its id: the request has one of them, the response may have both.
        for topic in (result.name, result.topic_id):
            if topic is not None:
                answered.setdefault(topic, deque()).append(index)
    entries = []
    written: set[int] = set()
    for topic in dict.fromkeys(mutation.topic for mutation in request.topics):
        if topic in refused:
            entries.append(_refused(request, topic))
            continue
        for index in answered.get(topic, ()):
            if index not in written:
                written.add(index)
                result = response.results[index]
                entries.append(frame[result.begin : result.end])
    entries += (
        frame[result.begin : result.end] for index, result in enumerate(response.results) if index not in written
    )
    return entries


def _refused(request: MutationRequest, topic: Topic) -> bytes:
    """Return an entry with ``THROTTLING_QUOTA_EXCEEDED``."""
    api_key, api_version = request.api_key, request.api_version
    flexible = is_flexible(api_key, api_version)
    parts = [written_nullable(topic if isinstance(topic, bytes) else None, is_flexible=flexible)]
    if api_version >= _FIRST_RESULT_ID.get(api_key, _MAX_INT32):
        parts.append(topic.bytes if isinstance(topic, UUID) else NULL_UUID)
    parts.append(_INT16.pack(THROTTLING_QUOTA_EXCEEDED))
    if api_version >= _FIRST_MESSAGE[api_key]:
        parts.append(written_nullable(THROTTLING_QUOTA_EXCEEDED_MESSAGE, is_flexible=flexible))
    if api_key == ApiKey.CREATE_TOPICS and api_version >= _CREATE_FIRST_DETAILS:
        parts += (_NO_DETAILS, written_count(0, is_flexible=flexible))
    parts.append(NO_TAGS if flexible else b"")
    return b"".join(parts)


def _written_throttle_time(request: MutationRequest, throttle_time_ms: int) -> bytes:
    if request.api_version < _FIRST_THROTTLE[request.api_key]:
        return b""
    return _INT32.pack(min(throttle_time_ms, _MAX_INT32))
