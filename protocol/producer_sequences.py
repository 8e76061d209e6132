"""Reads the sequence numbers of an idempotent producer (KIP-98) from a Produce request.

    batch      int64 base_offset, int32 length, int32 partition_leader_epoch, int8 magic, uint32 crc, int16 attributes,
               int32 last_offset_delta, int64 base_timestamp, int64 max_timestamp,
               int64 producer_id, int16 producer_epoch, int32 base_sequence, ...

Since Produce v3, the records of a partition are one batch.

Source: ``DefaultRecordBatch`` and ProduceRequest.json in Apache Kafka.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.field_reader import FieldReader, read_whole_head, request_reader
from kafka_quota_proxy.protocol.primitives import read_int32, read_uvarint

_FIRST_BATCHES: Final = 3
_FIRST_TOPIC_ID: Final = 13
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_PRODUCER_AT: Final = 43
_PRODUCER: Final = Struct(">qhi")
_HEAD_BYTES: Final = 61


class ProducerBatch(NamedTuple):
    """The batch of an idempotent producer for one partition. ``topic`` is the topic's name, or its id since v13."""

    topic: bytes
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def read_producer_batches(frame: bytes) -> list[ProducerBatch]:
    """Return the batches of idempotent producers in a whole Produce request. Others are left out."""
    head = read_whole_head(frame)
    if head.api_version < _FIRST_BATCHES:
        return []
    reader = request_reader(frame, head)
    reader.nullable_string()  # transactional_id
    reader.skip(2 + 4)  # acks, timeout_ms
    return list(_batches(reader, has_ids=head.api_version >= _FIRST_TOPIC_ID))


def _batches(reader: FieldReader, *, has_ids: bool) -> Iterator[ProducerBatch]:
    for _ in range(reader.count()):
        topic = reader.raw(16) if has_ids else reader.string()
        for _ in range(reader.count()):
            partition = reader.int32()
            length, begin = (read_uvarint if reader.is_flexible else read_int32)(reader.data, reader.at)
            length -= reader.is_flexible
            reader.skip_bytes()  # records
            if length >= _HEAD_BYTES and reader.data[begin + _MAGIC_AT] == _MAGIC:
                producer_id, epoch, sequence = _PRODUCER.unpack_from(reader.data, begin + _PRODUCER_AT)
                if producer_id >= 0 and sequence >= 0:
                    yield ProducerBatch(topic, partition, producer_id, epoch, sequence)
            reader.skip_tags()
        reader.skip_tags()
