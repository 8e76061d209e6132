"""Decodes the record batches in a Fetch response for a quota topic. No I/O, no clock."""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

from aiokafka.errors import KafkaError
from aiokafka.record import MemoryRecords

from kafka_quota_proxy.config.quota_record import FaultKind, RecordFault, decode
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord

# The largest size of a decompressed batch. Gzip compresses zeros a thousandfold, and a response may have 1 MiB.
MOST_DECOMPRESSED_BYTES: Final = 16 * 1_048_576

_OFFSET_AND_SIZE: Final = struct.Struct(">qi")
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22  # the lower byte of the attributes, in the format of Kafka 0.11
_RECORDS_AT: Final = 61
_OLD_ATTRIBUTES_AT: Final = 17
_CODEC: Final = 0x07
_NONE: Final = 0
_GZIP: Final = 1
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS


class RecordBatches:
    """Decodes the record batches in the response to a fetch that began at ``offset``.

    Attributes:
        next_offset: The offset from which to fetch next, once ``records`` has ended.
        is_within: Whether the batch of the record that was yielded last contains more records.
    """

    def __init__(self, data: bytes, offset: int) -> None:
        self.next_offset = offset
        self.is_within = False
        self._data = data

    def records(self) -> Iterator[TopicRecord]:
        """Yield the decoded records.

        If the first batch begins before the fetched offset, skip the records before that offset.

        Raises:
            KafkaError: A batch is damaged.
        """
        offset = self.next_offset
        for data in _whole(self._data):
            batch = MemoryRecords(data).next_batch()
            if not batch.validate_crc():
                raise KafkaError(f"the batch before offset {batch.next_offset} has a wrong checksum")
            if not batch.is_control_batch:
                records = (one for one in _decoded(batch, data) if one.offset >= offset)
                record = next(records, None)
                while record is not None:
                    following = next(records, None)
                    self.is_within = following is not None
                    yield record
                    record = following
            # Compaction may have removed the last records of the batch, or all of them.
            self.next_offset = max(self.next_offset, batch.next_offset)


def _whole(data: bytes) -> Iterator[bytes]:
    """Yield the bytes of each complete batch.

    An incomplete batch at the end is ignored, and the next fetch returns it.
    """
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


def _decoded(batch: Any, data: bytes) -> Iterator[TopicRecord]:  # noqa: ANN401 - aiokafka has no types
    message = _refusal(data)
    if message is not None:
        fault = RecordFault(kind=FaultKind.VALUE, key=f"a batch up to offset {batch.next_offset - 1}", message=message)
        yield TopicRecord(batch.next_offset - 1, fault)
        return
    for one in batch:
        yield TopicRecord(one.offset, decode(one.key, one.value))


def _refusal(data: bytes) -> str | None:
    """Return why the proxy does not decode a record batch because of its compression, or None if it does decode it."""
    is_old = data[_MAGIC_AT] < 2
    codec = data[_OLD_ATTRIBUTES_AT if is_old else _ATTRIBUTES_AT] & _CODEC
    if codec == _NONE:
        return None
    if codec != _GZIP or is_old:
        # With other codecs the decompressed size cannot be limited, and their libraries may not be installed.
        return "it is compressed, but not with gzip; write without compression, or with gzip"
    if _decompressed_bytes(data[_RECORDS_AT:]) > MOST_DECOMPRESSED_BYTES:
        return f"it has more than {MOST_DECOMPRESSED_BYTES} bytes when it is decompressed; write smaller batches"
    return None


def _decompressed_bytes(data: bytes) -> int:
    """Return the decompressed size of gzip data. Counting stops above ``MOST_DECOMPRESSED_BYTES``."""
    found = 0
    while data and found <= MOST_DECOMPRESSED_BYTES:
        member = zlib.decompressobj(_GZIP_WBITS)
        found += len(member.decompress(data, MOST_DECOMPRESSED_BYTES + 1 - found))
        # Several gzip members may follow one another, with zeros in between.
        data = member.unused_data.lstrip(b"\0")
    return found
