"""Reads the limits of a ShareFetch request (key 78, KIP-932), and computes the charge for its response.

    request    string group_id, string member_id, int32 share_session_epoch, int32 max_wait_ms, int32 min_bytes,
               int32 max_bytes, [v1+ int32 max_records, int32 batch_size]
               [v2+ int8 share_acquire_mode, bool is_renew_ack]
               array of topics, whose partitions have acknowledgements; array of topics to forget; tags
    response   int32 throttle_time_ms, int16 error_code, ...: see protocol.node_endpoints

All fields are compact. v0 is the early access of Kafka 4.0, v1 is from 4.1, v2 from 4.2 (KIP-1206, KIP-1222).

Each request has to reach the broker, because it does more than fetch. It also acknowledges records, advances the epoch
of the share session, and adds and removes partitions of the session.

Source: ShareFetchRequest.json, ShareFetchResponse.json (0 to 2), ``ShareFetchResponse.sizeOf``,
``ShareSessionHandler.handleResponse`` and ``ShareConsumeRequestManager.handleShareFetchSuccess`` in Apache Kafka.
"""

import sys
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.errors import FrameTooSmall, Truncated
from kafka_quota_proxy.protocol.fetch import FetchLimits
from kafka_quota_proxy.protocol.primitives import Buffer, skip_compact_string

_LIMITS: Final = Struct(">iii").unpack_from
# The first version with max_records, the int32 after the limits.
_FIRST_MAX_RECORDS: Final = 1


def read_limits(data: Buffer, body: int, api_version: int, *, end: int = sys.maxsize) -> FetchLimits | None:
    """Read the limits of the request whose body begins at ``body``, or return None if more bytes are needed.

    ``end`` is the end of the frame, if it is known.
    """
    try:
        offset = skip_compact_string(data, skip_compact_string(data, body)) + 4  # share_session_epoch
    except Truncated:
        if end > len(data):
            return None
        offset = end
    needed = offset + 3 * 4 + (4 if api_version >= _FIRST_MAX_RECORDS else 0)
    if needed > end:
        raise FrameTooSmall(f"a ShareFetch request v{api_version} ends before its limits")
    if needed > len(data):
        return None
    max_wait_ms, min_bytes, max_bytes = _LIMITS(data, offset)
    return FetchLimits(offset + 4, offset + 8, max_wait_ms, min_bytes, max_bytes)


def without_records(limits: FetchLimits, api_version: int) -> tuple[int, int, bytes]:
    """Return the edit of a request (begin, end, new bytes) that sets all of its limits to zero.

    The broker then responds at once and without records, and still handles the rest of the request. In v0, which lacks
    ``max_records``, the response may still have one batch.

    Source: ``SharePartitionManager.processShareFetch``, ``SharePartition.acquire`` in Apache Kafka.
    """
    begin = limits.min_bytes_offset - 4  # max_wait_ms
    end = limits.max_bytes_offset + 4 + (4 if api_version >= _FIRST_MAX_RECORDS else 0)
    return begin, end, bytes(end - begin)


def charged_bytes(size_bytes: int) -> int:
    """Return how many bytes of a ShareFetch response count towards the consumer's quota: its size field and its body.

    ``size_bytes`` is the value of the size field. Kafka counts neither the node_endpoints nor the partitions that only
    confirm acknowledgements (some 40 bytes each). The proxy counts both, because it counts a response before it has
    arrived completely.

    Source: ``ShareFetchResponse.sizeOf`` in Apache Kafka.
    """
    return size_bytes - 1
