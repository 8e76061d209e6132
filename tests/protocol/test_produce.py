"""Tests the acks of Produce requests and the throttle time of responses, against two other codecs."""

from struct import pack
from typing import Any

import pytest

from kafka_quota_proxy.protocol import produce
from kafka_quota_proxy.protocol.errors import FrameTooSmall, MalformedLength, ProtocolError, TrailingBytes
from kafka_quota_proxy.protocol.primitives import write_uvarint
from kafka_quota_proxy.protocol.produce import end_of_plain_acks, read_acks
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import each_case

PRODUCE = 0
THROTTLE_TIME_MS = 0x5EAF00D


def assert_read_once_complete(body: bytes, version: int, acks: int, transactional_id: str | None) -> None:
    """Assert that ``acks`` is None until both of its bytes have arrived, and is read then."""
    name = (transactional_id or "").encode()
    length = b"" if version < 3 else bytes(2) if version < 9 else write_uvarint(len(name) + 1)
    needed = 2 if version < 3 else len(length) + len(name) + 2
    for size in {*range(min(needed, 300)), needed - 1}:
        assert read_acks(body[:size], 0, version, end=len(body)) is None
    assert read_acks(body[:needed], 0, version, end=needed) == acks
    assert read_acks(body, 0, version) == acks
    assert read_acks(b"before" + body + b"after", 6, version, end=6 + len(body)) == acks


@each_case("cls, version", [(cls, v) for cls, v in kafka_python_messages.messages("request") if cls.API_KEY == 0])
@each_case("acks", [-1, 0, 1])
@each_case("transactional_id", [None, "", "transfer-orders"])
def test_acks_of_kafka_python_are_read_at_each_length(
    cls: Untyped, version: int, acks: int, transactional_id: str | None
) -> None:
    values: dict[str, Any] = {"acks": acks}
    if version >= 3:
        values["transactional_id"] = transactional_id
    message = kafka_python_messages.example(cls, version, values)

    assert_read_once_complete(message.encode(), version, acks, transactional_id)


@each_case("version", range(16))
def test_acks_are_not_read_from_the_next_frame(version: int) -> None:
    for size in range(2):
        body = b"\0" * size

        with pytest.raises(FrameTooSmall):
            read_acks(body + bytes(99), 0, version, end=size)
        with pytest.raises(FrameTooSmall):
            read_acks(body, 0, version, end=size)


@pytest.mark.parametrize(
    ("version", "start"),
    [
        (3, b"\xff\xfe"),
        (8, b"\x80\x00"),
        (9, write_uvarint(0x8001)),
        (13, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_transactional_id_that_kafka_refuses_is_not_waited_for(version: int, start: bytes) -> None:
    with pytest.raises(MalformedLength):
        read_acks(b"\xff" + start, 1, version)


@each_case("version", range(3, 16))
@each_case("end", range(1, 9))
@each_case("start", [b"\xff" * 8, b"\x80\x00\x01", b"\xff\xff\xff\xff\x0f", b"\xff\xff\0\1", b"\x03ab\0\1"])
def test_error_of_acks_does_not_depend_on_the_bytes_that_have_arrived(version: int, end: int, start: bytes) -> None:
    data = start + bytes(9)
    whole = acks_or_error(data, version, end)

    for size in range(1, len(data)):
        assert acks_or_error(data[:size], version, end) in (None, whole)
    assert whole is not None


def acks_or_error(data: bytes, version: int, end: int) -> int | str | None:
    try:
        return read_acks(data, 0, version, end=end)
    except ProtocolError as error:
        return error.reason


def test_unknown_tags_anywhere_in_a_response_are_stepped_over() -> None:
    tags = b"\x02\x07\x02xy\x09\x00"
    partition = bytes(30) + b"\x02" + bytes(4) + b"\x02m" + tags + b"\x02e" + tags
    topic = b"\x03t1" + b"\x02" + partition + tags
    payload = bytes(4) + tags + b"\x02" + topic + THROTTLE_TIME_MS.to_bytes(4, "big") + tags
    frame = kio_messages.framed(payload)

    offset = produce.throttle_time_offset(frame, 10)

    assert offset == len(frame) - 4 - len(tags)


@each_case("version", range(1, 14))
def test_truncated_response_is_refused(version: int) -> None:
    cls = next(cls for cls, v in kafka_python_messages.messages("response") if (cls.API_KEY, v) == (PRODUCE, version))
    frame = kafka_python_messages.response_frame(kafka_python_messages.example(cls, version))

    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            produce.throttle_time_offset(frame[:size], version)


def test_response_with_extra_bytes_is_refused() -> None:
    frame = kio_messages.framed(bytes(4) + b"\0" + b"\x01" + bytes(4) + b"\0" + b"?")

    with pytest.raises(TrailingBytes):
        produce.throttle_time_offset(frame, 9)


@each_case("version", range(14))
@each_case("transactional_id", [None, "", "tx"])
def test_end_of_plain_acks_is_the_offset_of_the_timeout(version: int, transactional_id: str | None) -> None:
    if version < 3:
        front = b""
    elif version < 9:
        front = (
            b"\xff\xff" if transactional_id is None else pack(">h", len(transactional_id)) + transactional_id.encode()
        )
    else:
        front = b"\0" if transactional_id is None else bytes([len(transactional_id) + 1]) + transactional_id.encode()
    data = b"head" + front + pack(">hi", -1, 30_000)

    end = end_of_plain_acks(data, 4, version)

    if version >= 3 and transactional_id is not None:
        assert end is None
    else:
        assert end == len(data) - 4
