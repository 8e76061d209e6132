"""Finds the first record batch in the front of a Fetch response (key 1), of which the rest may not have arrived.

The layouts are in ``protocol.replica_fetch.response`` and ``protocol.record_batches``.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.errors import MalformedLength, Truncated
from kafka_quota_proxy.protocol.fetch import FIRST_FLEXIBLE, FIRST_SESSION, FIRST_THROTTLE, FIRST_TOPIC_ID
from kafka_quota_proxy.protocol.primitives import (
    read_array_count,
    read_compact_array_count,
    read_int32,
    read_uvarint,
    skip,
    skip_compact_string,
    skip_string,
    skip_tags,
)

_FIRST_ABORTED: Final = 4
_FIRST_LOG_START: Final = 5
_FIRST_PREFERRED_REPLICA: Final = 11
_BATCH_LENGTH: Final = Struct(">8xi").unpack_from
_BATCH_FRONT_BYTES: Final = 8 + 4


def first_batch_bytes(data: bytes, position: int, api_version: int) -> int:
    """Return the size of the first record batch of the response at ``position`` of ``data``, with its offset and length.

    The result is 0 if the response has no batch, or none whose first bytes have arrived.

    Raises:
        MalformedLength, MalformedVarint: If the response cannot be read.
    """
    is_flexible = api_version >= FIRST_FLEXIBLE
    read_count = read_compact_array_count if is_flexible else read_array_count
    fixed_bytes = (
        4 + 2 + 8 + (8 if api_version >= _FIRST_ABORTED else 0) + (8 if api_version >= _FIRST_LOG_START else 0)
    )
    try:
        at = position + 8
        if is_flexible:
            at = skip_tags(data, at)
        at += (4 if api_version >= FIRST_THROTTLE else 0) + (6 if api_version >= FIRST_SESSION else 0)
        topics, at = read_count(data, at)
        for _ in range(topics):
            if api_version >= FIRST_TOPIC_ID:
                at += 16
            else:
                at = skip_compact_string(data, at) if is_flexible else skip_string(data, at)
            partitions, at = read_count(data, at)
            for _ in range(partitions):
                at += fixed_bytes
                if api_version >= _FIRST_ABORTED:
                    aborted, at = read_count(data, at)
                    for _ in range(aborted):
                        at = skip_tags(data, at + 8 + 8) if is_flexible else at + 8 + 8
                at += 4 if api_version >= _FIRST_PREFERRED_REPLICA else 0
                if is_flexible:
                    length, at = read_uvarint(data, at)
                    length -= 1
                else:
                    length, at = read_int32(data, at)
                if length >= _BATCH_FRONT_BYTES:
                    skip(data, at, _BATCH_FRONT_BYTES)
                    (batch_length,) = _BATCH_LENGTH(data, at)
                    if batch_length < 0:
                        raise MalformedLength(f"a record batch has length {batch_length}")
                    return _BATCH_FRONT_BYTES + int(batch_length)
                at += max(length, 0)
                if is_flexible:
                    at = skip_tags(data, at)
            if is_flexible:
                at = skip_tags(data, at)
    except Truncated:
        pass  # the rest has not arrived
    return 0
