"""Finds the first record batch in the front of a Fetch response (key 1), of which the rest may not have arrived.

The layouts are in ``protocol.replica_fetch.response`` and ``protocol.record_batches``.
"""

from typing import Final

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.fetch import FIRST_FLEXIBLE, FIRST_SESSION, FIRST_THROTTLE, FIRST_TOPIC_ID
from kafka_quota_proxy.protocol.primitives import (
    read_int32,
    read_uvarint,
    skip_compact_string,
    skip_string,
    skip_tags,
)
from kafka_quota_proxy.protocol.record_batches import first_batch_size
from kafka_quota_proxy.protocol.replica_fetch.topics import read_count

_FIRST_ABORTED: Final = 4
_FIRST_LOG_START: Final = 5
_FIRST_PREFERRED_REPLICA: Final = 11
# A batch begins with int64 base_offset, int32 length.
_BATCH_FRONT_BYTES: Final = 8 + 4


def first_batch_bytes(data: bytes, position: int, api_version: int) -> int:
    """Return the size of the first record batch of the response that begins at ``position`` of ``data``.

    The size includes the batch's offset and length fields. It is 0 if the response has no batch, or none whose first
    bytes have arrived, or cannot be read.
    """
    at = position + 8
    try:
        if api_version >= FIRST_FLEXIBLE:
            at = skip_tags(data, at)
        at += (4 if api_version >= FIRST_THROTTLE else 0) + (6 if api_version >= FIRST_SESSION else 0)
        topics, at = read_count(data, at, api_version)
        for _ in range(topics):
            if api_version >= FIRST_TOPIC_ID:
                at += 16
            else:
                at = skip_compact_string(data, at) if api_version >= FIRST_FLEXIBLE else skip_string(data, at)
            batch_bytes, at = _first_of_topic(data, at, api_version)
            if batch_bytes:
                return batch_bytes
            if api_version >= FIRST_FLEXIBLE:
                at = skip_tags(data, at)
    except ProtocolError:
        return 0  # the rest has not arrived; an array that is cut off counts as malformed
    return 0


def _first_of_topic(data: bytes, at: int, api_version: int) -> tuple[int, int]:
    """Return the size of the first batch of a topic whose partitions begin at ``at``, or 0 and the partitions' end."""
    is_flexible = api_version >= FIRST_FLEXIBLE
    fixed_bytes = 4 + 2 + 8  # partition, error_code, high_watermark
    fixed_bytes += (8 if api_version >= _FIRST_ABORTED else 0) + (8 if api_version >= _FIRST_LOG_START else 0)
    partitions, at = read_count(data, at, api_version)
    for _ in range(partitions):
        at += fixed_bytes
        if api_version >= _FIRST_ABORTED:
            aborted, at = read_count(data, at, api_version)
            for _ in range(aborted):
                at = skip_tags(data, at + 8 + 8) if is_flexible else at + 8 + 8
        if api_version >= _FIRST_PREFERRED_REPLICA:
            at += 4
        if is_flexible:
            length, at = read_uvarint(data, at)
            length -= 1
        else:
            length, at = read_int32(data, at)
        if length >= _BATCH_FRONT_BYTES:
            return first_batch_size(data, at, len(data)), at
        at += max(length, 0)
        if is_flexible:
            at = skip_tags(data, at)
    return 0, at
