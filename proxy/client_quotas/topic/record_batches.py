"""The record batches of an answer to a fetch, as records of a quota topic: bytes in, no I/O, no clock.

Imported only where a topic is configured, for it loads aiokafka.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

from aiokafka.errors import KafkaError
from aiokafka.record import MemoryRecords

from kafka_quota_proxy.config.quota_record import FaultKind, RecordFault, decode
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import TopicRecord

# Of one batch. Gzip makes a thousandth of what is all alike, and an answer may have 1 MiB.
MOST_DECOMPRESSED_BYTES: Final = 16 * 1_048_576

_OFFSET_AND_SIZE: Final = struct.Struct(">qi")
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22  # the lower half, of the format of Kafka 0.11
_RECORDS_AT: Final = 61
_OLD_ATTRIBUTES_AT: Final = 17
_CODEC: Final = 0x07
_NONE: Final = 0
_GZIP: Final = 1
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS


class RecordBatches:
    """The batches of one answer that was asked for from ``offset`` on. ``next_offset`` is behind what was gone through.

    ``is_within``: of the batch that the last record is in there are others behind it.

    Raises, when gone through:
        Exception: They are damaged.
    """

    def __init__(self, data: bytes, offset: int) -> None:
        self.next_offset = offset
        self.is_within = False
        self._data = data

    def records(self) -> Iterator[TopicRecord]:
        """Yield them, decoded; those that were asked for only, for a batch may begin before them."""
        offset = self.next_offset
        for data in _whole(self._data):
            batch = MemoryRecords(data).next_batch()
            if not batch.validate_crc():
                raise KafkaError(f"the batch before offset {batch.next_offset} has a wrong checksum")
            if not batch.is_control_batch:
                some = (one for one in _decoded(batch, data) if one.offset >= offset)
                one = next(some, None)
                while one is not None:
                    following = next(some, None)
                    self.is_within = following is not None
                    yield one
                    one = following
            # Also where compaction has left nothing of it.
            self.next_offset = max(self.next_offset, batch.next_offset)


def _whole(data: bytes) -> Iterator[bytes]:
    """Yield the bytes of each batch; the last one of an answer may be cut off, and is asked for again."""
    start = 0
    while start + _OFFSET_AND_SIZE.size <= len(data):
        _, size_bytes = _OFFSET_AND_SIZE.unpack_from(data, start)
        end = start + _OFFSET_AND_SIZE.size + size_bytes
        if size_bytes < 0:
            raise KafkaError(f"a batch has {size_bytes} bytes")
        if end > len(data):
            return
        yield data[start:end]
        start = end


def _decoded(batch: Any, data: bytes) -> Iterator[TopicRecord]:  # noqa: ANN401 - of a library without types
    message = _refusal(data)
    if message is not None:
        fault = RecordFault(kind=FaultKind.VALUE, key=f"a batch up to offset {batch.next_offset - 1}", message=message)
        yield TopicRecord(batch.next_offset - 1, 0, fault)
        return
    for one in batch:
        # Before Kafka 0.10 there was no timestamp.
        yield TopicRecord(one.offset, one.timestamp or 0, decode(one.key, one.value))


def _refusal(data: bytes) -> str | None:
    """Return why a batch is not to be decompressed; None where it may be."""
    is_old = data[_MAGIC_AT] < 2
    codec = data[_OLD_ATTRIBUTES_AT if is_old else _ATTRIBUTES_AT] & _CODEC
    if codec == _NONE:
        return None
    if codec != _GZIP or is_old:
        # The others would be decompressed without a bound, where their libraries happen to be installed.
        return "it is compressed by other means than gzip; write without compression, or with gzip"
    if _decompressed_bytes(data[_RECORDS_AT:]) > MOST_DECOMPRESSED_BYTES:
        return f"it has more than {MOST_DECOMPRESSED_BYTES} bytes when it is decompressed; write smaller batches"
    return None


def _decompressed_bytes(data: bytes) -> int:
    """Return how many bytes gzip makes of it, or that there are too many; no more are made to find out."""
    found = 0
    while data and found <= MOST_DECOMPRESSED_BYTES:
        member = zlib.decompressobj(_GZIP_WBITS)
        found += len(member.decompress(data, MOST_DECOMPRESSED_BYTES + 1 - found))
        # Several may stand one behind the other, with zeros in between.
        data = member.unused_data.lstrip(b"\0")
    return found
