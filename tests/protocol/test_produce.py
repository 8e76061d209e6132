"""Tests the acks of Produce requests and the throttle time of responses, against three other codecs."""

from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol import produce
from kafka_quota_proxy.protocol.errors import FrameTooSmall, MalformedLength, ProtocolError, TrailingBytes
from kafka_quota_proxy.protocol.primitives import write_uvarint
from kafka_quota_proxy.protocol.produce import end_of_plain_acks, read_acks
from tests.protocol.support import aiokafka_messages, kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import FEW_EXAMPLES, each_case

PRODUCE = 0
KIO_VERSIONS = range(3, 14)
# The lengths 255 and 32,766 have a byte 0xFF, like null.
TRANSACTIONAL_IDS = [None, "", "t", "transfer-orders", "x" * 200, "x" * 255, "ż" * 16_383]
THROTTLE_TIME_MS = 0x5EAF00D


def kio_request(version: int, *, acks: int, transactional_id: str | None, array_length: int = 1) -> Untyped:
    return kio_messages.example(
        kio_messages.request_class(PRODUCE, version),
        {"acks": acks, "transactional_id": transactional_id},
        array_length=array_length,
    )


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


@each_case("version", KIO_VERSIONS)
@each_case("acks", [-1, 0, 1])
@each_case("transactional_id", TRANSACTIONAL_IDS)
def test_acks_of_kio_are_read_at_each_length(version: int, acks: int, transactional_id: str | None) -> None:
    message = kio_request(version, acks=acks, transactional_id=transactional_id)

    assert_read_once_complete(kio_messages.encode(message), version, acks, transactional_id)


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


@each_case("cls", [cls for cls in aiokafka_messages.requests() if cls.API_KEY == 0])
@each_case("acks", [-1, 0, 1])
@each_case("transactional_id", [None, "", "transfer-orders"])
def test_acks_of_aiokafka_are_read_at_each_length(cls: Untyped, acks: int, transactional_id: str | None) -> None:
    message = aiokafka_messages.example(cls, {"required_acks": acks, "transactional_id": transactional_id})

    assert_read_once_complete(message.encode(), cls.API_VERSION, acks, transactional_id)


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


@pytest.mark.parametrize("version", range(16))
@FEW_EXAMPLES
@given(data=st.binary(max_size=20), offset=st.integers(0, 20), end=st.integers(0, 40) | st.none())
def test_any_request_gives_acks_or_none_or_an_error(version: int, data: bytes, offset: int, end: int | None) -> None:
    try:
        acks = read_acks(data, offset, version) if end is None else read_acks(data, offset, version, end=end)
    except ProtocolError:
        return
    assert acks is None or -0x8000 <= acks <= 0x7FFF


@st.composite
def kio_responses(draw: st.DrawFn, version: int) -> Untyped:
    response = kio_messages.response_class(PRODUCE, version)
    topic = _element(response, "responses")
    partition = _element(topic, "partition_responses")

    def partitions() -> tuple[Untyped, ...]:
        made = []
        for _ in range(draw(st.integers(0, 3))):
            values: dict[str, Any] = {}
            if version >= 8:
                record_error = kio_messages.example(
                    _element(partition, "record_errors"),
                    {"batch_index_error_message": draw(st.none() | st.text(max_size=200))},
                )
                values["record_errors"] = (record_error,) * draw(st.integers(0, 3))
                values["error_message"] = draw(st.none() | st.text(max_size=200))
            made.append(kio_messages.example(partition, values, tagged=draw(st.booleans())))
        return tuple(made)

    topics = tuple(
        kio_messages.example(topic, {"partition_responses": partitions()}) for _ in range(draw(st.integers(0, 3)))
    )
    values = {"responses": topics, "throttle_time": kio_messages.milliseconds(THROTTLE_TIME_MS)}
    return kio_messages.example(response, values, tagged=draw(st.booleans()))


def _element(entity: Untyped, field: str) -> Untyped:
    kind: Any = entity.__dataclass_fields__[field].type
    return kind.__args__[0]


@pytest.mark.parametrize("version", KIO_VERSIONS)
@FEW_EXAMPLES
@given(data=st.data())
def test_the_throttle_field_of_kio_is_found_in_a_response_of_any_shape(version: int, data: st.DataObject) -> None:
    frame = kio_messages.response_frame(data.draw(kio_responses(version)))

    offset = produce.throttle_time_offset(frame, version)

    assert offset is not None
    assert frame[offset : offset + 4] == THROTTLE_TIME_MS.to_bytes(4, "big")


@each_case("cls", aiokafka_messages.responses(PRODUCE))
def test_the_throttle_field_of_aiokafka_is_found(cls: Untyped) -> None:
    frame = aiokafka_messages.response_frame(aiokafka_messages.example(cls, {"throttle_time_ms": THROTTLE_TIME_MS}))

    offset = produce.throttle_time_offset(frame, cls.API_VERSION)

    if cls.API_VERSION == 0:
        assert offset is None
    else:
        assert frame[offset:] == THROTTLE_TIME_MS.to_bytes(4, "big")


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


@pytest.mark.parametrize("version", range(16))
@FEW_EXAMPLES
@given(frame=st.binary(max_size=120))
def test_any_response_gives_an_offset_within_it_or_an_error(version: int, frame: bytes) -> None:
    try:
        offset = produce.throttle_time_offset(frame, version)
    except ProtocolError:
        return
    assert (offset is None) == (version == 0)
    if offset is not None:
        assert 8 <= offset <= len(frame) - 4


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
