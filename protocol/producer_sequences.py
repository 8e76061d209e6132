"""Reads the sequence numbers of an idempotent producer (KIP-98) from a Produce request.

    batch      int64 base_offset, int32 length, int32 partition_leader_epoch, int8 magic, uint32 crc, int16 attributes,
               int32 last_offset_delta, int64 base_timestamp, int64 max_timestamp,
               int64 producer_id, int16 producer_epoch, int32 base_sequence, ...

Since Produce v3, the records of a partition are one batch.

Source: ``DefaultRecordBatch`` and ProduceRequest.json in Apache Kafka.
"""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.codec import read_fields, read_whole_head

_FIRST_BATCHES: Final = 3
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
    (*_, topics), _ = read_fields(frame, head.body, ApiKey.PRODUCE, head.api_version, "request")
    batches = []
    for name, topic_id, partitions in topics:
        for partition, records in partitions:
            if records is not None and len(records) >= _HEAD_BYTES and records[_MAGIC_AT] == _MAGIC:
                producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
                if producer_id >= 0 and sequence >= 0:
                    topic = name if topic_id is None else topic_id
                    batches.append(ProducerBatch(topic, partition, producer_id, epoch, sequence))
    return batches
