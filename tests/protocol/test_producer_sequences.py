"""Tests reading the sequence numbers of idempotent producers, against kio's requests and aiokafka's record batches."""

from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.producer_sequences import ProducerBatch, read_producer_batches
from tests.protocol.support import kio_messages
from tests.support.controller import element, filled
from tests.support.frames import framed, request_header

PRODUCE = 0
TOPIC_ID = UUID(int=5)


def record_batch(producer_id: int, epoch: int, sequence: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, epoch, sequence, 10_000)
    builder.append(0, 1_000, b"key", b"value", [])
    return bytes(builder.build())


def produce(version: int, **records: tuple[bytes | None, ...]) -> bytes:
    """Return a Produce with the records of the partitions 0, 1, ... of each topic."""
    cls = kio_messages.request_class(PRODUCE, version)
    topic_cls = element(cls, "topic_data")
    partition_cls = element(topic_cls, "partition_data")
    topics = tuple(
        filled(
            topic_cls,
            **({"topic_id": TOPIC_ID} if version >= 13 else {"name": name}),
            partition_data=tuple(filled(partition_cls, index=at, records=one) for at, one in enumerate(partitions)),
        )
        for name, partitions in records.items()
    )
    return kio_messages.request_frame(filled(cls, transactional_id="tx", acks=-1, topic_data=topics))


@pytest.mark.parametrize("version", range(3, 14))
def test_idempotent_batches_are_read(version: int) -> None:
    frame = produce(
        version, orders=(record_batch(7, 2, 2**31 - 1), None, record_batch(-1, -1, -1), record_batch(7, 2, 0))
    )

    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    assert read_producer_batches(frame) == [
        ProducerBatch(topic, 0, 7, 2, 2**31 - 1),
        ProducerBatch(topic, 3, 7, 2, 0),
    ]


def test_records_of_an_older_format_have_no_sequence() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 10_000)
    builder.append(0, timestamp=1, key=b"key", value=bytes(100))

    assert read_producer_batches(produce(3, one=(bytes(builder.build()), record_batch(7, 0, 1)[:60]))) == []


def test_older_versions_have_no_sequences() -> None:
    assert read_producer_batches(framed(request_header(PRODUCE, 2, 1, "etl", is_flexible=False) + b"?")) == []


@given(version=st.integers(0, 13), data=st.binary(max_size=200))
def test_any_bytes_give_batches_or_an_error(version: int, data: bytes) -> None:
    frame = framed(request_header(PRODUCE, version, 1, "etl", is_flexible=version >= 9) + data)

    try:
        batches = read_producer_batches(frame)
    except ProtocolError:
        return
    assert all(batch.producer_id >= 0 for batch in batches)
