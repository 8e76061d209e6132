"""Tests the codec on damaged messages, and on impossible lengths and counts."""

from contextlib import suppress
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.codec import framed
from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TooManyElements, TrailingBytes
from kafka_quota_proxy.protocol.primitives import write_string, write_uvarint, written_count
from tests.protocol.support.codecs import Codec, every_message
from tests.support.cases import each_case

DESCRIBE = int(ApiKey.DESCRIBE_CLIENT_QUOTAS)
GROW = int(ApiKey.CREATE_PARTITIONS)
METADATA = int(ApiKey.METADATA)
BOTH_ENCODINGS = pytest.mark.parametrize("version", [0, 1])


def read(other: Codec, frame: bytes) -> Any:  # noqa: ANN401
    if other.kind == "response":
        return codec.read_response(frame, other.api_key, other.version)
    return codec.read_request(frame, codec.read_whole_head(frame))


@each_case("other", every_message())
def test_a_message_with_missing_or_extra_bytes_is_refused(other: Codec) -> None:
    frame = other.frame(other.generated(Random(5)))  # noqa: S311
    for size in range(4, len(frame)):
        with pytest.raises(ProtocolError):
            read(other, framed(frame[4:size]))
    with pytest.raises(ProtocolError):
        read(other, frame[:-1])
    with pytest.raises(TrailingBytes):
        read(other, framed(frame[4:], b"\0"))


@given(other=st.sampled_from(every_message()), data=st.binary(max_size=120), seed=st.integers(0, 2**32))
def test_any_bytes_are_a_message_or_a_protocol_error(other: Codec, data: bytes, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    frame = other.frame(other.generated(random))
    at = random.randrange(14, max(len(frame), 15))
    for body in (frame[4:14] + data, frame[4:at] + data[:3] + frame[at + 1 :]):
        with suppress(ProtocolError):
            read(other, framed(body))


def answer(version: int, *parts: bytes) -> Any:  # noqa: ANN401
    """Read a DescribeClientQuotas response whose error_message and entries are given."""
    front = bytes(4 + version) + bytes(4 + 2)
    return codec.read_response(framed(front, *parts, bytes(version)), DESCRIBE, version)


@BOTH_ENCODINGS
def test_null_differs_from_empty(version: int) -> None:
    texts = (b"\0", b"\1") if version else (b"\xff\xff", b"\0\0")
    for text, message in zip(texts, (None, ""), strict=True):
        for count, entries in ((-1, None), (0, ())):
            array = written_count(count, is_flexible=bool(version))
            assert answer(version, text, array) == (0, 0, message, entries)


@BOTH_ENCODINGS
def test_a_string_or_array_of_an_impossible_length_is_refused(version: int) -> None:
    for text in [write_uvarint(0x8001)] if version else [pack(">h", -2)]:
        with pytest.raises(MalformedLength):
            answer(version, text, bytes(0x8005))
    null = b"\0" if version else b"\xff\xff"
    for array in [write_uvarint(200)] if version else [pack(">i", -2), pack(">i", 200)]:
        with pytest.raises(MalformedLength):
            answer(version, null, array)


def test_a_null_array_that_cannot_be_null_is_empty() -> None:
    frame = framed(pack(">hhih", DESCRIBE, 0, 7, -1), pack(">i", -1), b"\1")

    assert codec.read_request(frame, codec.read_whole_head(frame)) == ((), True)


@BOTH_ENCODINGS
def test_the_elements_of_all_arrays_together_are_limited(version: int) -> None:
    entries = [((), ()) for _ in range(50)]
    frame = codec.write_response(DESCRIBE, version, 7, (0, 0, None, [(((("user", "a"),) * 2), ()), *entries]))

    assert codec.read_response(frame, DESCRIBE, version, most_elements=53)
    with pytest.raises(TooManyElements):
        codec.read_response(frame, DESCRIBE, version, most_elements=52)


def test_numbers_count_as_elements_too() -> None:
    frame = codec.write_request(GROW, 3, 7, None, [[(None, b"t", 3, [(range(160),)])], None, 5, False])

    head = codec.read_whole_head(frame)
    assert codec.read_request(frame, head, most_elements=12)[0][0][3] == ((tuple(range(160)),),)
    with pytest.raises(TooManyElements):
        codec.read_request(frame, head, most_elements=11)


def test_tags_count_as_elements() -> None:
    frame = codec.write_response(DESCRIBE, 1, 7, (0, 0, None, ()))[4:-1]
    tags = write_uvarint(4) + b"\x05\x02hi" + b"\x06\0" * 3

    assert codec.read_response(framed(frame, tags), DESCRIBE, 1, most_elements=4) == (0, 0, None, ())
    with pytest.raises(TooManyElements):
        codec.read_response(framed(frame, tags), DESCRIBE, 1, most_elements=3)


@pytest.mark.parametrize(
    "frame", [b"", b"\0", pack(">i", 4), pack(">iib", 4, 7, 0), pack(">ih", 2, 7), pack(">ii", -1, 7)]
)
def test_a_response_that_is_not_one_whole_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.read_response(frame, METADATA, 9)


def test_a_request_that_is_not_one_whole_frame_is_refused() -> None:
    frame = framed(pack(">hhi", METADATA, 8, 7), write_string(b"etl", is_compact=False), b"body")

    head = codec.read_whole_head(frame)

    assert (head.api_key, head.client_id, head.body) == (METADATA, b"etl", len(frame) - 4)
    with pytest.raises(TrailingBytes):
        codec.read_whole_head(frame + b"\0")
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            codec.read_whole_head(frame[:size])


@pytest.mark.parametrize("filling", ["a", "é", "€", "\U0001f980"])
@BOTH_ENCODINGS
def test_a_too_long_string_is_cut_between_characters(version: int, filling: str) -> None:
    text = "Empty " + filling * 32_767

    frame = codec.write_response(DESCRIBE, version, 7, (0, 42, text, None))

    cut = codec.read_response(frame, DESCRIBE, version)[2]
    assert text.startswith(cut)
    assert 32_767 - 3 <= len(cut.encode()) <= 32_767


@BOTH_ENCODINGS
def test_bytes_that_are_not_utf_8_survive_a_round_trip(version: int) -> None:
    frame = codec.write_response(DESCRIBE, version, 7, (0, 42, "a\udcffb", None))

    assert b"a\xffb" in frame
    assert codec.read_response(frame, DESCRIBE, version)[2] == "a\udcffb"
