"""Fetch (key 1): limits and replica_id of a request, the throttle field and the charge of a response.

    request    [v0-14 int32 replica_id] int32 max_wait_ms, int32 min_bytes, [v3+ int32 max_bytes]
               [v4+ int8 isolation_level] [v7+ int32 session_id, int32 session_epoch]
               array of { v0-12 string topic | v13+ uuid topic_id, array of partitions of fixed size }
               [v7+ array of { v7-12 string topic | v13+ uuid topic_id, array of int32 }] [v11+ string rack_id]
               tags: v15+ 1: { int32 replica_id, int64 replica_epoch, tags }
    response   [v1+ int32 throttle_time_ms] [v7+ int16 error_code, int32 session_id] array of topics

From v12 on strings and arrays are compact, and each of the structures ends with tags. Since v15 (KIP-903) only the very
end of a request tells whether a broker or a consumer sent it.

Source: FetchRequest.json (0 to 18), FetchResponse.json in Apache Kafka.
"""

import sys
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.errors import FrameTooSmall, MalformedLength, TrailingBytes
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_uvarint,
    skip,
    skip_compact_string,
    skip_string,
    skip_tags,
)

# What a consumer sends, and what the absence of the field means.
NO_REPLICA: Final = -1
UNLIMITED_BYTES: Final = 2**31 - 1

# The first version of each field or encoding.
FIRST_THROTTLE: Final = 1
FIRST_MAX_BYTES: Final = 3
FIRST_SESSION: Final = 7
FIRST_RACK_ID: Final = 11
FIRST_FLEXIBLE: Final = 12
FIRST_TOPIC_ID: Final = 13
FIRST_REPLICA_STATE: Final = 15

_INT32: Final = Struct(">i").unpack_from
_TWO_INT32: Final = Struct(">ii").unpack_from
_THREE_INT32: Final = Struct(">iii").unpack_from
_REPLICA_STATE_TAG: Final = 1
# max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch of v15+.
_FRONT_BYTES: Final = 4 + 4 + 4 + 1 + 4 + 4
# partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes of v12+.
_PARTITION_BYTES: Final = 4 + 4 + 8 + 4 + 8 + 4


# What the client is to forget: the session of which its fetch was a part. It asks in full then.
FETCH_SESSION_ID_NOT_FOUND: Final = 70
# The epoch of a full fetch that opens a session, and of one that does not.
OPENS_SESSION: Final = 0
WITHOUT_SESSION: Final = -1


class FetchLimits(NamedTuple):
    """How much a client asks for, and where in the data it says so.

    ``max_bytes_offset`` is -1 up to v2, which has no such field; Kafka then assumes ``UNLIMITED_BYTES``.
    """

    min_bytes_offset: int
    max_bytes_offset: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


def read_limits(data: Buffer, body: int, api_version: int, *, end: int = sys.maxsize) -> FetchLimits | None:
    """Read ``max_wait_ms``, ``min_bytes`` and ``max_bytes``.

    Args:
        data: Bytes of the connection, as many as have come.
        body: Where the request's body begins.
        api_version: Of the request; one newer than 18 is read like 18.
        end: Where its frame ends, if the caller cares: the bytes behind it may be another frame's.

    Returns:
        The limits; None if more bytes are needed.

    Raises:
        FrameTooSmall: The frame ends before the fields.
    """
    offset = body + 4 if api_version >= FIRST_REPLICA_STATE else body + 8
    has_max_bytes = api_version >= FIRST_MAX_BYTES
    needed = offset + 8 if has_max_bytes else offset + 4
    if needed > end:
        raise FrameTooSmall(f"a Fetch request v{api_version} ends before its max_bytes")
    if needed > len(data):
        return None
    if has_max_bytes:
        max_wait_ms, min_bytes, max_bytes = _THREE_INT32(data, offset - 4)
        return FetchLimits(offset, offset + 4, max_wait_ms, min_bytes, max_bytes)
    max_wait_ms, min_bytes = _TWO_INT32(data, offset - 4)
    return FetchLimits(offset, -1, max_wait_ms, min_bytes, UNLIMITED_BYTES)


class FetchSession(NamedTuple):
    """Which session a request (v7+) belongs to, and where in the data the epoch stands, an int32."""

    session_id: int
    epoch: int
    epoch_offset: int


def read_session(data: Buffer, limits: FetchLimits, api_version: int) -> FetchSession | None:
    """Read the session of a request of which ``read_limits`` has read the limits.

    Returns:
        The session; None before v7, which has none, and where the data ends before it.
    """
    offset = limits.max_bytes_offset + 5
    if api_version < FIRST_SESSION or offset + 8 > len(data):
        return None
    session_id, epoch = _TWO_INT32(data, offset)
    return FetchSession(session_id, epoch, offset + 4)


def empty_response(correlation_id: int, api_version: int, throttle_time_ms: int, *, error_code: int = 0) -> bytes:
    """Return an answer without partitions, which clients take as one that is throttled (KIP-219).

    Args:
        correlation_id: Of the request.
        api_version: Of the request, at most 18. Up to v0 there is no throttle time, up to v6 no error code.
        throttle_time_ms: Above 0. In an answer to a full fetch it says that the partitions lack for a reason.
        error_code: Of the whole request.

    Returns:
        A frame with its size; it belongs to no session.

    Source: ``FetchContext.getThrottledResponse`` in Apache Kafka.
    """
    is_flexible = api_version >= FIRST_FLEXIBLE
    body = correlation_id.to_bytes(4, signed=True) + (b"\0" if is_flexible else b"")
    if api_version >= FIRST_THROTTLE:
        body += throttle_time_ms.to_bytes(4)
    if api_version >= FIRST_SESSION:
        body += error_code.to_bytes(2) + bytes(4)
    body += b"\1\0" if is_flexible else bytes(4)
    return len(body).to_bytes(4) + body


def read_replica_id(frame_body: bytes, offset: int, end: int, api_version: int) -> int:
    """Read which broker fetches.

    Args:
        frame_body: Bytes that hold the whole body of the request.
        offset: Where the body begins.
        end: Where it ends.
        api_version: Of the request; one newer than 18 is read like 18.

    Returns:
        The follower's node id (0 or more); below 0 it is a consumer.

    Raises:
        ProtocolError: The body is not a Fetch request of this version.
    """
    body = memoryview(frame_body)[:end]
    if api_version < FIRST_REPLICA_STATE:
        skip(body, offset, 4)
        return int(_INT32(body, offset)[0])
    offset = _skip_topics(body, skip(body, offset, _FRONT_BYTES))
    offset = skip_forgotten_topics(body, offset, api_version)
    offset = skip_compact_string(body, offset)
    return read_replica_state(body, offset)


def charged_bytes(size_bytes: int, api_version: int) -> int:
    """Return what Kafka charges for a response: four bytes and the body, but not the header.

    Args:
        size_bytes: The frame's size, without the four bytes that hold it.
        api_version: Of the request.

    Source: ``FetchResponse.sizeOf`` in Apache Kafka. A header v0 is four bytes long, too, so it makes no difference; v1
    has one more, its empty tag section. Unlike Kafka, which adds them later, we count the node_endpoints of a response
    (v16+, a few dozen bytes, only when a partition's leader has moved): the size is known before they are seen.
    """
    return size_bytes - 1 if api_version >= FIRST_FLEXIBLE else size_bytes


def skip_forgotten_topics(body: Buffer, offset: int, api_version: int) -> int:
    """Step over the partitions that a request (v7+) takes out of its session.

    Raises:
        ProtocolError: They are malformed, or end behind the body.
    """
    if api_version < FIRST_FLEXIBLE:
        topics, offset = read_array_count(body, offset)
        for _ in range(topics):
            partitions, offset = read_array_count(body, skip_string(body, offset))
            offset = skip(body, offset, 4 * partitions)
        return offset
    topics, offset = read_compact_array_count(body, offset)
    for _ in range(topics):
        offset = skip_compact_string(body, offset) if api_version < FIRST_TOPIC_ID else skip(body, offset, 16)
        partitions, offset = read_compact_array_count(body, offset)
        offset = skip_tags(body, skip(body, offset, 4 * partitions))
    return offset


def read_replica_state(body: Buffer, offset: int) -> int:
    """Read which broker fetches from the tags (v15+) with which the body of a request ends.

    Returns:
        Its node id; ``NO_REPLICA`` if the tags name none.

    Raises:
        ProtocolError: They are malformed, or not the end of the body.
    """
    replica_id = NO_REPLICA
    tags, offset = read_uvarint(body, offset)
    for _ in range(tags):
        tag, offset = read_uvarint(body, offset)
        size_bytes, offset = read_uvarint(body, offset)
        value = offset
        offset = skip(body, offset, size_bytes)
        if tag == _REPLICA_STATE_TAG:
            if size_bytes < 4:
                raise MalformedLength(f"a replica_state has {size_bytes} bytes")
            replica_id = _INT32(body, value)[0]
    if offset != len(body):
        raise TrailingBytes(f"a Fetch request ends {len(body) - offset} bytes before its frame")
    return replica_id


def _skip_topics(body: Buffer, offset: int) -> int:
    topics, offset = read_compact_array_count(body, offset)
    for _ in range(topics):
        partitions, offset = read_compact_array_count(body, skip(body, offset, 16))
        for _ in range(partitions):
            offset = skip_tags(body, offset + _PARTITION_BYTES)
        offset = skip_tags(body, offset)
    return offset
