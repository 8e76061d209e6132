"""From field to field through a frame; what is read and written here is tested with each message, too."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TooManyElements, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.field_reader import (
    MAX_ELEMENTS,
    FieldReader,
    framed,
    read_whole_head,
    response_header,
    response_reader,
    written_count,
    written_nullable,
)
from kafka_quota_proxy.protocol.primitives import write_string, write_uvarint

BOTH = pytest.mark.parametrize("is_flexible", [False, True])
METADATA, API_VERSIONS = 3, 18


@BOTH
@given(value=st.one_of(st.none(), st.binary(max_size=300)), before=st.binary(max_size=3))
def test_a_string_that_was_written_is_read(is_flexible: bool, value: bytes | None, before: bytes) -> None:
    data = before + written_nullable(value, is_flexible=is_flexible)

    walk = FieldReader(data, len(before), is_flexible=is_flexible)

    assert walk.nullable_string() == value
    assert walk.at == len(data)
    if value is None:
        with pytest.raises(MalformedLength):
            FieldReader(data, len(before), is_flexible=is_flexible).string()
    else:
        assert FieldReader(data, len(before), is_flexible=is_flexible).string() == value


@pytest.mark.parametrize(("data", "is_flexible"), [(pack(">h", -2), False), (write_uvarint(0x8001), True)])
def test_a_string_of_an_impossible_length_is_refused(data: bytes, is_flexible: bool) -> None:
    with pytest.raises(MalformedLength):
        FieldReader(data + bytes(0x8000), 0, is_flexible=is_flexible).nullable_string()


def test_fixed_fields_are_read_in_order() -> None:
    walk = FieldReader(b"\x01" + pack(">hi", -2, -3) + b"abcd", 0, is_flexible=False)

    assert (walk.boolean(), walk.int16(), walk.int32(), walk.take(3)) == (True, -2, -3, b"abc")
    with pytest.raises(Truncated):
        walk.skip(2)


@BOTH
@pytest.mark.parametrize(("count", "is_null"), [(-1, True), (0, False), (3, False)])
def test_an_array_that_is_null_is_told_from_an_empty_one(is_flexible: bool, count: int, is_null: bool) -> None:
    walk = FieldReader(written_count(count, is_flexible=is_flexible) + bytes(3), 0, is_flexible=is_flexible)

    assert walk.is_null_array() is is_null
    assert (walk.count(), walk.is_flexible) == (max(count, 0), is_flexible)


@BOTH
def test_bytes_and_arrays_of_numbers_are_stepped_over(is_flexible: bool) -> None:
    length = write_uvarint(6) if is_flexible else pack(">i", 5)
    array = written_count(2, is_flexible=is_flexible) + bytes(8)
    walk = FieldReader(length + b"hello" + array, 0, is_flexible=is_flexible)

    walk.skip_bytes()
    walk.skip_fixed(4)

    assert walk.at == len(walk.data)


@BOTH
def test_all_arrays_together_have_no_more_elements_than_anyone_needs(is_flexible: bool) -> None:
    half = written_count(MAX_ELEMENTS // 2, is_flexible=is_flexible)
    walk = FieldReader(
        half + half + written_count(1, is_flexible=is_flexible) + bytes(MAX_ELEMENTS), 0, is_flexible=is_flexible
    )

    assert walk.count() + walk.count() == MAX_ELEMENTS
    with pytest.raises(TooManyElements):
        walk.count()


def test_tags_count_as_elements() -> None:
    count = MAX_ELEMENTS + 1
    tags = write_uvarint(count) + b"\x05\x00" * count

    with pytest.raises(TooManyElements):
        FieldReader(tags, 0, is_flexible=True).tags()


def test_tags_are_stepped_over_where_the_encoding_has_them() -> None:
    data = b"\x01\x05\x02hi" + b"\x00"
    flexible, old = FieldReader(data, 0, is_flexible=True), FieldReader(data, 0, is_flexible=False)

    flexible.tags()
    old.tags()

    assert (flexible.at, old.at) == (5, 0)
    flexible.end()
    with pytest.raises(TrailingBytes):
        old.end()


@pytest.mark.parametrize(
    ("api_key", "version", "tags"), [(METADATA, 8, b""), (METADATA, 9, b"\0"), (API_VERSIONS, 3, b"")]
)
def test_a_response_has_the_header_of_its_version(api_key: int, version: int, tags: bytes) -> None:
    frame = framed([response_header(-7, api_key, version), b"body"])

    assert frame == pack(">ii", 8 + len(tags), -7) + tags + b"body"
    walk = response_reader(frame, api_key, version)
    assert walk.take(4) == b"body"
    assert walk.is_flexible == (version in (9, 3))


@pytest.mark.parametrize(
    "frame", [b"", b"\0", pack(">i", 4), pack(">iib", 4, 7, 0), pack(">ih", 2, 7), pack(">ii", -1, 7)]
)
def test_a_response_that_is_not_one_whole_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        response_reader(frame, METADATA, 9)


def test_a_request_is_there_as_a_whole_and_alone() -> None:
    frame = framed([pack(">hhi", METADATA, 8, 7), write_string(b"etl", is_compact=False), b"body"])

    head = read_whole_head(frame)

    assert (head.api_key, head.client_id, head.body) == (METADATA, b"etl", len(frame) - 4)
    with pytest.raises(TrailingBytes):
        read_whole_head(frame + b"\0")
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_whole_head(frame[:size])
