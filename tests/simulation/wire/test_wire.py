"""Kio's writer, which is generated from Kafka's message files, writes what the simulated actors write.

Kio's reader gives it back to them, and refuses all that is not whole.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from tests.simulation.wire import administration, greeting, groups, transfer
from tests.simulation.wire.api import Api, response_schema, whole_response
from tests.simulation.wire.common import Leader, NodeEndpoint, RequestHeader, WireError, parse_header
from tests.simulation.wire.records import Batch, appended, parse_batch, parse_batches, write_batch
from tests.simulation.wire.schema import Untyped, matched

_ID = 7_654_321
# The first field of a request, and that of a response.
FIRST = ("header", "correlation_id")
_APIS = [api for module in (transfer, groups, administration, greeting)
         for api in vars(module).values() if isinstance(api, Api)]  # fmt: skip
_CASES = [(api, version) for api in _APIS for version in api.versions]
_EACH = pytest.mark.parametrize(
    ("api", "version"), _CASES, ids=[f"{api.request_class.__name__}-v{version}" for api, version in _CASES]
)


def example(schema: Untyped, named: Untyped, random: Random) -> Untyped:
    """Return a named tuple at random. What the version lacks has its default."""
    fields = [field for field in matched(schema, named) if field.at is not None]
    return named(**{name: None for name in FIRST if name in named._fields},
                 **{named._fields[field.at]: a_value(field, random) for field in fields})  # fmt: skip


def a_value(field: Untyped, random: Random) -> Untyped:
    if field.is_array:
        least = 1 if "tag" in field.field.metadata else 0  # an empty one is not written
        return [one_value(field, random) for _ in range(random.randint(least, 3))]
    return None if field.kafka == "string" and field.is_nullable and random.random() < 0.3 else one_value(field, random)


def one_value(field: Untyped, random: Random) -> Untyped:
    if field.struct is not None:
        return example(field.struct, field.named, random)
    match field.kafka:
        case "string":
            return "".join(random.choices("aé", k=random.randrange(20)))
        case "uuid":
            return random.randbytes(16)
        case "bytes" | "records":
            return random.randbytes(random.randrange(200))
        case "bool":
            return random.random() < 0.5
    return random.randrange(100)


def examples(api: Untyped, version: int) -> list[tuple[Untyped, Untyped]]:
    """Return requests and responses of a version, each with kio's class."""
    random = Random(version)
    request = load_request_schema(api.key, version), api.request_class
    pairs = request, (response_schema(api.key, version), api.response_class)
    return [(schema, example(schema, named, random)) for _ in range(5) for schema, named in pairs]


def frame_of(api: Untyped, version: int, message: Untyped) -> bytes:
    if isinstance(message, api.request_class):
        frame: bytes = Api.request(api, _ID, version, "etl-é", *message[1:])
    else:
        frame = Api.response(api, _ID, version, *message[1:])
    return frame


def parse_of(api: Untyped, version: int, message: Untyped) -> Callable[[bytes], Any]:
    if isinstance(message, api.request_class):
        parse: Callable[[bytes], Any] = partial(Api.parse_request, api)
    else:
        parse = partial(Api.parse_response, api, version=version)
    return parse


@_EACH
def test_kio_writes_the_same(api: Untyped, version: int) -> None:
    for schema, message in examples(api, version):
        frame = frame_of(api, version, message)
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        header, size = entity_reader(schema.__header_schema__)(frame, 4)
        assert header.correlation_id == _ID
        body = entity_reader(schema)(frame, 4 + size)[0]
        written = io.BytesIO()
        entity_writer(schema.__header_schema__)(written, header)
        entity_writer(schema)(written, body)
        assert written.getvalue() == frame[4:]


@_EACH
def test_what_was_written_is_read_again(api: Untyped, version: int) -> None:
    for _, message in examples(api, version):
        frame = frame_of(api, version, message)
        assert parse_of(api, version, message)(frame)[1:] == message[1:]


def places(schema: Untyped, named: Untyped) -> Iterator[tuple[Untyped, str]]:
    """Yield each field of a named tuple that one of kio's stands for, and those of the structs in it."""
    for field in matched(schema, named):
        if field.at is not None:
            yield named, named._fields[field.at]
        if field.at is not None and field.named is not None:
            yield from places(field.struct, field.named)


@pytest.mark.parametrize("api", _APIS, ids=lambda api: api.request_class.__name__)
def test_each_field_is_one_of_kios_in_some_version(api: Untyped) -> None:
    found = {place for version in api.versions for schema, message in examples(api, version)
             for place in places(schema, type(message))}  # fmt: skip
    for named in {named for named, _ in found}:
        assert {name for each, name in found if each is named} == set(named._fields) - set(FIRST)


def test_the_same_name_stands_for_the_right_one_of_several() -> None:
    partition = transfer.FetchedPartition(1, b"records", 6, 50, 49, 48, 2, Leader(6, 7))
    body = whole_response(transfer.fetch.response(_ID, 12, [transfer.FetchedTopic("t", [partition])]), 1, 12)
    (found,) = body.responses[0].partitions
    assert (body.responses[0].topic, found.partition_index, found.records, found.error_code) == ("t", 1, b"records", 6)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (50, 49, 48)
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (6, 7)
    assert (found.preferred_read_replica, found.aborted_transactions) == (2, [])


def test_a_fetch_response_may_hide_its_endpoints() -> None:
    endpoints = [NodeEndpoint(4, "b4", 9092)]
    frame = transfer.fetch.response(_ID, 16, [], endpoints=endpoints)
    at = frame.rindex(b"\1\0", 0, frame.index(b"b4"))
    hidden = frame[: at + 1] + b"\x7f" + frame[at + 2 :]
    assert transfer.fetch.parse_response(frame, 16).endpoints == endpoints
    assert transfer.fetch.parse_response(hidden, 16).endpoints == ()
    assert whole_response(hidden, 1, 16).hidden_endpoints == whole_response(frame, 1, 16).node_endpoints


def resized(frame: bytes) -> bytes:
    """Return a frame whose size is right, however it was cut or damaged."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


def parsers() -> Iterator[tuple[Callable[[bytes], object], bytes]]:
    for api, version in _CASES:
        for _, message in examples(api, version)[:2]:
            yield parse_of(api, version, message), frame_of(api, version, message)


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
    frame = transfer.produce.request(_ID, 9, "c", [])
    with pytest.raises(WireError, match="API 0 v9 where API 1"):
        transfer.fetch.parse_request(frame)
    unknown = frame[:6] + (transfer.produce.versions.stop).to_bytes(2, "big") + frame[8:]
    with pytest.raises(WireError):
        transfer.produce.parse_request(unknown)


@pytest.mark.parametrize("client_id", [None, "", "é" * 300])
def test_each_client_id_is_read_from_both_headers(client_id: str | None) -> None:
    for version in (8, 9):
        frame = transfer.produce.request(_ID, version, client_id, [])
        schema = load_request_schema(transfer.produce.key, version)
        assert entity_reader(schema.__header_schema__)(frame, 4)[0].client_id == client_id
        assert parse_header(frame)[:4] == RequestHeader(0, version, _ID, client_id, 0)[:4]


def test_a_coordinator_is_one_of_a_list_in_each_version() -> None:
    for version in groups.find_coordinator.versions:
        key = "g" if version >= 4 else ""
        found = [groups.Coordinator(key, 4, "b4", 9092, 15, "none" if version else None)]
        assert groups.find_coordinator.parse_request(
            groups.find_coordinator.request(_ID, version, "c", ["g"])
        ).keys == ["g"]
        frame = groups.find_coordinator.response(_ID, version, found)
        assert groups.find_coordinator.parse_response(frame, version).coordinators == found


def test_the_answer_to_an_unknown_version_of_api_versions_is_read_as_v0() -> None:
    frame = greeting.api_versions.response(_ID, 0, {18: (0, 3)}, error_code=greeting.UNSUPPORTED_VERSION)
    response = greeting.api_versions.parse_response(frame, 4)
    assert (response.error_code, response.apis) == (35, [(18, 0, 3)])


def test_batches_are_read_as_they_were_written() -> None:
    one = Batch("producer-3/17", 500, 5, 9, 2, 40, 0, -1, 123_456, is_transactional=True)
    other = Batch("é", 100_000)
    records = write_batch(one)
    assert len(records) == 500
    assert parse_batch(records) == one
    both = appended(records, 70, 3) + write_batch(other)
    assert parse_batches(both) == [one._replace(base_offset=70, leader_epoch=3), other]


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
