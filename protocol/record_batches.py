"""Finds the ends of record batches from their length fields alone.

    batch      int64 base_offset, int32 length of the following bytes, ...

Messages in the older formats (magic 0 and 1) begin with the same fields.

Source: ``DefaultRecordBatch``, ``LegacyRecord`` in Apache Kafka.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.primitives import Buffer

_LENGTH: Final = Struct(">8xi").unpack_from
_FRONT_BYTES: Final = 12
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
