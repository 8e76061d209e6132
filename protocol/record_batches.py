"""Where record batches end, found by their lengths alone.

    batch      int64 base_offset, int32 length of the following bytes, ...

A message of magic 0 or 1 begins in the same way.

Source: ``DefaultRecordBatch``, ``LegacyRecord`` in Apache Kafka.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.primitives import Buffer

_LENGTH: Final = Struct(">8xi").unpack_from
_FRONT_BYTES: Final = 12
# Kafka rejects a shorter length as corrupt: crc, magic, attributes, and the lengths of key and value of magic 0.
_SHORTEST_BYTES: Final = 4 + 1 + 1 + 4 + 4


def end_of_whole_batches(data: Buffer, begin: int, end: int) -> int:
    """Return the end of the last whole batch; ``begin`` if not even the first is whole.

    A batch of an impossible length counts as incomplete.
    """
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
    """Return the size of the batch at ``begin`` as its length says, even if that is beyond ``end``.

    0 if its length is incomplete or impossible.
    """
    if begin + _FRONT_BYTES > end:
        return 0
    return max(_FRONT_BYTES + int(_LENGTH(data, begin)[0]), 0)
