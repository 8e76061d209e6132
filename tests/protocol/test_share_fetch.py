"""Tests the limits of ShareFetch requests and the charge of responses. kio writes all versions but v0."""

import struct
from dataclasses import replace

import pytest
from kio.serial import entity_reader

from kafka_quota_proxy.protocol.errors import FrameTooSmall, MalformedLength
from kafka_quota_proxy.protocol.fetch import FetchLimits
from kafka_quota_proxy.protocol.share_fetch import charged_bytes, read_limits, without_records
from tests.protocol.support import kio_messages

SHARE_FETCH = 78
VERSIONS = range(3)
KIO_VERSIONS = (1, 2)
MAX_WAIT_MS, MIN_BYTES, MAX_BYTES = 0x1F4, 0x5EA, 0x5EAF00D
EARLY_ACCESS = b"\x06group\x07member" + struct.pack(">iiii", 3, MAX_WAIT_MS, MIN_BYTES, MAX_BYTES) + b"\x01\x01\x00"


def request_body(version: int, *, group_id: str | None = "group", member_id: str | None = "member") -> bytes:
    """Return the body of a request. In v0 the body is always the same."""
    if version == 0:
        return EARLY_ACCESS
    values = {
        "group_id": group_id,
        "member_id": member_id,
        "max_wait": kio_messages.milliseconds(MAX_WAIT_MS),
        "min_bytes": MIN_BYTES,
        "max_bytes": MAX_BYTES,
    }
    return kio_messages.encode(kio_messages.example(kio_messages.request_class(SHARE_FETCH, version), values))


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_are_read_as_soon_as_they_arrive(version: int) -> None:
    body = request_body(version)

    limits = read_limits(body, 0, version, end=len(body))

    at = body.index(MAX_BYTES.to_bytes(4, "big"))
    needed = at + (8 if version else 4)  # max_records is behind it
    assert limits == FetchLimits(at - 4, at, MAX_WAIT_MS, MIN_BYTES, MAX_BYTES)
    for size in range(len(body)):
        assert read_limits(body[:size], 0, version, end=len(body)) == (limits if size >= needed else None)
    shifted = read_limits(b"before" + body + b"behind", 6, version, end=6 + len(body))
    assert shifted == FetchLimits(at + 2, at + 6, MAX_WAIT_MS, MIN_BYTES, MAX_BYTES)


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_are_not_read_from_the_next_frame(version: int) -> None:
    body = request_body(version)
    needed = body.index(MAX_BYTES.to_bytes(4, "big")) + (8 if version else 4)

    for end in range(needed):
        with pytest.raises(FrameTooSmall):
            read_limits(body, 0, version, end=end)
        with pytest.raises(FrameTooSmall):
            read_limits(body[:end], 0, version, end=end)
    assert read_limits(body, 0, version, end=needed) is not None


def test_group_name_longer_than_kafka_allows_is_refused() -> None:
    with pytest.raises(MalformedLength):
        read_limits(b"\x81\x80\x02" + bytes(99), 0, 2)


@pytest.mark.parametrize("version", KIO_VERSIONS)
def test_request_without_records_keeps_all_other_fields(version: int) -> None:
    cls = kio_messages.request_class(SHARE_FETCH, version)
    body = request_body(version)
    limits = read_limits(body, 0, version)
    assert limits is not None

    begin, end, nothing = without_records(limits, version)
    emptied, _ = entity_reader(cls)(body[:begin] + nothing + body[end:], 0)

    before, _ = entity_reader(cls)(body, 0)
    none = {"max_wait": kio_messages.milliseconds(0), "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert emptied == replace(before, **none) != before


def test_request_of_early_access_without_records_has_no_max_records() -> None:
    limits = read_limits(EARLY_ACCESS, 0, 0)
    assert limits is not None

    begin, end, nothing = without_records(limits, 0)

    at = EARLY_ACCESS.index(MAX_BYTES.to_bytes(4, "big"))
    assert (begin, end, nothing) == (at - 8, at + 4, bytes(12))


@pytest.mark.parametrize("version", KIO_VERSIONS)
@pytest.mark.parametrize("array_length", [0, 1, 3])
def test_a_response_is_charged_four_bytes_and_its_body(version: int, array_length: int) -> None:
    """As in Kafka's ``ShareFetchResponse.sizeOf``, the size field is charged and the header is not."""
    message = kio_messages.example(
        kio_messages.response_class(SHARE_FETCH, version), array_length=array_length, tagged=False
    )
    frame = kio_messages.response_frame(message)

    assert charged_bytes(len(frame) - 4) == 4 + len(kio_messages.encode(message))
