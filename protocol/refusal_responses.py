"""Writes the responses with which the proxy itself refuses a request.

The proxy refuses requests that its fair call queue, which decides the order of the requests to a broker, does not
accept. Clients retry after such a response. Except for some JoinGroup and OffsetCommit requests, applications see no
error:

    Produce            Each partition has the error NOT_ENOUGH_REPLICAS, which also says that nothing was written.
                       librdkafka does not retry THROTTLING_QUOTA_EXCEEDED, and takes REQUEST_TIMED_OUT as
                       possibly written.
    Fetch              The response has no topics, no error and no session. A broker sends the same to a consumer
                       over its quota.
    JoinGroup,         The error is COORDINATOR_LOAD_IN_PROGRESS, and the client retries at the same broker. With
    OffsetCommit       NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE it would look for the coordinator again.
    CreateTopics,      Each topic has THROTTLING_QUOTA_EXCEEDED, in versions in which clients know this error.
    DeleteTopics,
    CreatePartitions

A test may ask for another error, which then takes the place of these. Fetch is never refused with an error.

Requests of other APIs cannot be refused without harm. For example, clients do not expect COORDINATOR_LOAD_IN_PROGRESS
in response to Heartbeat, and a refused ShareFetch would lose its acknowledgements (``protocol.share_fetch``).

After an empty Fetch response the Java consumer (2.0+) drops its session and sends a full fetch. Older consumers also
log a warning. librdkafka, aiokafka and kafka-python fetch again. The response cannot list partitions, because the proxy
does not know their high watermarks.

Where possible, JoinGroup and OffsetCommit should be held rather than refused. librdkafka before 2.0 shows a JoinGroup
error to its application. In Java ``commitAsync`` does not retry, but fails with a RetriableCommitFailedException.

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

_PARTITION_AND_ERROR: Final = Struct(">ih").pack
_NO_OFFSET: Final = Struct(">q").pack(-1)
_NO_GENERATION: Final = -1
_MAX_INT32: Final = 2**31 - 1


def refusal_response(frame: bytes, *, throttle_time_ms: int, error_code: int | None = None) -> bytes | None:
    """Return the response that refuses the request in ``frame``, or None if the request cannot be refused.

    ``error_code`` replaces the error that the module's list has for the API, in versions of any age. Without it, the
    throttle time is at least 1 ms.

    Returns None for an API that is not in the module's list, a version that is too old or unknown, a Produce with
    acks=0, a follower's Fetch, and a frame with too many elements.
    """
    head = read_whole_head(frame)
    is_written = head.api_key in _REFUSALS and head.api_version <= HIGHEST_VERSION[head.api_key]
    if not is_written or (error_code is None and not is_refusable(head.api_key, head.api_version, acks=1)):
        return None
    try:
        least_ms = 1 if error_code is None else 0
        return _REFUSALS[head.api_key](frame, head, max(least_ms, min(throttle_time_ms, _MAX_INT32)), error_code)
    except TooManyElements:
        return None


def _refuse_produce(frame: bytes, head: RequestHead, throttle_time_ms: int, error_code: int | None) -> bytes | None:
    version, error = head.api_version, NOT_ENOUGH_REPLICAS if error_code is None else error_code
    reader, writer = request_reader(frame, head), response_writer(head.correlation_id, head.api_key, version)
    if version >= 3:
        reader.nullable_string()  # transactional_id
    acks = reader.int16()
    reader.skip(4)  # timeout_ms

    def refuse_partition() -> None:
        writer.raw(_PARTITION_AND_ERROR(reader.int32(), error), _NO_OFFSET)
        if version >= 2:
            writer.raw(_NO_OFFSET)  # log_append_time_ms
        if version >= 5:
            writer.raw(_NO_OFFSET)  # log_start_offset
        if version >= 8:
            writer.count(0)  # record_errors
            writer.string(None)  # error_message
        reader.skip_bytes()  # records

    _refuse_partitions(reader, writer, refuse_partition, has_ids=version >= 13)
    reader.expect_end()
    if acks == 0:
        return None
    if version >= 1:
        writer.int32(throttle_time_ms)
    writer.no_tags()
    return writer.frame()


def _refuse_fetch(frame: bytes, head: RequestHead, throttle_time_ms: int, _: int | None) -> bytes | None:
    if fetch.read_replica_id(frame, head.body, len(frame), head.api_version) > fetch.NO_REPLICA:
        return None
    return fetch.empty_response(head.correlation_id, head.api_version, throttle_time_ms)


def _refuse_join_group(frame: bytes, head: RequestHead, throttle_time_ms: int, error_code: int | None) -> bytes | None:
    version, error = head.api_version, COORDINATOR_LOAD_IN_PROGRESS if error_code is None else error_code
    reader, writer = request_reader(frame, head), response_writer(head.correlation_id, head.api_key, version)
    reader.string()  # group_id
    reader.skip(8 if version >= 1 else 4)  # session_timeout_ms, rebalance_timeout_ms
    member_id = reader.string()
    if version >= 2:
        writer.int32(throttle_time_ms)
    writer.int16(error)
    writer.int32(_NO_GENERATION)
    if version >= 7:
        writer.string(None)  # protocol_type
        writer.string(None)  # protocol_name
    else:
        writer.string(b"")
    writer.string(b"")  # leader
    if version >= 9:
        writer.boolean(False)  # skip_assignment
    writer.string(member_id)
    writer.count(0)  # members
    writer.no_tags()
    return writer.frame()


def _refuse_offset_commit(
    frame: bytes, head: RequestHead, throttle_time_ms: int, error_code: int | None
) -> bytes | None:
    version, error = head.api_version, COORDINATOR_LOAD_IN_PROGRESS if error_code is None else error_code
    reader, writer = request_reader(frame, head), response_writer(head.correlation_id, head.api_key, version)
    reader.string()  # group_id
    if version >= 1:
        reader.skip(4)  # generation_id
        reader.string()  # member_id
    if version >= 7:
        reader.nullable_string()  # group_instance_id
    if 2 <= version <= 4:
        reader.skip(8)  # retention_time_ms
    # committed_offset, committed_leader_epoch, commit_timestamp.
    offset_bytes = 8 + (4 if version >= 6 else 0) + (8 if version == 1 else 0)
    if version >= 3:
        writer.int32(throttle_time_ms)

    def refuse_partition() -> None:
        writer.raw(_PARTITION_AND_ERROR(reader.int32(), error))
        reader.skip(offset_bytes)
        reader.nullable_string()  # committed_metadata

    _refuse_partitions(reader, writer, refuse_partition, has_ids=version >= 10)
    reader.expect_end()
    writer.no_tags()
    return writer.frame()


def _refuse_partitions(
    reader: FieldReader, writer: FieldWriter, refuse_partition: Callable[[], None], *, has_ids: bool
) -> None:
    """Copy the topics of a request into the response, and call ``refuse_partition`` to write each partition."""
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


def _refuse_mutation(frame: bytes, head: RequestHead, throttle_time_ms: int, error_code: int | None) -> bytes | None:
    request = topic_mutations.read_request(frame)
    error = topic_mutations.THROTTLING_QUOTA_EXCEEDED if error_code is None else error_code
    return topic_mutations.refuse_all_topics(request, throttle_time_ms=throttle_time_ms, error_code=error)


_REFUSALS: Final[dict[int, Callable[[bytes, RequestHead, int, int | None], bytes | None]]] = {
    ApiKey.PRODUCE: _refuse_produce,
    ApiKey.FETCH: _refuse_fetch,
    ApiKey.OFFSET_COMMIT: _refuse_offset_commit,
    ApiKey.JOIN_GROUP: _refuse_join_group,
    ApiKey.CREATE_TOPICS: _refuse_mutation,
    ApiKey.CREATE_PARTITIONS: _refuse_mutation,
    ApiKey.DELETE_TOPICS: _refuse_mutation,
}
REFUSABLE_APIS: Final = frozenset(map(int, _REFUSALS))


def is_refusable(api_key: int, api_version: int, *, acks: int) -> bool:
    """Whether ``refusal_response`` can refuse a request, as far as its header and ``acks`` show."""
    if api_key not in _REFUSALS or api_version > HIGHEST_VERSION[api_key]:
        return False
    if api_key == ApiKey.PRODUCE:
        return acks != 0
    return api_version >= topic_mutations.FIRST_REFUSABLE_VERSION.get(api_key, 0)
