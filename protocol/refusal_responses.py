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
from typing import Final

from kafka_quota_proxy.protocol import codec, fetch, topic_mutations
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.header import RequestHead

COORDINATOR_LOAD_IN_PROGRESS: Final = 14
NOT_ENOUGH_REPLICAS: Final = 19

_NO_OFFSET: Final = -1
_NO_GENERATION: Final = -1
_MAX_INT32: Final = 2**31 - 1


def refusal_response(frame: bytes, *, throttle_time_ms: int) -> bytes | None:
    """Return the response that refuses the request in ``frame``, or None if the request cannot be refused.

    The throttle time in it is at least 1 ms.

    Returns None for an API that is not in the module's list, a version that is too old or unknown, a Produce with
    acks=0, a follower's Fetch, and a frame with too many elements.
    """
    head = codec.read_whole_head(frame)
    if not is_refusable(head.api_key, head.api_version, acks=1):
        return None
    try:
        return _REFUSALS[head.api_key](frame, head, max(1, min(throttle_time_ms, _MAX_INT32)))
    except TooManyElements:
        return None


def _refuse_produce(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    _, acks, _, topics = codec.read_request(frame, head)
    if acks == 0:
        return None
    rest = (NOT_ENOUGH_REPLICAS, _NO_OFFSET, _NO_OFFSET, _NO_OFFSET, (), None)
    refused = [(*topic, [(index, *rest) for index, _ in partitions]) for *topic, partitions in topics]
    return codec.write_response(head.api_key, head.api_version, head.correlation_id, (refused, throttle_time_ms))


def _refuse_fetch(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    if fetch.read_replica_id(frame, head.body, len(frame), head.api_version) > fetch.NO_REPLICA:
        return None
    return fetch.empty_response(head.correlation_id, head.api_version, throttle_time_ms)


def _refuse_join_group(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    _, _, _, member_id, *_ = codec.read_request(frame, head)
    protocol_name = None if head.api_version >= 7 else ""
    values = (
        throttle_time_ms, COORDINATOR_LOAD_IN_PROGRESS, _NO_GENERATION, None, protocol_name, "", False, member_id, (),
    )  # fmt: skip
    return codec.write_response(head.api_key, head.api_version, head.correlation_id, values)


def _refuse_offset_commit(frame: bytes, head: RequestHead, throttle_time_ms: int) -> bytes | None:
    *_, topics = codec.read_request(frame, head)
    error = COORDINATOR_LOAD_IN_PROGRESS
    refused = [(*topic, [(index, error) for index, *_ in partitions]) for *topic, partitions in topics]
    return codec.write_response(head.api_key, head.api_version, head.correlation_id, (throttle_time_ms, refused))


def _refuse_mutation(frame: bytes, _: RequestHead, throttle_time_ms: int) -> bytes | None:
    return topic_mutations.refuse_all_topics(topic_mutations.read_request(frame), throttle_time_ms=throttle_time_ms)


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
    """Whether ``refusal_response`` can refuse a request, as far as its header and ``acks`` show."""
    if api_key not in _REFUSALS or api_version > HIGHEST_VERSION[api_key]:
        return False
    if api_key == ApiKey.PRODUCE:
        return acks != 0
    return api_version >= topic_mutations.FIRST_REFUSABLE_VERSION.get(api_key, 0)
