"""Tests how record batches are read, and which of them are not decompressed."""

import gzip
import tracemalloc

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from kafka_quota_proxy.config.quota_record import RecordFault, Setting, encode
from kafka_quota_proxy.proxy.rules.topic.record_batches import MOST_DECOMPRESSED_BYTES, RecordBatches
from tests.support.record_batches import batch, compressed, resealed

OTHER_CODEC = "it is compressed, but not with gzip; write without compression, or with gzip"


def rule(number: int) -> Setting:
    return Setting(user=f"u{number}", key="producer_byte_rate", value=1.0)


def read(data: bytes, offset: int = 0) -> tuple[list[tuple[int, Setting | str]], int]:
    batches = RecordBatches(data, offset)
    found = [
        (one.offset, str(one.record) if isinstance(one.record, RecordFault) else one.record)
        for one in batches.records()
    ]
    return found, batches.next_offset


def old(magic: int, codec: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 100_000)
    key, value = encode(rule(0))
    builder.append(0, timestamp=5, key=key, value=value)
    return bytes(builder.build())


def test_the_last_record_of_a_compacted_batch_ends_it() -> None:
    batches = RecordBatches(
        batch(0, rule(0), rule(1), gaps=3) + batch(5, rule(5)) + batch(6, rule(6), rule(7)), offset=1
    )

    assert [(one.offset, batches.is_within) for one in batches.records()] == [
        (1, False), (5, False), (6, True), (7, False),
    ]  # fmt: skip


def test_a_truncated_batch_is_left_for_the_next_answer() -> None:
    whole, cut = batch(0, rule(0)), batch(1, rule(1))

    for size in (1, 11, 12, 30, len(cut) - 1):
        assert read(whole + cut[:size]) == ([(0, rule(0))], 1)


@pytest.mark.parametrize("size", [-1, -12, -(2**31), 0, 3])
def test_an_impossible_batch_size_is_an_error(size: int) -> None:
    data = bytearray(batch(0, rule(0)))
    data[8:12] = size.to_bytes(4, "big", signed=True)

    with pytest.raises(Exception, match=r"a batch has -\d+ bytes|less than the minimum"):
        read(bytes(data))


def test_a_batch_that_would_grow_without_bound_is_not_decompressed() -> None:
    bomb = compressed(batch(0, rule(0), rule(1)), records=bytes(5 * MOST_DECOMPRESSED_BYTES))
    data = bomb + batch(2, rule(2))
    assert len(data) < 1_048_576

    tracemalloc.start()
    found = read(data)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    message = "it has more than 16777216 bytes when it is decompressed; write smaller batches"
    assert found == ([(1, f"value of a batch up to offset 1: {message}"), (2, rule(2))], 3)
    assert most_bytes < 4 * MOST_DECOMPRESSED_BYTES


def test_many_small_gzip_members_are_not_decompressed_without_bound() -> None:
    member = gzip.compress(bytes(1_048_576))
    bomb = compressed(batch(0, rule(0)))[:61] + 17 * member
    sized = bytearray(bomb)
    sized[8:12] = (len(sized) - 12).to_bytes(4, "big")
    ((_, fault),), _ = read(resealed(sized))

    assert "more than 16777216 bytes" in str(fault)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_read_if_uncompressed(magic: int) -> None:
    assert read(old(magic, 0)) == ([(0, rule(0))], 1)
    assert read(old(magic, 1)) == ([(0, f"value of a batch up to offset 0: {OTHER_CODEC}")], 1)
