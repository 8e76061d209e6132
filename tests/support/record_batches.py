"""Writes the record batches of a quota topic as a broker stores them."""

import gzip

from aiokafka.record._crc32c import crc
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kafka_quota_proxy.config.quota_record import Setting, encode

_RECORDS_AT = 61


def batch(first_offset: int, *records: Setting, gaps: int = 0, is_control: bool = False) -> bytes:
    """Return an uncompressed batch. It ends with ``gaps`` offsets that have no record, as after compaction."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1_000_000)
    for offset, record in enumerate(records):
        key, value = encode(record)
        builder.append(offset, 1_000 + first_offset + offset, key, value, [])
    data = bytearray(builder.build())
    data[0:8] = first_offset.to_bytes(8, "big")
    data[23:27] = (len(records) - 1 + gaps).to_bytes(4, "big", signed=True)
    data[22] |= 0x20 if is_control else 0
    return resealed(data)


def compressed(data: bytes, *, codec: int = 1, records: bytes | None = None) -> bytes:
    """Return the batch with its records, or with ``records``, in gzip. Its header names the codec ``codec``."""
    packed = bytearray(data[:_RECORDS_AT] + gzip.compress(data[_RECORDS_AT:] if records is None else records))
    packed[22] |= codec
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    return resealed(packed)


def resealed(data: bytearray) -> bytes:
    """Return the batch with the checksum of its content."""
    data[17:21] = crc(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)
