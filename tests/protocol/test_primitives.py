"""Tests Kafka's primitive types, against the writers of kio and aiokafka."""

import io
from collections.abc import Callable

import pytest
from aiokafka.protocol import types as aiokafka_types
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers
from kio.static.primitive import uvarint

from kafka_quota_proxy.protocol import primitives
from kafka_quota_proxy.protocol.errors import MalformedLength, MalformedVarint, Truncated
from kafka_quota_proxy.protocol.primitives import read_uvarint, skip_tags, write_uvarint

TAGS = st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=200), max_size=5)


def encoded_tags(tags: dict[int, bytes]) -> bytes:
    return write_uvarint(len(tags)) + b"".join(
        write_uvarint(tag) + write_uvarint(len(value)) + value for tag, value in sorted(tags.items())
    )


@given(value=st.integers(0, 2**32 - 1), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_written_varint_is_read(value: int, before: bytes, after: bytes) -> None:
    encoded = write_uvarint(value)

    assert read_uvarint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(value=st.integers(0, 2**31 - 1))
def test_a_varint_is_written_as_by_kio(value: int) -> None:
    buffer = io.BytesIO()
    writers.write_unsigned_varint(buffer, uvarint(value))

    assert write_uvarint(value) == buffer.getvalue()


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x10", b"\x80" * 99]
)
def test_a_varint_of_more_than_32_bits_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedVarint):
        read_uvarint(data, 0)


def test_padded_varint_is_read_as_kafka_reads_it() -> None:
    """Kafka's ``ByteUtils.readUnsignedVarint`` takes up to five bytes for any value."""
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)


@given(text=st.text(max_size=100) | st.none())
def test_a_string_ends_where_the_next_field_begins(text: str | None) -> None:
    plain = aiokafka_types.String("utf-8").encode(text)
    compact = aiokafka_types.CompactString("utf-8").encode(text)

    assert primitives.skip_string(b"." + plain + b"..", 1) == 1 + len(plain)
    assert primitives.skip_compact_string(b"." + compact + b"..", 1) == 1 + len(compact)


@given(value=st.binary(max_size=300) | st.none())
def test_bytes_end_where_the_next_field_begins(value: bytes | None) -> None:
    plain = aiokafka_types.Bytes.encode(value)

    assert primitives.skip_bytes(b"." + plain + b"..", 1) == 1 + len(plain)


@given(tags=TAGS, after=st.binary(max_size=3))
def test_tags_end_where_the_next_field_begins(tags: dict[int, bytes], after: bytes) -> None:
    encoded = encoded_tags(tags)

    assert skip_tags(b"." + encoded + after, 1) == 1 + len(encoded)


@given(tags=TAGS, data=st.data())
def test_tags_cut_anywhere_are_truncated(tags: dict[int, bytes], data: st.DataObject) -> None:
    encoded = encoded_tags(tags)
    cut = data.draw(st.integers(0, len(encoded) - 1))

    with pytest.raises(Truncated):
        skip_tags(encoded[:cut], 0)


@pytest.mark.parametrize(
    ("skip", "data"),
    [
        (primitives.skip_string, b"\xff\xfe" + bytes(99)),
        (primitives.skip_bytes, b"\xff\xff\xff\xfe" + bytes(99)),
        (primitives.skip_compact_string, write_uvarint(0x8001) + bytes(0x8001)),
    ],
)
def test_length_that_kafka_refuses_is_malformed(skip: Callable[[bytes, int], int], data: bytes) -> None:
    """Source: the code that Kafka's ``MessageDataGenerator`` generates."""
    with pytest.raises(MalformedLength):
        skip(data, 0)


def test_the_longest_string_is_32_767_bytes_long() -> None:
    assert primitives.skip_compact_string(write_uvarint(0x8000) + bytes(0x7FFF), 0) == 3 + 0x7FFF


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"\xff\xff\xff\xff", 0), (b"\x00\x00\x00\x00", 0), (b"\x00\x00\x00\x02ab", 2)],
)
def test_a_null_array_counts_as_an_empty_one(data: bytes, count: int) -> None:
    assert primitives.read_array_count(data, 0) == (count, 4)


@pytest.mark.parametrize(("data", "count"), [(b"\x00", 0), (b"\x01", 0), (b"\x03ab", 2)])
def test_a_null_compact_array_counts_as_an_empty_one(data: bytes, count: int) -> None:
    assert primitives.read_compact_array_count(data, 0) == (count, 1)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (primitives.read_array_count, b"\xff\xff\xff\xfe"),
        (primitives.read_array_count, b"\x7f\xff\xff\xff" + bytes(99)),
        (primitives.read_array_count, b"\x00\x00\x00\x03ab"),
        (primitives.read_compact_array_count, b"\xff\xff\xff\xff\x0f" + bytes(99)),
        (primitives.read_compact_array_count, b"\x04ab"),
    ],
)
def test_an_array_of_more_elements_than_bytes_is_malformed(
    read: Callable[[bytes, int], tuple[int, int]], data: bytes
) -> None:
    with pytest.raises(MalformedLength):
        read(data, 0)


def test_four_billion_tags_in_a_few_bytes_fail_at_once() -> None:
    with pytest.raises(Truncated):
        skip_tags(b"\xff\xff\xff\xff\x0f" + bytes(8), 0)
