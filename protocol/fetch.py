"""Reads the limits, session and replica_id of a Fetch request (key 1), and computes the charge for its response.

The charge is the number of bytes of the response that count towards a quota.

    request    [v0-14 int32 replica_id] int32 max_wait_ms, int32 min_bytes, [v3+ int32 max_bytes]
               [v4+ int8 isolation_level] [v7+ int32 session_id, int32 session_epoch]
               array of { v0-12 string topic | v13+ uuid topic_id, array of partitions of fixed size }
               [v7+ array of { v7-12 string topic | v13+ uuid topic_id, array of int32 }] [v11+ string rack_id]
               tags: v15+ 1: { int32 replica_id, int64 replica_epoch, tags }
    response   [v1+ int32 throttle_time_ms] [v7+ int16 error_code, int32 session_id] array of topics

From v12 on strings and arrays are compact, and each structure ends with tags. The replica_id shows whether a follower
or a consumer sent the request. Since v15 (KIP-903) it is at the end.

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

# The replica_id of a consumer, and of a request without the field.
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
# The fixed fields in front, v15+: max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch.
_FRONT_BYTES: Final = 4 + 4 + 4 + 1 + 4 + 4
# The fixed fields of a partition, v12+: partition, current_leader_epoch, fetch_offset, last_fetched_epoch,
# log_start_offset, partition_max_bytes.
_PARTITION_BYTES: Final = 4 + 4 + 8 + 4 + 8 + 4

# After this error a client drops its fetch session and sends a full fetch.
FETCH_SESSION_ID_NOT_FOUND: Final = 70
# The session epochs of two kinds of full fetch: the first opens a session, the second does not.
OPENS_SESSION: Final = 0
WITHOUT_SESSION: Final = -1


class FetchLimits(NamedTuple):
    """The fields of a Fetch request that limit its response, and the offsets of ``min_bytes`` and ``max_bytes``.

    A request before v3 has no max_bytes. In that case ``max_bytes_offset`` is -1, and ``max_bytes`` is
    ``UNLIMITED_BYTES``.
    """

    min_bytes_offset: int
    max_bytes_offset: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


def read_limits(data: Buffer, body: int, api_version: int, *, end: int = sys.maxsize) -> FetchLimits | None:
    """Read the limits of the request whose body begins at ``body``, or return None if more bytes are needed.

    ``end`` is the end of the frame, if it is known.
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
    """The fetch session (KIP-227) of a request (v7+). The int32 session epoch is at ``epoch_offset``."""

    session_id: int
    epoch: int
    epoch_offset: int


def read_session(data: Buffer, limits: FetchLimits, api_version: int) -> FetchSession | None:
    """Read the fetch session, which follows ``limits``. Returns None before v7, or if more bytes are needed."""
    offset = limits.max_bytes_offset + 5
    if api_version < FIRST_SESSION or offset + 8 > len(data):
        return None
    session_id, epoch = _TWO_INT32(data, offset)
    return FetchSession(session_id, epoch, offset + 4)


def empty_response(correlation_id: int, api_version: int, throttle_time_ms: int, *, error_code: int = 0) -> bytes:
    """Return a Fetch response without partitions or session, such as brokers send to a throttled consumer (KIP-219).

    ``api_version`` is at most 18. In response to a full fetch the throttle time must be above 0, so that the client
    knows why partitions are missing.

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
    """Read the replica_id of a whole Fetch request: the node id of a follower, or a number below 0 for a consumer."""
    body = memoryview(frame_body)[:end]
    if api_version < FIRST_REPLICA_STATE:
        skip(body, offset, 4)
        return int(_INT32(body, offset)[0])
    offset = _skip_topics(body, skip(body, offset, _FRONT_BYTES))
    offset = skip_forgotten_topics(body, offset, api_version)
    offset = skip_compact_string(body, offset)
    return read_replica_state(body, offset)


def charged_bytes(size_bytes: int, api_version: int) -> int:
    """Return how many bytes of a Fetch response count towards the consumer's quota: its size field and its body.

    ``size_bytes`` is the value of the size field. Kafka does not count the node_endpoints (v16+, some dozen bytes). The
    proxy does, because it counts the bytes before the node_endpoints have arrived.

    Source: ``FetchResponse.sizeOf`` in Apache Kafka.
    """
    # A header v0 is as long as the size field, and a header v1 is one byte longer.
    return size_bytes - 1 if api_version >= FIRST_FLEXIBLE else size_bytes


def skip_forgotten_topics(body: Buffer, offset: int, api_version: int) -> int:
    """Step over the topics that a Fetch request (v7+) removes from its fetch session. Return the offset after them."""
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
    """Read the follower's node id from the tags that end a request (v15+). Returns ``NO_REPLICA`` if it is missing."""
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
        raise TrailingBytes(f"a Fetch request has {len(body) - offset} bytes after its last field")
    return replica_id


def _skip_topics(body: Buffer, offset: int) -> int:
    topics, offset = read_compact_array_count(body, offset)
    for _ in range(topics):
        partitions, offset = read_compact_array_count(body, skip(body, offset, 16))
        for _ in range(partitions):
            offset = skip_tags(body, offset + _PARTITION_BYTES)
        offset = skip_tags(body, offset)
    return offset
