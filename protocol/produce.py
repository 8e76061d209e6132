"""Reads the ``acks`` of a Produce request (key 0), and finds ``throttle_time_ms`` in its response.

    request    [v3+ string transactional_id] int16 acks, int32 timeout_ms, array of topics
    response   array of { string name | v13+ uuid topic_id,
                          array of { int32 index, int16 error_code, int64 base_offset, [v2+ int64 log_append_time_ms]
                                     [v5+ int64 log_start_offset]
                                     [v8+ array of { int32 batch_index, string message }, string error_message] } }
               [v1+ int32 throttle_time_ms]

From v9 on strings and arrays are compact, and each structure ends with tags.

Source: ProduceRequest.json (0 to 13), ProduceResponse.json in Apache Kafka.
"""

import sys
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.errors import FrameTooSmall, MalformedLength, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    read_compact_array_count,
    read_int16,
    read_int32,
    read_uvarint,
    skip,
    skip_compact_string,
    skip_tags,
)

_INT32: Final = Struct(">i").unpack_from
_INT16: Final = Struct(">h").unpack_from
_FIRST_TRANSACTIONAL: Final = 3
_FIRST_FLEXIBLE: Final = 9
_FIRST_TOPIC_ID: Final = 13
# The fixed fields of a partition, v5+: index, error_code, base_offset, log_append_time_ms and log_start_offset.
_PARTITION_BYTES: Final = 4 + 2 + 8 + 8 + 8
# Nearly every partition ends with these bytes: no record errors, no error message, no tags.
_PLAIN_END: Final = b"\x01\x00\x00"
# The shortest response has its size, correlation_id, an empty array and throttle_time_ms.
_MIN_RESPONSE_BYTES: Final = 16


def read_acks(data: Buffer, offset: int, api_version: int, *, end: int = sys.maxsize) -> int | None:
    """Read ``acks`` from a request whose body begins at ``offset``, or return None if more bytes are needed.

    ``end`` is the end of the frame, if it is known.
    """
    # Nearly all producers have no transactional_id. In that case its first one or two bytes say null.
    if api_version >= _FIRST_FLEXIBLE and offset < len(data) and data[offset] == 0:
        position: int | None = offset + 1
    elif api_version < _FIRST_TRANSACTIONAL:
        position = offset
    elif api_version < _FIRST_FLEXIBLE and offset + 2 <= len(data) and data[offset] == 0xFF == data[offset + 1]:
        position = offset + 2
    else:
        # The bytes that follow the frame must not change which error is raised.
        frame = data[:end] if end < len(data) else data
        position = _skip_transactional_id(frame, offset, is_compact=api_version >= _FIRST_FLEXIBLE)
    if len(data) >= end if position is None else position + 2 > end:
        raise FrameTooSmall(f"a Produce request v{api_version} ends before its acks")
    if position is None or position + 2 > len(data):
        return None
    acks: int = _INT16(data, position)[0]
    return acks


def end_of_plain_acks(data: Buffer, offset: int, api_version: int) -> int | None:
    """Return the offset after ``acks``, or None if the request has a transactional_id. ``acks`` must have arrived."""
    if api_version >= _FIRST_FLEXIBLE:
        return offset + 3 if data[offset] == 0 else None
    if api_version >= _FIRST_TRANSACTIONAL:
        return offset + 4 if data[offset] == 0xFF == data[offset + 1] else None
    return offset + 2


def _skip_transactional_id(data: Buffer, offset: int, *, is_compact: bool) -> int | None:
    try:
        if is_compact:
            length, offset = read_uvarint(data, offset)
            length -= 1
        else:
            length, offset = read_int16(data, offset)
    except Truncated:
        return None
    # The bytes may not have arrived yet. Without this bound a caller might wait for 4 GiB and keep them in memory.
    if not -1 <= length <= MAX_STRING_BYTES:
        raise MalformedLength(f"a transactional_id has length {length}")
    return offset + max(length, 0)


def throttle_time_offset(frame: Buffer, api_version: int) -> int | None:
    """Return the offset of ``throttle_time_ms`` in a whole Produce response, or None for v0, which lacks the field."""
    if api_version < 1:
        return None
    if api_version >= _FIRST_FLEXIBLE:
        return _flexible_throttle_time_offset(frame, api_version)
    if len(frame) < _MIN_RESPONSE_BYTES:
        raise FrameTooSmall(f"a Produce response v{api_version} has {len(frame)} bytes in all")
    if len(frame) != 4 + read_int32(frame, 0)[0]:
        raise Truncated(f"a Produce response v{api_version} of {len(frame)} bytes is not one whole frame")
    return len(frame) - 4


def _flexible_throttle_time_offset(frame: Buffer, api_version: int) -> int:
    offset = skip_tags(frame, 8)
    topics, offset = read_compact_array_count(frame, offset)
    for _ in range(topics):
        offset = skip(frame, offset, 16) if api_version >= _FIRST_TOPIC_ID else skip_compact_string(frame, offset)
        partitions, offset = read_compact_array_count(frame, offset)
        for _ in range(partitions):
            offset += _PARTITION_BYTES
            if frame[offset : offset + 3] == _PLAIN_END:
                offset += 3
            else:
                offset = _skip_partition_end(frame, offset)
        offset = skip_tags(frame, offset)
    end = skip_tags(frame, skip(frame, offset, 4))
    if end != len(frame):
        raise TrailingBytes(f"a Produce response v{api_version} of {len(frame)} bytes ends at byte {end}")
    return offset


def _skip_partition_end(frame: Buffer, offset: int) -> int:
    record_errors, offset = read_compact_array_count(frame, offset)
    for _ in range(record_errors):
        offset = skip_tags(frame, skip_compact_string(frame, skip(frame, offset, 4)))
    return skip_tags(frame, skip_compact_string(frame, offset))
