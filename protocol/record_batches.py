"""Finds the ends of record batches and the offsets in them, from the first fields of each batch.

    batch      int64 base_offset, int32 length of the following bytes, int32 partition_leader_epoch, int8 magic,
               int32 crc, int16 attributes, int32 last_offset_delta, ...
    message    int64 offset, int32 length of the following bytes, int32 crc, int8 magic, ...

Messages are batches in the older formats, with a magic of 0 or 1.

Source: ``DefaultRecordBatch``, ``LegacyRecord`` in Apache Kafka.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.primitives import Buffer

_LENGTH: Final = Struct(">8xi").unpack_from
_FRONT_BYTES: Final = 12
_OFFSETS: Final = Struct(">q8xb6xi")  # base_offset, magic, last_offset_delta
_FIRST_WITH_DELTA: Final = 2
# Kafka rejects a shorter length as corrupt. In magic 0 these are crc, magic, attributes, key length and value length.
_SHORTEST_BYTES: Final = 4 + 1 + 1 + 4 + 4


def end_of_whole_batches(data: Buffer, begin: int, end: int) -> int:
    """Return the end of the last whole batch, or ``begin`` if even the first is incomplete or malformed."""
    length_of = _LENGTH
    last = end - _FRONT_BYTES - _SHORTEST_BYTES
    at = begin
    while at <= last:
        (length,) = length_of(data, at)
        after = at + _FRONT_BYTES + length
        if length < _SHORTEST_BYTES or after > end:
            break
        at = after
    return at


def first_batch_size(data: Buffer, begin: int, end: int) -> int:
    """Return the size of the record batch at ``begin``. The batch may extend beyond ``end``, where the data ends.

    The size is 0 if the length field of the batch is incomplete or impossible.
    """
    if begin + _FRONT_BYTES > end:
        return 0
    return max(_FRONT_BYTES + int(_LENGTH(data, begin)[0]), 0)


def size_and_next_offset(data: Buffer, begin: int, end: int) -> tuple[int, int]:
    """Return the size of all batches at ``begin``, and the offset that follows their records.

    The last of these batches may extend beyond ``end``, where the data ends. Both numbers are 0 if the first batch is
    malformed, or if the data ends within its first fields.
    """
    length_of = _LENGTH
    last = end - _OFFSETS.size
    at, first_fields_at = begin, -1
    while at <= last:
        (length,) = length_of(data, at)
        if length < _SHORTEST_BYTES:
            break
        first_fields_at = at
        at += _FRONT_BYTES + length
    if first_fields_at < 0:
        return 0, 0
    offset, magic, delta = _OFFSETS.unpack_from(data, first_fields_at)
    return at - begin, offset + (delta if magic >= _FIRST_WITH_DELTA else 0) + 1
