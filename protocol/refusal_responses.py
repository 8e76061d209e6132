"""Answers that no broker gave: "not now", said so that each client tries again and none of them tells its application.

    Produce            each partition has NOT_ENOUGH_REPLICAS: retried, and known not to be written. Java retries
                       THROTTLING_QUOTA_EXCEEDED as well, librdkafka fails the message for good; it takes a
                       REQUEST_TIMED_OUT for possibly written
    Fetch              no topics, no error, no session: what a broker itself says to a consumer over its quotas
    JoinGroup,         COORDINATOR_LOAD_IN_PROGRESS: retried where it is. NOT_COORDINATOR and
    OffsetCommit       COORDINATOR_NOT_AVAILABLE would send the client looking for the coordinator
    CreateTopics,      each topic has THROTTLING_QUOTA_EXCEEDED, from the versions on whose clients know it
    DeleteTopics,
    CreatePartitions

All others have no such answer. Heartbeat and SyncGroup above all: clients expect no COORDINATOR_LOAD_IN_PROGRESS there.
Nor has ShareFetch: its acknowledgements would fail at the client (INVALID_RECORD_STATE), and its session's epoch would
be one that the broker has not counted (``protocol.share_fetch``).

An empty Fetch response is right in every version. Brokers have given it since KIP-219, whatever the version, so that

* the Java consumer (2.0+) takes one of a full fetch with a throttle time for what it is, and one of an incremental
  fetch without a session for the session's end; it fetches again, in full. Consumers before 2.0 (up to v6) log a
  warning and fetch again. A partition with an error that they do not expect would be an exception
* librdkafka looks at the partitions that are there, and fetches again
* kafka-python takes a full one for one that lacks partitions, and fetches again in full; of one without sessions (below
  v7) it looks at the partitions that are there, as aiokafka does

An entry per partition would have to say a high watermark, which nobody knows here: lag, end-of-partition and seeks to
the end are derived from it.

JoinGroup and OffsetCommit are better held where they can be: librdkafka shows its application the error of a JoinGroup
before 2.0, and a Java consumer tries a ``commitAsync`` not again but calls back with a RetriableCommitFailedException.

Source: FetchContext.getThrottledResponse, FetchSessionHandler.handleResponse, Fetcher (1.1), Sender.completeBatch and
ConsumerCoordinator in Apache Kafka; rdkafka_fetcher.c, rdkafka_request.c and rdkafka_cgrp.c in librdkafka;
kafka/consumer/fetcher.py in kafka-python. The messages: the ``*Request.json`` and ``*Response.json`` of each.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol import fetch, topic_mutations
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.field_reader import (
    NO_TAGS,
    FieldReader,
    framed,
    read_whole_head,
    response_header,
    written_count,
    written_nullable,
)
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.primitives import write_string

COORDINATOR_LOAD_IN_PROGRESS: Final = 14
NOT_ENOUGH_REPLICAS: Final = 19

_PRODUCE_FIRST_THROTTLE: Final = 1
_PRODUCE_FIRST_LOG_APPEND_TIME: Final = 2
_PRODUCE_FIRST_TRANSACTIONAL: Final = 3
_PRODUCE_FIRST_LOG_START_OFFSET: Final = 5
_PRODUCE_FIRST_RECORD_ERRORS: Final = 8
_PRODUCE_FIRST_TOPIC_ID: Final = 13
_JOIN_FIRST_REBALANCE_TIMEOUT: Final = 1
_JOIN_FIRST_THROTTLE: Final = 2
_JOIN_FIRST_PROTOCOL_TYPE: Final = 7
_JOIN_FIRST_SKIP_ASSIGNMENT: Final = 9
_COMMIT_FIRST_MEMBER: Final = 1
_COMMIT_TIMESTAMP: Final = 1
_COMMIT_RETENTION: Final = range(2, 5)
_COMMIT_FIRST_THROTTLE: Final = 3
_COMMIT_FIRST_LEADER_EPOCH: Final = 6
_COMMIT_FIRST_INSTANCE_ID: Final = 7
_COMMIT_FIRST_TOPIC_ID: Final = 10

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_PARTITION_AND_ERROR: Final = Struct(">ih")
_ERROR_AND_GENERATION: Final = Struct(">hi")
_NO_OFFSET: Final = _INT64.pack(-1)
_NO_GENERATION: Final = -1
_MAX_INT32: Final = 2**31 - 1

Refuse = Callable[[bytes, RequestHead, int], bytes | None]


def refusal_response(frame: bytes, *, throttle_time_ms: int) -> bytes | None:
    """Return the answer to a request that is not passed on.

    Args:
        frame: The whole request with the four bytes of its size.
        throttle_time_ms: How long the client is to be silent, above 0; written where the version has the field.

    Returns:
        The whole response. None if there is none that this client would take well, so that the request has to be
        passed on or held: all other APIs, versions that are not known, a Produce that awaits no response, a follower's
        Fetch, a frame of more elements than anyone needs.

    Raises:
        ProtocolError: The frame is not such a request.
    """
    head = read_whole_head(frame)
    if not is_refusable(head.api_key, head.api_version, acks=1):
        return None
    refuse_one = _REFUSALS[head.api_key]
    try:
        return refuse_one(frame, head, max(1, min(throttle_time_ms, _MAX_INT32)))
    except TooManyElements:
        return None


def _produce(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    version, flexible = head.api_version, is_flexible(head.api_key, head.api_version)
    walk = FieldReader(frame, head.body, is_flexible=flexible)
    if version >= _PRODUCE_FIRST_TRANSACTIONAL:
        walk.nullable_string()
    acks = walk.int16()
    walk.skip(4)
    parts = [_header(head)]
    partition_end = _end_of_refused_partition(version)
    topics = walk.count()
    parts.append(written_count(topics, is_flexible=flexible))
    for _ in range(topics):
        parts.append(_same_topic(walk, has_id=version >= _PRODUCE_FIRST_TOPIC_ID))
        partitions = walk.count()
        parts.append(written_count(partitions, is_flexible=flexible))
        for _ in range(partitions):
            parts += (_PARTITION_AND_ERROR.pack(walk.int32(), NOT_ENOUGH_REPLICAS), partition_end)
            walk.skip_bytes()
            walk.tags()
        walk.tags()
        parts.append(_tags(flexible))
    walk.end()
    if acks == 0:
        return None
    if version >= _PRODUCE_FIRST_THROTTLE:
        parts.append(_INT32.pack(throttle_time_ms))
    return framed([*parts, _tags(flexible)])


def _end_of_refused_partition(version: int) -> bytes:
    """Return what stands behind index and error_code, tags included: no offsets, no times, no messages."""
    end = _NO_OFFSET
    if version >= _PRODUCE_FIRST_LOG_APPEND_TIME:
        end += _NO_OFFSET
    if version >= _PRODUCE_FIRST_LOG_START_OFFSET:
        end += _NO_OFFSET
    flexible = is_flexible(ApiKey.PRODUCE, version)
    if version >= _PRODUCE_FIRST_RECORD_ERRORS:
        end += written_count(0, is_flexible=flexible) + written_nullable(None, is_flexible=flexible)
    return end + _tags(flexible)


def _fetch(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    version, flexible = head.api_version, is_flexible(head.api_key, head.api_version)
    if fetch.read_replica_id(frame, head.body, len(frame), version) > fetch.NO_REPLICA:
        return None
    parts = [_header(head)]
    if version >= fetch.FIRST_THROTTLE:
        parts.append(_INT32.pack(throttle_time_ms))
    if version >= fetch.FIRST_SESSION:
        parts.append(_INT16.pack(0) + _INT32.pack(0))
    return framed([*parts, written_count(0, is_flexible=flexible), _tags(flexible)])


def _join_group(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    """Answer as a coordinator that is loading: with the member's own id, so that it stays who it is."""
    version, flexible = head.api_version, is_flexible(head.api_key, head.api_version)
    walk = FieldReader(frame, head.body, is_flexible=flexible)
    walk.string()
    walk.skip(8 if version >= _JOIN_FIRST_REBALANCE_TIMEOUT else 4)
    member_id = walk.string()
    none, empty = written_nullable(None, is_flexible=flexible), write_string(b"", is_compact=flexible)
    parts = [_header(head)]
    if version >= _JOIN_FIRST_THROTTLE:
        parts.append(_INT32.pack(throttle_time_ms))
    parts.append(_ERROR_AND_GENERATION.pack(COORDINATOR_LOAD_IN_PROGRESS, _NO_GENERATION))
    # protocol_type, protocol_name, leader.
    parts += (none, none, empty) if version >= _JOIN_FIRST_PROTOCOL_TYPE else (empty, empty)
    if version >= _JOIN_FIRST_SKIP_ASSIGNMENT:
        parts.append(b"\0")
    parts.append(write_string(member_id, is_compact=flexible))
    return framed([*parts, written_count(0, is_flexible=flexible), _tags(flexible)])


def _offset_commit(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    version, flexible = head.api_version, is_flexible(head.api_key, head.api_version)
    walk = FieldReader(frame, head.body, is_flexible=flexible)
    _skip_member(walk, version)
    # committed_offset, committed_leader_epoch, commit_timestamp.
    offset_bytes = 8 + (4 if version >= _COMMIT_FIRST_LEADER_EPOCH else 0) + (8 if version == _COMMIT_TIMESTAMP else 0)
    parts = [_header(head)]
    if version >= _COMMIT_FIRST_THROTTLE:
        parts.append(_INT32.pack(throttle_time_ms))
    topics = walk.count()
    parts.append(written_count(topics, is_flexible=flexible))
    for _ in range(topics):
        parts.append(_same_topic(walk, has_id=version >= _COMMIT_FIRST_TOPIC_ID))
        partitions = walk.count()
        parts.append(written_count(partitions, is_flexible=flexible))
        for _ in range(partitions):
            parts += (_PARTITION_AND_ERROR.pack(walk.int32(), COORDINATOR_LOAD_IN_PROGRESS), _tags(flexible))
            walk.skip(offset_bytes)
            walk.nullable_string()
            walk.tags()
        walk.tags()
        parts.append(_tags(flexible))
    walk.end()
    return framed([*parts, _tags(flexible)])


def _skip_member(walk: FieldReader, version: int) -> None:
    """Step over what stands in front of the topics of an OffsetCommit."""
    walk.string()
    if version >= _COMMIT_FIRST_MEMBER:
        walk.skip(4)
        walk.string()
    if version >= _COMMIT_FIRST_INSTANCE_ID:
        walk.nullable_string()
    if version in _COMMIT_RETENTION:
        walk.skip(8)


def _mutation(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    return topic_mutations.refuse_all_topics(topic_mutations.read_request(frame), throttle_time_ms=throttle_time_ms)


def _same_topic(walk: FieldReader, *, has_id: bool) -> bytes:
    """Read a topic's name or id; return it as it is written, in requests and responses alike."""
    return walk.take(16) if has_id else write_string(walk.string(), is_compact=walk.is_flexible)


def _header(head: RequestHead) -> bytes:
    return response_header(head.correlation_id, head.api_key, head.api_version)


def _tags(flexible: bool) -> bytes:
    return NO_TAGS if flexible else b""


_REFUSALS: Final[dict[int, Refuse]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.CREATE_TOPICS: _mutation,
    ApiKey.CREATE_PARTITIONS: _mutation,
    ApiKey.DELETE_TOPICS: _mutation,
}


def is_refusable(api_key: int, api_version: int, *, acks: int) -> bool:
    """Whether ``refusal_response`` has an answer to a request, as far as its front tells.

    Args:
        api_key: Of the request.
        api_version: Of it.
        acks: Of a Produce.
    """
    if api_key not in _REFUSALS or api_version > HIGHEST_VERSION[api_key]:
        return False
    return (
        acks != 0
        if api_key == ApiKey.PRODUCE
        else api_version >= topic_mutations.FIRST_REFUSABLE_VERSION.get(api_key, 0)
    )
