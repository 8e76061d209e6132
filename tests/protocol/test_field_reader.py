"""Tests how a frame is read field by field."""

from struct import pack

import pytest

from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TooManyElements, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.field_reader import MAX_ELEMENTS, FieldReader, read_whole_head, response_reader
from kafka_quota_proxy.protocol.field_writer import framed, written_count
from kafka_quota_proxy.protocol.primitives import write_string, write_uvarint

METADATA = 3
BOTH_ENCODINGS = pytest.mark.parametrize("is_flexible", [False, True])


@pytest.mark.parametrize(("data", "is_flexible"), [(pack(">h", -2), False), (write_uvarint(0x8001), True)])
def test_a_string_of_an_impossible_length_is_refused(data: bytes, is_flexible: bool) -> None:
    with pytest.raises(MalformedLength):
        FieldReader(data + bytes(0x8000), 0, is_flexible=is_flexible).nullable_string()


def test_fixed_fields_are_read_in_order() -> None:
    reader = FieldReader(b"\x01\xff" + pack(">hi", -2, -3) + b"abc" + pack(">d", 1.5) + b"d", 0, is_flexible=False)

    assert (reader.boolean(), reader.int8(), reader.int16(), reader.int32()) == (True, -1, -2, -3)
    assert (reader.raw(3), reader.float64()) == (b"abc", 1.5)
    with pytest.raises(Truncated):
        reader.skip(2)


@BOTH_ENCODINGS
@pytest.mark.parametrize(("count", "is_null"), [(-1, True), (0, False), (3, False)])
def test_a_null_array_differs_from_an_empty_one(is_flexible: bool, count: int, is_null: bool) -> None:
    reader = FieldReader(written_count(count, is_flexible=is_flexible) + bytes(3), 0, is_flexible=is_flexible)

    assert reader.is_null_array() is is_null
    assert (reader.count(), reader.is_flexible) == (max(count, 0), is_flexible)


@BOTH_ENCODINGS
def test_bytes_are_read_or_stepped_over(is_flexible: bool) -> None:
    data = (write_uvarint(6) if is_flexible else pack(">i", 5)) + b"hello"
    null = b"\0" if is_flexible else pack(">i", -1)
    reader = FieldReader(data + data + null + null, 0, is_flexible=is_flexible)

    assert reader.bytes_field() == b"hello"
    reader.skip_bytes()
    reader.skip_bytes()
    with pytest.raises(MalformedLength):
        reader.bytes_field()


@BOTH_ENCODINGS
def test_arrays_of_numbers_are_stepped_over(is_flexible: bool) -> None:
    reader = FieldReader(written_count(2, is_flexible=is_flexible) + bytes(8), 0, is_flexible=is_flexible)

    reader.skip_fixed_elements(4)

    assert reader.at == len(reader.data)


@BOTH_ENCODINGS
def test_the_elements_of_all_arrays_together_are_limited(is_flexible: bool) -> None:
    half, one = (written_count(count, is_flexible=is_flexible) for count in (MAX_ELEMENTS // 2, 1))
    reader = FieldReader(half + half + one + bytes(MAX_ELEMENTS), 0, is_flexible=is_flexible)

    assert reader.count() + reader.count() == MAX_ELEMENTS
    with pytest.raises(TooManyElements):
        reader.count()


def test_tags_count_as_elements() -> None:
    count = MAX_ELEMENTS + 1
    tags = write_uvarint(count) + b"\x05\x00" * count

    with pytest.raises(TooManyElements):
        FieldReader(tags, 0, is_flexible=True).skip_tags()


def test_tags_are_stepped_over_in_the_flexible_encoding_only() -> None:
    data = b"\x01\x05\x02hi" + b"\x00"
    flexible, old = FieldReader(data, 0, is_flexible=True), FieldReader(data, 0, is_flexible=False)

    flexible.skip_tags()
    old.skip_tags()

    assert (flexible.at, old.at) == (5, 0)
    flexible.expect_end()
    with pytest.raises(TrailingBytes):
        old.expect_end()


@pytest.mark.parametrize(
    "frame", [b"", b"\0", pack(">i", 4), pack(">iib", 4, 7, 0), pack(">ih", 2, 7), pack(">ii", -1, 7)]
)
def test_a_response_that_is_not_one_whole_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        response_reader(frame, METADATA, 9)


def test_a_request_that_is_not_one_whole_frame_is_refused() -> None:
    frame = framed(pack(">hhi", METADATA, 8, 7), write_string(b"etl", is_compact=False), b"body")

    head = read_whole_head(frame)

    assert (head.api_key, head.client_id, head.body) == (METADATA, b"etl", len(frame) - 4)
    with pytest.raises(TrailingBytes):
        read_whole_head(frame + b"\0")
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_whole_head(frame[:size])
