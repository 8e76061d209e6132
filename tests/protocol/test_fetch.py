"""Tests how Fetch requests and responses are read, against two codecs."""

import struct
from typing import Any

import pytest

from kafka_quota_proxy.protocol.errors import FrameTooSmall, MalformedLength, ProtocolError, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.fetch import UNLIMITED_BYTES, FetchLimits, charged_bytes, read_limits, read_replica_id
from kafka_quota_proxy.protocol.primitives import write_uvarint
from kafka_quota_proxy.protocol.throttle_time import front_throttle_time_offset
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import each_case

FETCH = 1
KIO_VERSIONS = range(4, 19)
MIN_BYTES, MAX_BYTES = 0x5EA, 0x5EAF00D
THROTTLE_TIME_MS = 0x5EAF00D
KAFKA_PYTHON = {
    kind: [(cls, version) for cls, version in kafka_python_messages.messages(kind) if cls.API_KEY == FETCH]
    for kind in ("request", "response")
}


def kio_request(version: int, *, replica_id: int = -1, array_length: int = 1, tagged: bool = False) -> Untyped:
    """Return a request with its replica_id in the field that the version has for it."""
    cls = kio_messages.request_class(FETCH, version)
    values: dict[str, Any] = {"min_bytes": MIN_BYTES, "max_bytes": MAX_BYTES}
    if version < 15:
        values["replica_id"] = replica_id
    else:
        state = cls.__dataclass_fields__["replica_state"].type
        values["replica_state"] = state(replica_id=replica_id, replica_epoch=1) if replica_id != -1 else state()
    return kio_messages.example(cls, values, array_length=array_length, tagged=tagged)


def assert_limits_read_once_complete(body: bytes, version: int) -> None:
    """Assert that the limits are found, and that each shorter prefix gives None."""
    limits = read_limits(body, 0, version)
    assert limits is not None
    assert limits.max_wait_ms == int.from_bytes(body[limits.min_bytes_offset - 4 :][:4], signed=True)
    assert limits.min_bytes == MIN_BYTES
    assert body[limits.min_bytes_offset :][:4] == MIN_BYTES.to_bytes(4, "big")
    needed = limits.min_bytes_offset + 4
    if version < 3:
        assert (limits.max_bytes_offset, limits.max_bytes) == (-1, UNLIMITED_BYTES)
    else:
        assert limits.max_bytes == MAX_BYTES
        assert body[limits.max_bytes_offset :][:4] == MAX_BYTES.to_bytes(4, "big")
        needed = limits.max_bytes_offset + 4
    for size in range(min(len(body), needed + 3) + 1):
        assert read_limits(body[:size], 0, version, end=len(body)) == (limits if size >= needed else None)
    shifted = read_limits(b"before" + body, 6, version)
    assert shifted is not None
    assert shifted.min_bytes_offset == limits.min_bytes_offset + 6
    assert shifted[2:] == limits[2:]


@each_case("cls, version", KAFKA_PYTHON["request"])
def test_limits_of_kafka_python_are_read_at_each_length(cls: Untyped, version: int) -> None:
    values = {"min_bytes": MIN_BYTES, "max_bytes": MAX_BYTES} if version >= 3 else {"min_bytes": MIN_BYTES}
    message = kafka_python_messages.example(cls, version, values)

    assert_limits_read_once_complete(message.encode(), version)


@each_case("version", range(20))
def test_limits_are_not_read_from_the_next_frame(version: int) -> None:
    needed = 12 if version < 3 or version >= 15 else 16

    for size in range(needed):
        with pytest.raises(FrameTooSmall):
            read_limits(bytes(99), 0, version, end=size)
        with pytest.raises(FrameTooSmall):
            read_limits(bytes(size), 0, version, end=size)
    assert read_limits(bytes(99), 0, version, end=needed) is not None


def test_a_request_without_max_bytes_has_no_limit() -> None:
    """In FetchRequest.json the default of MaxBytes is 0x7fffffff."""
    assert read_limits(struct.pack(">iii", -1, 500, 1), 0, 2) == FetchLimits(8, -1, 500, 1, 2**31 - 1)


@each_case("version", KIO_VERSIONS)
@each_case("replica_id", [-2, -1, 0, 2, 2**31 - 1])
@each_case("tagged", [True, False])
@each_case("array_length", [0, 1, 3, 30])
def test_the_replica_id_of_kio_is_read(version: int, replica_id: int, tagged: bool, array_length: int) -> None:
    message = kio_request(version, replica_id=replica_id, array_length=array_length, tagged=tagged)
    body = kio_messages.encode(message)

    assert read_replica_id(body, 0, len(body), version) == replica_id
    assert read_replica_id(b"before" + body + b"\x07after", 6, 6 + len(body), version) == replica_id


REPLICA_STATE = b"\x01\x0d" + struct.pack(">iqb", 4, 9, 0)


@each_case("version", [15, 16, 17, 18, 19])
@each_case(
    "tags, replica_id",
    [
        (b"\x01" + REPLICA_STATE, 4),
        (b"\x03" + b"\x00\x02\x01x" + REPLICA_STATE + b"\x63\x02\x01\x0d", 4),
        (b"\x02" + b"\x00\x0f\x01\x0d" + bytes(13) + REPLICA_STATE, 4),
        (b"\x02" + b"\x00\x02\x01x" + b"\x63\x00", -1),
        (b"\x00", -1),
    ],
)
def test_a_replica_state_is_found_among_unknown_tags(version: int, tags: bytes, replica_id: int) -> None:
    unknown = b"\x02\x05\x01z\x06\x00"
    partition = bytes(32) + unknown
    topics = b"\x02" + bytes(16) + b"\x03" + partition * 2 + unknown
    forgotten = b"\x02" + bytes(16) + b"\x03" + bytes(8) + unknown
    body = bytes(21) + topics + forgotten + b"\x05rack" + tags

    assert read_replica_id(body, 0, len(body), version) == replica_id


@pytest.mark.parametrize("version", [15, 17, 18])
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_replica_id_of_a_truncated_request_is_refused(version: int, replica_id: int) -> None:
    """Otherwise the proxy could take a follower for a consumer."""
    body = kio_messages.encode(kio_request(version, replica_id=replica_id, array_length=2, tagged=True))

    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            read_replica_id(body[:size], 0, size, version)


def test_replica_id_of_a_request_with_extra_bytes_is_refused() -> None:
    body = bytes(21) + b"\x01\x01\x01" + b"\x00" + b"?"

    with pytest.raises(TrailingBytes):
        read_replica_id(body, 0, len(body), 15)


def test_replica_state_without_an_id_is_refused() -> None:
    body = bytes(21) + b"\x01\x01\x01" + b"\x01\x01\x03abc"

    with pytest.raises(MalformedLength):
        read_replica_id(body, 0, len(body), 15)


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        (b"\xff\xff\xff\xff\x0f" + bytes(40), MalformedLength),
        (b"\x02" + bytes(16) + b"\xff\xff\xff\xff\x0f" + bytes(40), MalformedLength),
        (b"\x01" + b"\x02" + bytes(16) + b"\xff\xff\xff\xff\x0f" + bytes(40), MalformedLength),
        (b"\x01" + b"\x01" + b"\x01" + b"\xff\xff\xff\xff\x0f" + bytes(40), Truncated),
    ],
    ids=["topics", "partitions", "forgotten partitions", "tags"],
)
def test_a_request_of_four_billion_elements_fails_at_once(counts: bytes, error: type[ProtocolError]) -> None:
    body = bytes(21) + counts

    with pytest.raises(error):
        read_replica_id(body, 0, len(body), 15)


def _throttle_time_offset(data: bytes, offset: int, version: int) -> int | None:
    return front_throttle_time_offset(data, offset, FETCH, version)


def assert_throttle_field_read_once_complete(frame: bytes, version: int) -> None:
    offset = _throttle_time_offset(frame, 0, version)
    assert offset is not None
    if version == 0:
        assert offset == -1
        return
    assert frame[offset : offset + 4] == THROTTLE_TIME_MS.to_bytes(4, "big")
    for size in range(min(len(frame), offset + 7) + 1):
        expected = offset if size >= offset + 4 else None
        assert _throttle_time_offset(frame[:size], 0, version) == expected
    assert _throttle_time_offset(b"before" + frame, 6, version) == offset + 6


@pytest.mark.parametrize("version", [12, 17, 18, 19])
def test_throttle_field_is_found_after_unknown_header_tags(version: int) -> None:
    tags = b"\x02\x05\x03abc" + write_uvarint(300) + write_uvarint(200) + bytes(200)
    frame = kio_messages.framed(bytes(4) + tags + THROTTLE_TIME_MS.to_bytes(4, "big") + bytes(8))

    assert_throttle_field_read_once_complete(frame, version)


@pytest.mark.parametrize(
    ("version", "payload"),
    [(1, bytes(7)), (11, bytes(4)), (12, bytes(8)), (12, bytes(4)), (12, bytes(4) + b"\x01\x00\x09" + bytes(3))],
)
def test_a_throttle_field_beyond_its_frame_is_refused(version: int, payload: bytes) -> None:
    frame = kio_messages.framed(payload)

    with pytest.raises(FrameTooSmall):
        _throttle_time_offset(frame + bytes(99), 0, version)
    with pytest.raises(FrameTooSmall):
        _throttle_time_offset(frame, 0, version)


@pytest.mark.parametrize(("version", "charge"), [(0, 8), (1, 12), (6, 12), (7, 18), (11, 18), (12, 16), (17, 16)])
def test_an_empty_response_is_charged_what_kafka_charges(version: int, charge: int) -> None:
    cls = KAFKA_PYTHON["response"][version][0]
    frame = kafka_python_messages.response_frame(kafka_python_messages.empty(cls, version))

    assert charged_bytes(len(frame) - 4, version) == charge
