"""Tests that a follower's Fetch response is read and written, against the frames of two codecs."""

from random import Random
from struct import pack
from typing import Final

import pytest

from kafka_quota_proxy.protocol import fetch
from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.fetch import FETCH_SESSION_ID_NOT_FOUND
from kafka_quota_proxy.protocol.primitives import Buffer, write_uvarint
from kafka_quota_proxy.protocol.replica_fetch.response import (
    ReplicaResponse,
    ResponsePartition,
    charged_bytes,
    empty_partition,
    make_response,
    read_response,
    truncate_partition,
    write_response,
)
from kafka_quota_proxy.protocol.replica_fetch.topics import Entry
from tests.protocol.support.fetches import NEWEST, Codec, Element, elements, regrouped
from tests.protocol.support.kio_messages import Untyped, framed
from tests.protocol.support.replica_fetches import (
    BEFORE,
    MANY,
    RESPONSES,
    TAGGED_TOPICS,
    TOPIC,
    UNKNOWN_TAGS,
    read_whole_response,
)
from tests.support.cases import SEEDS, each_case


def check_response(codec: Codec, message: Untyped, data: bytes, response: ReplicaResponse) -> None:
    assert response[:3] == (
        codec.get(message, "throttle_time_ms", 0) if codec.version else 0,
        codec.get(message, "error_code", 0) if codec.version >= 7 else 0,
        codec.get(message, "session_id", 0) if codec.version >= 7 else 0,
    )
    names = {
        "partition_index": None,
        "error_code": None,
        "high_watermark": None,
        "last_stable_offset": -1,
        "log_start_offset": -1,
    }
    expected = elements(codec, message)
    assert [partition[:6] for partition in response.partitions] == [
        (topic, *(codec.get(partition, name, default) for name, default in names.items()))
        for topic, partition in expected
    ]
    for partition, (_, of_message) in zip(response.partitions, expected, strict=True):
        assert data[partition.records : partition.records_end] == (of_message.records or b"")
        assert partition.begin < partition.records_at < partition.records <= partition.records_end <= partition.end


@pytest.mark.parametrize("codec", RESPONSES, ids=repr)
@each_case("seed", SEEDS)
def test_changed_response_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    version = codec.version

    data, response = read_whole_response(codec.frame(message), version)

    check_response(codec, message, data, response)
    entries, meant_entries = mixed_entries(codec, message, data, response, random)
    meant = regrouped(codec, message, meant_entries, session_id=0)
    assert write_response(data, len(BEFORE), response, entries, version) == codec.frame(meant)
    code = random.choice([0, FETCH_SESSION_ID_NOT_FOUND])
    ours = codec.changed(meant, throttle_time_ms=0, error_code=code, node_endpoints=codec.empty_array())
    assert make_response(7, entries, version, error_code=code) == codec.frame(ours)
    # Only these entries are charged (V40).
    assert charged_bytes(entries, version) == 4 + codec.body_bytes(ours)


def mixed_entries(
    codec: Codec, message: Untyped, data: bytes, response: ReplicaResponse, random: Random
) -> tuple[list[Entry], list[Element]]:
    """Return random entries, some truncated or empty, and the elements that the codec should read for them."""
    entries, meant = [], []
    partitions = elements(codec, message)
    for index in random.sample(range(len(partitions)), random.randrange(len(partitions) + 1)):
        ours, (topic, theirs) = response.partitions[index], partitions[index]
        if random.random() < 0.3:
            marks = {name: random.randrange(-1, 2**63) for name in ("high_watermark", *MARKS)}
            made: tuple[Buffer, ...] = (empty_partition(ours.partition, api_version=codec.version, **marks),)
            theirs = codec.partition(
                partition_index=ours.partition,
                error_code=0,
                aborted_transactions=None,
                preferred_read_replica=-1,
                records=b"",
                **marks,
            )
        else:
            records = theirs.records
            size_bytes = random.choice([0, len(records or b""), random.randrange(len(records or b"") + 1)])
            made = truncate_partition(data, ours, ours.records + size_bytes, codec.version)
            theirs = codec.changed(theirs, records=records if records is None else records[:size_bytes])
        entries.append(Entry(topic, made))
        meant.append(Element(topic, theirs))
    return entries, meant


MARKS: Final = ("last_stable_offset", "log_start_offset")


@pytest.mark.parametrize("version", range(12, NEWEST + 1))
def test_unknown_tags_of_a_response_are_kept(version: int) -> None:
    def frame(records: bytes) -> bytes:
        entry = (
            pack(">ihqqq", 4, 0, 6, 7, 8)
            + (b"\x02" + bytes(16) + UNKNOWN_TAGS + pack(">i", -1))
            + (write_uvarint(len(records) + 1) + records)
            + UNKNOWN_TAGS
        )
        names = [(bytes(15) if version >= 13 else b"\x02") + name for name, _ in TAGGED_TOPICS]
        tags = [tags for _, tags in TAGGED_TOPICS]
        topics = b"".join(name + b"\x03" + entry * 2 + tag for name, tag in zip(names, tags, strict=True))
        return framed(pack(">i", 7) + UNKNOWN_TAGS + pack(">ihi", 3, 0, 0) + b"\x04" + topics + UNKNOWN_TAGS)

    data, response = read_whole_response(frame(bytes(300)), version)

    assert response.throttle_time_ms == 3
    for size_bytes in (300, 299, 127, 126, 1, 0):
        entries = [
            Entry(one.topic, truncate_partition(data, one, one.records + size_bytes, version))
            for one in response.partitions
        ]
        assert write_response(data, len(BEFORE), response, entries, version) == frame(bytes(size_bytes))


def one_partition(version: int, records: bytes | None) -> tuple[bytes, ResponsePartition]:
    codec = RESPONSES[version]
    message = codec.example(1)
    element = elements(codec, message)[0]
    changed = Element(element.topic, codec.changed(element.partition, records=records))
    data, response = read_whole_response(codec.frame(regrouped(codec, message, [changed])), version)
    return data, response.partitions[0]


@each_case("version", range(NEWEST + 1))
def test_removed_records_are_empty_and_not_null(version: int) -> None:
    data, partition = one_partition(version, b"three")
    data_null, null = one_partition(version, None)
    data_none, none = one_partition(version, b"")

    blanked = b"".join(truncate_partition(data, partition, partition.records, version))

    assert blanked == b"".join(truncate_partition(data_none, none, none.records, version))
    assert b"".join(truncate_partition(data_null, null, null.records, version)) == data_null[null.begin : null.end]


@each_case("version", range(NEWEST + 1))
def test_records_are_not_copied_before_a_frame_is_joined(version: int) -> None:
    data, partition = one_partition(version, bytes(10_000))

    for size_bytes in (10_000, 9_000):
        parts = truncate_partition(data, partition, partition.records + size_bytes, version)
        assert [part.obj is data for part in parts if isinstance(part, memoryview)] in ([True], [True] * 3)
        assert sum(len(part) for part in parts if isinstance(part, bytes)) <= 4


@each_case(
    "version, charge", [(0, 8), *[(version, 12) for version in range(1, 7)], (7, 18), (11, 18), (12, 16), (17, 16)]
)
def test_an_empty_response_is_charged_what_kafka_charges(version: int, charge: int) -> None:
    """The charge is the same in each version, although the frame has one byte more from v12 on (V39)."""
    assert charged_bytes([], version) == charge
    frame = make_response(7, [], version)
    assert int.from_bytes(frame[:4]) == charge + (1 if version >= 12 else 0)
    assert fetch.charged_bytes(len(frame) - 4, version) == charge


@each_case("version", range(7, NEWEST + 1))
def test_own_response_may_have_an_error_code(version: int) -> None:
    frame = make_response(-7, [], version, error_code=FETCH_SESSION_ID_NOT_FOUND)

    assert frame[4:8] == pack(">i", -7)
    _, response = read_whole_response(frame, version)
    assert response[:4] == (0, FETCH_SESSION_ID_NOT_FOUND, 0, [])


@each_case("codec", RESPONSES)
def test_truncated_response_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(2))

    for size in range(len(frame)):
        for data in (frame[:size], frame):
            with pytest.raises(ProtocolError):
                read_response(data, 0, size, codec.version)
        with pytest.raises(ProtocolError):
            read_response(frame[:size], 0, len(frame), codec.version)


@each_case("codec", RESPONSES)
def test_response_with_extra_bytes_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(1)) + b"\0"

    with pytest.raises(TrailingBytes):
        read_response(frame, 0, len(frame), codec.version)


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        (MANY, MalformedLength),
        (TOPIC + MANY, MalformedLength),
        (TOPIC + b"\x02" + bytes(30) + MANY, MalformedLength),
        (TOPIC + b"\x02" + bytes(30) + b"\x00" + bytes(4) + MANY, Truncated),
        (TOPIC + b"\x02" + bytes(30) + b"\x00" + bytes(4) + b"\x01" + MANY, Truncated),
        (b"\x01" + MANY, Truncated),
    ],
    ids=["topics", "partitions", "aborted transactions", "records", "tags of an entry", "tags"],
)
def test_a_response_of_four_billion_elements_fails_at_once(counts: bytes, error: type[ProtocolError]) -> None:
    frame = framed(bytes(4) + b"\x00" + bytes(10) + counts + bytes(40))

    with pytest.raises(error):
        read_response(frame, 0, len(frame), 17)


@each_case("version", [0, 4, 11])
@each_case("lie", [-2, -(2**31), 2**31 - 1, 1_000])
def test_impossible_length_in_an_old_response_is_refused(version: int, lie: int) -> None:
    front = bytes(4) + bytes(0 if version == 0 else 4) + bytes(6 if version >= 7 else 0) + pack(">i", 1) + b"\0\1t"
    entry = bytes(14) + (bytes(8) if version >= 4 else b"") + (bytes(8) if version >= 5 else b"")
    aborted = pack(">i", -1) if version >= 4 else b""
    preferred = bytes(4) if version >= 11 else b""
    right = framed(front + pack(">i", 1) + entry + aborted + preferred + pack(">i", 5) + b"12345")
    assert read_response(right, 0, len(right), version).partitions[0].records_end == len(right)

    lies = [
        front + pack(">i", lie) + entry + aborted + preferred + pack(">i", 5) + b"12345",
        front + pack(">i", 1) + entry + aborted + preferred + pack(">i", lie) + b"12345",
        front + pack(">i", 1) + entry + aborted + preferred + pack(">i", lie),
    ]
    if version >= 4:
        lies.append(front + pack(">i", 1) + entry + pack(">i", lie) + preferred + pack(">i", 5) + b"12345")
    for wrong in map(framed, lies):
        with pytest.raises(ProtocolError):
            read_response(wrong, 0, len(wrong), version)
    longer = framed(lies[1])
    with pytest.raises(Truncated if lie > 0 else MalformedLength):
        read_response(longer, 0, len(longer), version)
