"""Tests where record batches end, against kafka-python."""

from itertools import accumulate
from struct import pack

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecordsBuilder

from kafka_quota_proxy.protocol.record_batches import end_of_whole_batches, first_batch_size, size_and_next_offset
from tests.support.cases import each_case


def batch_bytes(magic: int, value_bytes: int) -> bytes:
    """Return a batch of one record, or a message of magic 0 or 1, as kafka-python writes it."""
    builder = MemoryRecordsBuilder(magic=magic, compression_type=0, batch_size=1_000_000)
    builder.append(key=None, value=bytes(value_bytes), timestamp=1_700_000_000_000 if magic else None)
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.parametrize("magic", [0, 1, 2])
@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=9), cut_at=st.integers(0, 5_000), begin=st.integers(0, 9)
)
@example(sizes=[30] * 9, cut_at=190, begin=0)
def test_only_whole_batches_are_taken(magic: int, sizes: list[int], cut_at: int, begin: int) -> None:
    """A broker cuts records off at ``partition_max_bytes``, so the last batch may be incomplete (V45)."""
    batches = [batch_bytes(magic, size) for size in sizes]
    edges = [begin, *accumulate(map(len, batches), initial=begin)]
    data = bytes(begin) + b"".join(batches)
    end = min(begin + cut_at, len(data))

    whole = end_of_whole_batches(data, begin, end)

    assert whole == max(edge for edge in edges if edge <= end)
    assert end_of_whole_batches(data[:end], begin, end) == whole
    assert end_of_whole_batches(memoryview(data), begin, end) == whole


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_size_and_next_offset_include_a_batch_that_is_cut(magic: int) -> None:
    builder = MemoryRecordsBuilder(magic=magic, compression_type=0, batch_size=1_000_000)
    for _ in range(3):
        builder.append(key=None, value=bytes(20), timestamp=1_700_000_000_000 if magic else None)
    builder.close()
    first = bytes(builder.buffer())  # one batch of three records, or three messages
    second = pack(">q", 70) + batch_bytes(magic, 50)[8:]
    data = b"?" * 5 + first + second + second

    assert size_and_next_offset(data, 5, 5 + len(first)) == (len(first), 3)
    assert size_and_next_offset(data, 5, 5 + len(first) + 26) == (len(first), 3)
    assert size_and_next_offset(data, 5, 5 + len(first) + 27) == (len(first + second), 71)
    assert size_and_next_offset(memoryview(data), 5, len(data)) == (len(first + second + second), 71)
    assert size_and_next_offset(data, 5, 31) == (0, 0)
    assert size_and_next_offset(pack(">qi", 0, 13) + bytes(60), 0, 72) == (0, 0)


def test_batches_of_all_magics_may_be_mixed() -> None:
    data = b"".join(batch_bytes(magic, 10) for magic in (2, 0, 1, 2))

    assert end_of_whole_batches(data, 0, len(data)) == len(data)
    assert end_of_whole_batches(data, 0, len(data) - 1) == len(data) - len(batch_bytes(2, 10))


@each_case("length", [-(2**31), -13, -12, -1, 0, 1, 13, 100, 2**31 - 1])
def test_a_batch_of_an_impossible_length_is_not_whole(length: int) -> None:
    first = batch_bytes(2, 10)
    data = first + pack(">qi", 1, length) + bytes(60)

    assert end_of_whole_batches(data, 0, len(data)) == len(first)
    assert end_of_whole_batches(data, len(first), len(data)) == len(first)


def test_the_shortest_message_is_whole() -> None:
    """Kafka's ``LegacyRecord.RECORD_OVERHEAD_V0`` is 14 bytes, without key and value."""
    data = pack(">qi", 0, 14) + bytes(14)

    assert end_of_whole_batches(data, 0, len(data)) == 26
    assert end_of_whole_batches(data, 0, 25) == 0


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_size_of_a_truncated_first_batch_is_read(magic: int) -> None:
    batch = batch_bytes(magic, 10)

    for end in range(len(batch) + 20):
        size_bytes = first_batch_size(b"?" * 5 + batch + bytes(20), 5, 5 + end)
        assert size_bytes == (len(batch) if end >= 12 else 0)


@pytest.mark.parametrize(("length", "size_bytes"), [(-(2**31), 0), (-13, 0), (-12, 0), (2**31 - 1, 2**31 + 11)])
def test_impossible_size_of_the_first_batch_is_0(length: int, size_bytes: int) -> None:
    assert first_batch_size(pack(">qi", 0, length), 0, 12) == size_bytes
