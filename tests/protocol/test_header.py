"""Tests how the size and the header of a frame are read, against two other codecs."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol import errors
from kafka_quota_proxy.protocol.api import ApiKey, is_flexible
from kafka_quota_proxy.protocol.errors import FrameTooSmall, HeadTooLong, MalformedHeader, ProtocolError
from kafka_quota_proxy.protocol.header import (
    MAX_HEAD_BYTES,
    MAX_HEAD_TAGS,
    RequestHead,
    read_frame_size,
    read_request_head,
)
from kafka_quota_proxy.protocol.primitives import write_uvarint
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import each_case

LIMIT = 100 * 1024 * 1024
FLEXIBLE, PLAIN = 11, 8  # versions of Produce


def request(
    *,
    api_key: int = 0,
    api_version: int = PLAIN,
    client_id_bytes: int | None = None,
    client_id: bytes = b"etl",
    tags: bytes = b"",
    body: bytes = b"body",
) -> bytes:
    """Return a request built byte by byte. ``client_id_bytes`` replaces the length of ``client_id``."""
    length = len(client_id) if client_id_bytes is None else client_id_bytes
    payload = struct.pack(">hhih", api_key, api_version, 7, length) + client_id + tags + body
    return struct.pack(">i", len(payload)) + payload


def expected(message_key: int, version: int, frame: bytes, body: bytes, client_id: bytes) -> RequestHead:
    return RequestHead(len(frame) - 4, message_key, version, -7, client_id, len(frame) - len(body))


def assert_read_once_complete(frame: bytes, head: RequestHead) -> None:
    """Assert that a prefix gives None until the head is complete, and then gives the head."""
    for size in range(min(len(frame), head.body + 3) + 1):
        assert read_request_head(frame[:size], 0, LIMIT) == (head if size >= head.body else None), size


@each_case("cls, version", kafka_python_messages.messages("request"))
@each_case("client_id", ["etl", "", None])
def test_a_request_of_kafka_python_is_read_at_each_length(cls: Untyped, version: int, client_id: str | None) -> None:
    message = kafka_python_messages.example(cls, version)
    frame = kafka_python_messages.request_frame(message, correlation_id=-7, client_id=client_id)

    body, name = message.encode(), (client_id or "").encode()
    assert_read_once_complete(frame, expected(cls.API_KEY, version, frame, body, name))


@each_case("api_key, version", [(k, v) for k, v in kio_messages.api_versions() if is_flexible(k, v)])
@each_case("client_id", ["etl", "", None])
def test_unknown_header_tags_are_stepped_over_at_each_length(api_key: int, version: int, client_id: str | None) -> None:
    message = kio_messages.example(kio_messages.request_class(api_key, version))
    tags = b"\x02\x05\x03abc" + write_uvarint(300) + write_uvarint(200) + bytes(200)
    frame = kio_messages.request_frame(message, correlation_id=-7, client_id=client_id, header_tags=tags)

    body, name = kio_messages.encode(message), (client_id or "").encode()
    assert_read_once_complete(frame, expected(api_key, version, frame, body, name))


def test_a_client_id_that_is_not_utf_8_is_passed_on() -> None:
    head = read_request_head(request(client_id=b"\xff\xfe"), 0, LIMIT)

    assert head is not None
    assert head.client_id == b"\xff\xfe"


def test_request_without_a_body_has_a_head() -> None:
    frame = request(api_version=FLEXIBLE, tags=b"\0", body=b"")

    head = read_request_head(frame, 0, LIMIT)

    assert head is not None
    assert head.body == len(frame)


def test_a_controlled_shutdown_v0_has_no_client_id() -> None:
    """RequestHeader.json uses header v0 for ControlledShutdown v0 alone."""
    frame = struct.pack(">ihhii", 12, ApiKey.CONTROLLED_SHUTDOWN, 0, 7, 3)
    head = RequestHead(12, ApiKey.CONTROLLED_SHUTDOWN, 0, 7, b"", 12)

    assert_read_once_complete(frame, head)
    assert read_request_head(frame + bytes(99), 0, LIMIT) == head


def test_body_of_an_unknown_api_follows_the_client_id() -> None:
    frame = request(api_key=1_000, api_version=3, tags=b"\xff", body=b"")

    head = read_request_head(frame, 0, LIMIT)

    assert head == RequestHead(len(frame) - 4, 1_000, 3, 7, b"etl", len(frame) - 1)


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_a_version_newer_than_ours_has_tags_in_its_header(api_key: int) -> None:
    frame = request(api_key=api_key, api_version=99, tags=b"\x01\x00\x01x", body=b"body")

    head = read_request_head(frame, 0, LIMIT)

    assert head is not None
    assert frame[head.body :] == b"body"


@each_case(
    "first_bytes, error, hint",
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", errors.TlsOnPlaintext, "TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", errors.TlsOnPlaintext, "TLS"),
        (b"GET / HTTP/1.1\r\n", errors.HttpOnKafka, "HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", errors.HttpOnKafka, "HTTP"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n", errors.UnexpectedProxyProtocol, "PROXY"),
        (b"\r\n\r\n\x00\r\nQUIT\n", errors.UnexpectedProxyProtocol, "PROXY"),
        (b"\xff\xff\xff\xff", errors.NegativeFrameSize, "-1"),
        (b"\x06\x40\x00\x01", errors.FrameTooLarge, "104857600"),
        (b"\x7f\xff\xff\xff" + bytes(20), errors.FrameTooLarge, "raise the limit"),
    ],
)
def test_another_protocol_is_recognised_by_its_first_four_bytes(
    first_bytes: bytes, error: type[ProtocolError], hint: str
) -> None:
    for size in range(4, len(first_bytes) + 1):
        with pytest.raises(error, match=hint):
            read_request_head(first_bytes[:size], 0, LIMIT)


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    frame = request()
    size_bytes = len(frame) - 4

    assert read_request_head(frame, 0, size_bytes) is not None
    with pytest.raises(errors.FrameTooLarge):
        read_request_head(frame, 0, size_bytes - 1)


@each_case(
    "frame, error",
    [
        (request(api_key=-1), MalformedHeader),
        (request(api_version=-1), MalformedHeader),
        (request(client_id_bytes=-2), MalformedHeader),
        (request(client_id_bytes=-0x8000), MalformedHeader),
        (request(client_id_bytes=8, body=b"body"), FrameTooSmall),
        (request(client_id_bytes=0x7FFF), FrameTooSmall),
        (request(api_version=FLEXIBLE, body=b""), FrameTooSmall),
        (request(api_version=FLEXIBLE, tags=b"\x01\x00\x05", body=b"body"), FrameTooSmall),
        (request(api_version=FLEXIBLE, tags=b"\x80", body=b""), FrameTooSmall),
        (request(api_version=FLEXIBLE, tags=b"\xff" * 5), errors.MalformedVarint),
        (struct.pack(">i", 0), FrameTooSmall),
        (struct.pack(">ihhi", 8, 0, 0, 7), FrameTooSmall),
    ],
)
def test_head_longer_than_its_frame_is_refused(frame: bytes, error: type[ProtocolError]) -> None:
    with pytest.raises(error):
        read_request_head(frame, 0, LIMIT)
    with pytest.raises(error):
        read_request_head(frame + request() * 3_000, 0, LIMIT)


def test_a_header_of_more_than_128_kib_is_not_waited_for() -> None:
    tags = b"\x01\x00" + write_uvarint(LIMIT // 2)
    start = struct.pack(">ihhih", LIMIT, 0, FLEXIBLE, 7, 3) + b"etl" + tags

    just_short = start + bytes(MAX_HEAD_BYTES - len(start) - 1)

    assert read_request_head(just_short, 0, LIMIT) is None
    with pytest.raises(HeadTooLong):
        read_request_head(just_short + b"\0", 0, LIMIT)


def test_header_with_too_many_tags_is_refused_at_once() -> None:
    few = request(api_version=FLEXIBLE, tags=write_uvarint(MAX_HEAD_TAGS) + b"\x00\x00" * MAX_HEAD_TAGS)
    many = request(api_version=FLEXIBLE, tags=b"\xff\xff\xff\xff\x0f" + bytes(99))

    assert read_request_head(few, 0, LIMIT) is not None
    with pytest.raises(HeadTooLong):
        read_request_head(many, 0, LIMIT)


@given(data=st.data())
def test_head_is_the_same_for_bytes_cut_anywhere(data: st.DataObject) -> None:
    """Short prefixes give None. All longer ones give the same head or error."""
    api_key = data.draw(st.sampled_from([0, 1, 3, 7, 18, 1_000]))
    body = data.draw(st.binary(max_size=30))
    frame = request(
        api_key=api_key,
        api_version=data.draw(st.integers(-1, 20)),
        client_id=data.draw(st.binary(max_size=5)),
        client_id_bytes=data.draw(st.none() | st.integers(-3, 40)),
        body=body,
    )

    results: list[Any] = []
    for size in range(len(frame) + 1):
        try:
            results.append(read_request_head(frame[:size], 0, LIMIT))
        except ProtocolError as error:
            results.append(error.reason)

    decided = [result for result in results if result is not None]
    assert len(set(decided)) == 1
    assert results[-len(decided) :] == decided


def test_the_size_of_a_frame_may_be_zero() -> None:
    """After a SaslHandshake v0, clients send raw SASL tokens, which can be empty."""
    assert read_frame_size(b"\0\0\0", 0, LIMIT) is None
    assert read_frame_size(b"\0\0\0\0", 0, LIMIT) == 0
