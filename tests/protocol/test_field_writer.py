"""Tests how a frame is written field by field."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.errors import MalformedLength
from kafka_quota_proxy.protocol.field_reader import FieldReader, response_reader
from kafka_quota_proxy.protocol.field_writer import FieldWriter, request_writer, response_writer
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head

METADATA, API_VERSIONS = 3, 18


@pytest.mark.parametrize("is_flexible", [False, True])
@given(value=st.one_of(st.none(), st.binary(max_size=300)), before=st.binary(max_size=3))
def test_a_written_string_is_read(is_flexible: bool, value: bytes | None, before: bytes) -> None:
    writer = FieldWriter(is_flexible=is_flexible)
    writer.raw(before)
    writer.string(value)
    data, at = writer.frame(), 4 + len(before)

    reader = FieldReader(data, at, is_flexible=is_flexible)

    assert reader.nullable_string() == value
    assert reader.at == len(data)
    if value is None:
        with pytest.raises(MalformedLength):
            FieldReader(data, at, is_flexible=is_flexible).string()
    else:
        assert FieldReader(data, at, is_flexible=is_flexible).string() == value


@pytest.mark.parametrize(
    ("api_key", "version", "tags"), [(METADATA, 8, b""), (METADATA, 9, b"\0"), (API_VERSIONS, 3, b"")]
)
def test_a_response_has_the_header_of_its_version(api_key: int, version: int, tags: bytes) -> None:
    writer = response_writer(-7, api_key, version)
    writer.raw(b"body")
    frame = writer.frame()

    assert frame == pack(">ii", 8 + len(tags), -7) + tags + b"body"
    reader = response_reader(frame, api_key, version)
    assert reader.raw(4) == b"body"
    assert reader.is_flexible == (version in (9, 3))


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("client_id", [None, b"etl"])
def test_a_request_has_the_header_of_its_version(version: int, client_id: bytes | None) -> None:
    writer = request_writer(METADATA, version, -7, client_id)
    writer.raw(b"body")
    frame = writer.frame()

    head = read_request_head(frame, 0, 100)

    assert head == RequestHead(len(frame) - 4, METADATA, version, -7, client_id or b"", len(frame) - 4)
