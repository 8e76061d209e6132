"""Kio, which is generated from Kafka's message files, reads what the simulated actors write, to the same values.

Our parsers read it as well, and refuse all that is not whole.
"""

import inspect
from collections.abc import Callable
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from tests.simulation.wire import api_versions, fetch, metadata, produce, sasl_authenticate
from tests.simulation.wire.common import (
    RequestHeader,
    WireError,
    correlation_id_of,
    is_flexible,
    parse_header,
    read_varint,
    tagged_fields,
    varint,
)
from tests.simulation.wire.example import Example
from tests.simulation.wire.examples import EXAMPLES
from tests.simulation.wire.kio_values import read_request, read_response
from tests.simulation.wire.records import Batch, appended, parse_batch, parse_batches, size_of_first, write_batch

_ID = 7_654_321
_NAMES = [f"{api.__name__.rpartition('.')[2]}-v{version}" for api, version, _, _ in EXAMPLES]
_REQUESTS = pytest.mark.parametrize(
    ("api", "version", "example"), [(api, version, request) for api, version, request, _ in EXAMPLES], ids=_NAMES
)
_RESPONSES = pytest.mark.parametrize(
    ("api", "version", "example"), [(api, version, response) for api, version, _, response in EXAMPLES], ids=_NAMES
)


def request_frame(api: ModuleType, version: int, example: Example, client_id: str | None = "etl-é") -> bytes:
    frame: bytes = api.request(_ID, version, client_id, **example.arguments)
    return frame


def response_frame(api: ModuleType, version: int, example: Example) -> bytes:
    frame: bytes = api.response(_ID, version, **example.arguments)
    return frame


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """Compare all that kio has read. Fields that this version lacks may be expected, and are not looked at."""
    if isinstance(found, dict):
        for name in found:
            assert_same(found[name], expected[name], f"{where}.{name}")
    elif isinstance(found, list):
        assert len(found) == len(expected), where
        for index, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    else:
        # Kio has None for the id that stands for none.
        assert (bytes(16) if found is None and isinstance(expected, bytes) else found) == expected, where


@_REQUESTS
def test_kio_reads_a_request_to_the_same_values(api: ModuleType, version: int, example: Example) -> None:
    header, body = read_request(request_frame(api, version, example), api.API_KEY, version)
    assert header == {
        "request_api_key": api.API_KEY,
        "request_api_version": version,
        "correlation_id": _ID,
        "client_id": "etl-é",
    }
    assert_same(body, example.expected)


@_RESPONSES
def test_kio_reads_a_response_to_the_same_values(api: ModuleType, version: int, example: Example) -> None:
    frame = response_frame(api, version, example)
    header, body = read_response(frame, api.API_KEY, version)
    assert header == {"correlation_id": _ID}
    assert correlation_id_of(frame) == _ID
    assert_same(body, example.expected)


def rewritten(write: Callable[..., bytes], leading: tuple[Any, ...], parsed: Any) -> bytes:
    """Write again what has been parsed: kio has said that what was written is right, so what was parsed is."""
    known = inspect.signature(write).parameters
    values = parsed._asdict()
    return write(
        *leading, **{name: value for name, value in values.items() if name in known and name != "correlation_id"}
    )


@_REQUESTS
def test_our_parser_reads_a_request_to_the_same_values(api: ModuleType, version: int, example: Example) -> None:
    frame = request_frame(api, version, example)
    parsed = api.parse_request(frame)
    assert parsed.header == parse_header(frame)
    assert parsed.header[:4] == (api.API_KEY, version, _ID, "etl-é")
    assert rewritten(api.request, (_ID, version, "etl-é"), parsed) == frame


@_RESPONSES
def test_our_parser_reads_a_response_to_the_same_values(api: ModuleType, version: int, example: Example) -> None:
    frame = response_frame(api, version, example)
    parsed = api.parse_response(frame, version)
    assert parsed.correlation_id == _ID
    assert rewritten(api.response, (_ID, version), parsed) == frame


def resized(frame: bytes) -> bytes:
    """Return a frame whose size is right, however it was cut or damaged."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


def parsers() -> list[tuple[Callable[[bytes], object], bytes]]:
    both: list[tuple[Callable[[bytes], object], bytes]] = []
    for api, version, request, response in EXAMPLES:
        both.append((api.parse_request, request_frame(api, version, request)))
        both.append((partial(api.parse_response, version=version), response_frame(api, version, response)))
    return both


def test_a_frame_that_lacks_bytes_or_has_one_too_many_is_refused() -> None:
    for parse, frame in parsers():
        parse(frame)
        for wrong in (frame + b"\0", frame[:-1], resized(frame + b"\0")):
            with pytest.raises(WireError):
                parse(wrong)
        for end in range(4, len(frame)):
            with pytest.raises(WireError):
                parse(resized(frame[:end]))


def test_a_damaged_frame_is_read_or_refused_but_nothing_else_is_raised() -> None:
    random = Random(7)
    refused = 0
    for parse, frame in parsers():
        for _ in range(60):
            damaged = bytearray(frame)
            damaged[random.randrange(4, len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                parse(bytes(damaged))
            except WireError:
                refused += 1
    assert refused > 1_000


def test_a_request_of_another_api_or_version_is_refused() -> None:
    frame = produce.request(_ID, 9, "c", [])
    with pytest.raises(WireError, match="API 0 v9 where API 1"):
        fetch.parse_request(frame)
    unknown = frame[:6] + (produce.VERSIONS.stop).to_bytes(2, "big") + frame[8:]
    with pytest.raises(WireError):
        produce.parse_request(unknown)


@pytest.mark.parametrize("client_id", [None, "", "é" * 300])
def test_each_client_id_is_read_from_both_headers(client_id: str | None) -> None:
    for version in (8, 9):
        frame = produce.request(_ID, version, client_id, [])
        assert read_request(frame, 0, version)[0]["client_id"] == client_id
        assert parse_header(frame)[:4] == RequestHeader(0, version, _ID, client_id, 0)[:4]


def test_each_api_of_kafka_is_flexible_from_the_version_that_kio_says() -> None:
    versions = [(api_key, version) for api_key, name in api_key_map.items() for version in schema_name_map[name]]
    assert [pair for pair in versions if is_flexible(*pair) != load_request_schema(*pair).__flexible__] == []


def test_a_request_for_all_topics_differs_from_one_for_none() -> None:
    for version in metadata.VERSIONS:
        everything: tuple[list[metadata.AskedTopic] | None, ...] = (None, [])
        for topics in everything:
            frame = metadata.request(_ID, version, "c", topics)
            assert read_request(frame, 3, version)[1]["topics"] == topics
            assert metadata.parse_request(frame).topics == topics


def test_the_answer_to_an_unknown_version_of_api_versions_is_read_as_v0() -> None:
    frame = api_versions.response(_ID, 0, {18: (0, 3)}, error_code=api_versions.UNSUPPORTED_VERSION)
    response = api_versions.parse_response(frame, 4)
    assert (response.error_code, response.apis) == (35, {18: (0, 3)})


def test_a_varint_of_each_length_is_read_as_it_was_written() -> None:
    for value in (0, 127, 128, 16_383, 16_384, 2**21, 2**32 - 1):
        assert read_varint(varint(value) + b"x", 0) == (value, len(varint(value)))
    with pytest.raises(WireError):
        read_varint(b"\x80\x80\x80\x80\x80\x01", 0)


def test_a_tagged_field_that_nobody_knows_is_refused() -> None:
    frame = produce.response(_ID, 10, [])
    assert frame[-1:] == b"\0"
    with pytest.raises(WireError, match="unknown tagged fields"):
        produce.parse_response(resized(frame[:-1] + tagged_fields({1: b"x"})), 10)


def test_a_token_of_plain_is_read_as_it_was_written() -> None:
    token = sasl_authenticate.plain_token("alice", "é")
    assert sasl_authenticate.parse_plain_token(token) == ("alice", "é")
    with pytest.raises(WireError):
        sasl_authenticate.parse_plain_token(token + b"\0")


def test_batches_are_read_as_they_were_written() -> None:
    one = Batch("producer-3/17", 500, 5, 9, 2, 40, 0, -1, 123_456, is_transactional=True)
    other = Batch("é", 100_000)
    records = write_batch(one)
    assert len(records) == size_of_first(records) == 500
    assert parse_batch(records) == one
    both = appended(records, 70, 3) + write_batch(other)
    assert parse_batches(both) == [one._replace(base_offset=70, leader_epoch=3), other]
    with pytest.raises(WireError, match="2 batches"):
        parse_batch(both)


def test_a_batch_that_lost_gained_or_changed_a_byte_is_refused() -> None:
    records = write_batch(Batch("producer-3/17", 200, 5, 9, 2, 40))
    for end in range(1, len(records)):
        with pytest.raises(WireError):
            parse_batches(records[:end])
    with pytest.raises(WireError):
        parse_batches(records + b"\0")
    # The CRC covers neither the base offset nor the leader epoch, which the broker sets.
    for at in (*range(8, 12), *range(16, len(records))):
        damaged = bytearray(records)
        damaged[at] ^= 1
        with pytest.raises(WireError):
            parse_batches(bytes(damaged))


def test_the_piece_of_a_batch_at_the_end_is_thrown_away_unless_it_is_the_first() -> None:
    one, other = (write_batch(Batch(token, 200)) for token in "ab")
    for end in range(200):
        assert [batch.token for batch in parse_batches(one + other[:end], may_be_cut=True)] == ["a"]
    with pytest.raises(WireError):
        parse_batches(one[:199], may_be_cut=True)
    with pytest.raises(WireError):
        parse_batches(one + other[:199])


def test_the_header_of_a_batch_is_that_of_kafka() -> None:
    records = write_batch(Batch("token", 90, 5, 9, 2, 40, 70, 3, 123_456))
    fields = (0, 8), (8, 12), (12, 16), (16, 17), (21, 23), (23, 27), (27, 35), (35, 43), (43, 51), (51, 53), (53, 57)
    values = [int.from_bytes(records[begin:end], "big") for begin, end in (*fields, (57, 61))]
    assert values == [70, 90 - 12, 3, 2, 0, 4, 123_456, 123_456, 9, 2, 40, 5]
