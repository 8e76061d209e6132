"""ShareFetch (key 78, KIP-932): the limits of a request, and the charge of a response.

    request    string group_id, string member_id, int32 share_session_epoch, int32 max_wait_ms, int32 min_bytes,
               int32 max_bytes, [v1+ int32 max_records, int32 batch_size]
               [v2+ int8 share_acquire_mode, bool is_renew_ack]
               array of topics, whose partitions have acknowledgements; array of topics to forget; tags
    response   int32 throttle_time_ms, int16 error_code, ...: see protocol.node_endpoints

All of it is compact. v0 is the early access of Kafka 4.0, v1 is of 4.1, v2 of 4.2 (KIP-1206, KIP-1222).

A request is more than a question: it counts the share session's epoch on, adds partitions to the session and forgets
others, and says what has become of records that were read before. An answer that no broker gave would lose all that.

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
_LIMITS_BYTES: Final = 3 * 4
_EPOCH_BYTES: Final = 4
_FIRST_MAX_RECORDS: Final = 1
_MAX_RECORDS_BYTES: Final = 4


def read_limits(data: Buffer, body: int, api_version: int, *, end: int = sys.maxsize) -> FetchLimits | None:
    """Read ``max_wait_ms``, ``min_bytes`` and ``max_bytes``, which are neighbours as in a Fetch, and find what follows.

    Args:
        data: Bytes of the connection, as many as have come.
        body: Where the request's body begins.
        api_version: Of the request; one newer than 2 is read like 2.
        end: Where its frame ends, if the caller cares: the bytes behind it may be another frame's.

    Returns:
        The limits; None if more bytes are needed.

    Raises:
        FrameTooSmall: The frame ends before the fields.
        MalformedLength, MalformedVarint: The group or the member has no name that Kafka would read.
    """
    try:
        offset = skip_compact_string(data, skip_compact_string(data, body)) + _EPOCH_BYTES
    except Truncated:
        if end > len(data):
            return None
        offset = end
    needed = offset + _LIMITS_BYTES + (_MAX_RECORDS_BYTES if api_version >= _FIRST_MAX_RECORDS else 0)
    if needed > end:
        raise FrameTooSmall(f"a ShareFetch request v{api_version} ends before its limits do")
    if needed > len(data):
        return None
    max_wait_ms, min_bytes, max_bytes = _LIMITS(data, offset)
    return FetchLimits(offset + 4, offset + 8, max_wait_ms, min_bytes, max_bytes)


def without_records(limits: FetchLimits, api_version: int) -> tuple[int, int, bytes]:
    """Return what to write where for a request to be answered at once, and without records: zero for each limit.

    All else that it says the broker still hears. v0 has no ``max_records``: there one batch may come all the same.

    Source: ``SharePartitionManager.processShareFetch``, ``SharePartition.acquire`` in Apache Kafka.
    """
    begin = limits.min_bytes_offset - 4  # max_wait_ms
    end = limits.max_bytes_offset + 4 + (_MAX_RECORDS_BYTES if api_version >= _FIRST_MAX_RECORDS else 0)
    return begin, end, bytes(end - begin)


def charged_bytes(size_bytes: int) -> int:
    """Return what Kafka charges for a response: four bytes and the body, but not the header.

    Args:
        size_bytes: The frame's size, without the four bytes that hold it.

    Source: ``ShareFetchResponse.sizeOf`` in Apache Kafka, as for a Fetch of a flexible version. Unlike Kafka, which
    adds both later, this counts the node_endpoints of a response, and its partitions that only answer acknowledgements
    (some 40 bytes each): the size is known before they are seen.
    """
    return size_bytes - 1
