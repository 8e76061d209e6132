"""Responses of our own that say "not now", so that a client tries again and its application sees no error.

    Produce            each partition has NOT_ENOUGH_REPLICAS: retried, and surely not written. Java also retries
                       THROTTLING_QUOTA_EXCEEDED, but librdkafka then fails the message for good, and takes
                       REQUEST_TIMED_OUT as possibly written
    Fetch              no topics, no error, no session: as a broker itself answers a consumer over its quota
    JoinGroup,         COORDINATOR_LOAD_IN_PROGRESS: retried at the same broker. With NOT_COORDINATOR or
    OffsetCommit       COORDINATOR_NOT_AVAILABLE the client would look for the coordinator again
    CreateTopics,      each topic has THROTTLING_QUOTA_EXCEEDED, from the first versions whose clients know it
    DeleteTopics,
    CreatePartitions

No other API has such a response. For Heartbeat and SyncGroup clients do not expect COORDINATOR_LOAD_IN_PROGRESS. For
ShareFetch the acknowledgements would fail at the client (INVALID_RECORD_STATE), and the client's session epoch would be
ahead of the broker's (``protocol.share_fetch``).

An empty Fetch response is right in every version. Brokers have sent it since KIP-219, whatever the version:

* The Java consumer (2.0+) recognises an empty response to a full fetch by its throttle time, and takes one without a
  session as the end of its session; it then fetches again, in full. Consumers before 2.0 (up to v6) log a warning and
  fetch again. A partition with an unexpected error would be an exception.
* librdkafka processes the listed partitions and fetches again.
* kafka-python sees that partitions are missing from a full fetch and fetches again in full; without sessions (below v7)
  it processes the listed partitions, as aiokafka does.

An entry per partition would need a high watermark, which is unknown here: clients derive lag, end-of-partition and
seeks to the end from it.

Where possible it is better to hold JoinGroup and OffsetCommit: librdkafka before 2.0 shows a JoinGroup error to its
application, and a Java consumer does not retry ``commitAsync`` but calls back with a RetriableCommitFailedException.

Source: FetchContext.getThrottledResponse, FetchSessionHandler.handleResponse, Fetcher (1.1), Sender.completeBatch and
ConsumerCoordinator in Apache Kafka; rdkafka_fetcher.c, rdkafka_request.c and rdkafka_cgrp.c in librdkafka;
kafka/consumer/fetcher.py in kafka-python. The messages: ``*Request.json`` and ``*Response.json`` of each API.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol import fetch, topic_mutations
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.field_reader import FieldReader, read_whole_head, request_reader
from kafka_quota_proxy.protocol.field_writer import FieldWriter, response_writer
from kafka_quota_proxy.protocol.header import RequestHead

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

_PARTITION_AND_ERROR: Final = Struct(">ih").pack
_NO_OFFSET: Final = Struct(">q").pack(-1)
_NO_GENERATION: Final = -1
_MAX_INT32: Final = 2**31 - 1


def refusal_response(frame: bytes, *, throttle_time_ms: int) -> bytes | None:
    """Return the response that refuses a whole request.

    None if the client would not retry, so that the request has to be passed on or held: all other APIs, unknown
    versions, a Produce without a response, a follower's Fetch, a frame with too many elements.
    """
    head = read_whole_head(frame)
    if not is_refusable(head.api_key, head.api_version, acks=1):
        return None
    try:
        return _REFUSALS[head.api_key](frame, head, max(1, min(throttle_time_ms, _MAX_INT32)))
    except TooManyElements:
        return None


def _refuse_produce(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    version = head.api_version
    reader, writer = request_reader(frame, head), _response_writer(head)
    if version >= _PRODUCE_FIRST_TRANSACTIONAL:
        reader.nullable_string()
    acks = reader.int16()
    reader.skip(4)

    def refuse_partition() -> None:
        writer.raw(_PARTITION_AND_ERROR(reader.int32(), NOT_ENOUGH_REPLICAS), _NO_OFFSET)
        if version >= _PRODUCE_FIRST_LOG_APPEND_TIME:
            writer.raw(_NO_OFFSET)
        if version >= _PRODUCE_FIRST_LOG_START_OFFSET:
            writer.raw(_NO_OFFSET)
        if version >= _PRODUCE_FIRST_RECORD_ERRORS:
            writer.count(0)
            writer.string(None)
        reader.skip_bytes()

    _refuse_partitions(reader, writer, refuse_partition, has_ids=version >= _PRODUCE_FIRST_TOPIC_ID)
    reader.expect_end()
    if acks == 0:
        return None
    if version >= _PRODUCE_FIRST_THROTTLE:
        writer.int32(throttle_time_ms)
    writer.no_tags()
    return writer.frame()


def _refuse_fetch(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    if fetch.read_replica_id(frame, head.body, len(frame), head.api_version) > fetch.NO_REPLICA:
        return None
    return fetch.empty_response(head.correlation_id, head.api_version, throttle_time_ms)


def _refuse_join_group(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    """Refuse like a coordinator that is loading; the client keeps its member id."""
    version = head.api_version
    reader, writer = request_reader(frame, head), _response_writer(head)
    reader.string()
    reader.skip(8 if version >= _JOIN_FIRST_REBALANCE_TIMEOUT else 4)
    member_id = reader.string()
    if version >= _JOIN_FIRST_THROTTLE:
        writer.int32(throttle_time_ms)
    writer.int16(COORDINATOR_LOAD_IN_PROGRESS)
    writer.int32(_NO_GENERATION)
    if version >= _JOIN_FIRST_PROTOCOL_TYPE:
        writer.string(None)  # protocol_type
        writer.string(None)  # protocol_name
    else:
        writer.string(b"")
    writer.string(b"")  # leader
    if version >= _JOIN_FIRST_SKIP_ASSIGNMENT:
        writer.boolean(False)
    writer.string(member_id)
    writer.count(0)
    writer.no_tags()
    return writer.frame()


def _refuse_offset_commit(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    version = head.api_version
    reader, writer = request_reader(frame, head), _response_writer(head)
    _skip_member(reader, version)
    # committed_offset, committed_leader_epoch, commit_timestamp.
    offset_bytes = 8 + (4 if version >= _COMMIT_FIRST_LEADER_EPOCH else 0) + (8 if version == _COMMIT_TIMESTAMP else 0)
    if version >= _COMMIT_FIRST_THROTTLE:
        writer.int32(throttle_time_ms)

    def refuse_partition() -> None:
        writer.raw(_PARTITION_AND_ERROR(reader.int32(), COORDINATOR_LOAD_IN_PROGRESS))
        reader.skip(offset_bytes)
        reader.nullable_string()

    _refuse_partitions(reader, writer, refuse_partition, has_ids=version >= _COMMIT_FIRST_TOPIC_ID)
    reader.expect_end()
    writer.no_tags()
    return writer.frame()


def _skip_member(reader: FieldReader, version: int) -> None:
    """Step over the fields of an OffsetCommit before its topics."""
    reader.string()
    if version >= _COMMIT_FIRST_MEMBER:
        reader.skip(4)
        reader.string()
    if version >= _COMMIT_FIRST_INSTANCE_ID:
        reader.nullable_string()
    if version in _COMMIT_RETENTION:
        reader.skip(8)


def _refuse_partitions(
    reader: FieldReader, writer: FieldWriter, refuse_partition: Callable[[], None], *, has_ids: bool
) -> None:
    """Write the topics and partitions of a request into its response, each partition by ``refuse_partition``."""
    topics = reader.count()
    writer.count(topics)
    for _ in range(topics):
        if has_ids:
            writer.raw(reader.raw(16))
        else:
            writer.string(reader.string())
        partitions = reader.count()
        writer.count(partitions)
        for _ in range(partitions):
            refuse_partition()
            reader.skip_tags()
            writer.no_tags()
        reader.skip_tags()
        writer.no_tags()


def _refuse_mutation(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    return topic_mutations.refuse_all_topics(topic_mutations.read_request(frame), throttle_time_ms=throttle_time_ms)


def _response_writer(head: RequestHead) -> FieldWriter:
    return response_writer(head.correlation_id, head.api_key, head.api_version)


_REFUSALS: Final[dict[int, Callable[[bytes, RequestHead, int], bytes | None]]] = {
    ApiKey.PRODUCE: _refuse_produce,
    ApiKey.FETCH: _refuse_fetch,
    ApiKey.OFFSET_COMMIT: _refuse_offset_commit,
    ApiKey.JOIN_GROUP: _refuse_join_group,
    ApiKey.CREATE_TOPICS: _refuse_mutation,
    ApiKey.CREATE_PARTITIONS: _refuse_mutation,
    ApiKey.DELETE_TOPICS: _refuse_mutation,
}


def is_refusable(api_key: int, api_version: int, *, acks: int) -> bool:
    """Whether ``refusal_response`` has a response to this request, as far as its first fields show."""
    if api_key not in _REFUSALS or api_version > HIGHEST_VERSION[api_key]:
        return False
    if api_key == ApiKey.PRODUCE:
        return acks != 0
    return api_version >= topic_mutations.FIRST_REFUSABLE_VERSION.get(api_key, 0)
