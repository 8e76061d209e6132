"""A follower's Fetch, read and written anew, against the frames that two codecs write of what was meant."""

from itertools import accumulate, pairwise
from random import Random
from struct import pack
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecordsBuilder

from kafka_quota_proxy.protocol import fetch
from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.fetch import UNLIMITED_BYTES
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.protocol.primitives import Buffer, write_uvarint
from kafka_quota_proxy.protocol.replica_fetch import (
    Entry,
    ReplicaFetch,
    ReplicaResponse,
    ResponsePartition,
    charged_bytes,
    empty_partition,
    end_of_whole_batches,
    first_batch_size,
    make_response,
    read_request,
    read_response,
    truncate_partition,
    write_request,
    write_response,
)
from tests.protocol.support.fetches import FETCH, NEWEST, Codec, Element, codecs, elements, regrouped
from tests.protocol.support.kio_messages import Untyped, framed, generated_scalar

LIMIT: Final = 100 * 1024 * 1024
BEFORE, BEHIND = b"before", b"\xff\xff\x02behind"
FETCH_SESSION_ID_NOT_FOUND: Final = 70
REQUESTS, RESPONSES = codecs("request"), codecs("response")
SEEDS = st.integers(0, 2**64)
# As many in all as of any other property: each runs once per version and codec.
SOME = settings(max_examples=max(settings().max_examples // 5, 10))


def body_of(frame: bytes) -> int:
    head = read_request_head(frame, 0, LIMIT)
    assert isinstance(head, RequestHead)
    return head.body


def read_whole_request(frame: bytes, version: int) -> tuple[bytes, ReplicaFetch]:
    """Read a request that others' bytes lie around; return them all."""
    data = BEFORE + frame + BEHIND
    request = read_request(data, len(BEFORE), len(BEFORE) + body_of(frame), version)
    assert (request.position, request.end) == (len(BEFORE), len(BEFORE) + len(frame))
    return data, request


def read_whole_response(frame: bytes, version: int) -> tuple[bytes, ReplicaResponse]:
    data = BEFORE + frame + BEHIND
    response = read_response(data, len(BEFORE), len(frame), version)
    assert response.end == len(BEFORE) + len(frame)
    return data, response


# -- requests


def check_request(codec: Codec, message: Untyped, request: ReplicaFetch) -> None:
    """Check each value that was read against the message's own."""
    state = codec.get(message, "replica_state", None)
    expected_id = codec.get(message, "replica_id", None) if state is None else state.replica_id
    assert request[:6] == (
        expected_id,
        codec.get(message, "max_wait_ms", None),
        codec.get(message, "min_bytes", None),
        codec.get(message, "max_bytes", UNLIMITED_BYTES),
        codec.get(message, "session_id", 0),
        codec.get(message, "session_epoch", -1),
    )
    names = {"partition": None, "current_leader_epoch": -1, "fetch_offset": None, "partition_max_bytes": None}
    assert [partition[:5] for partition in request.partitions] == [
        (topic, *(codec.get(partition, name, default) for name, default in names.items()))
        for topic, partition in elements(codec, message)
    ]
    for one, other in pairwise(request.partitions):
        assert one.begin < one.end <= other.begin


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
@SOME
@given(seed=SEEDS)
def test_a_request_is_read_and_written_anew_as_a_codec_would_write_it(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    client_id = random.choice([None, "", generated_scalar("string", random)])

    data, request = read_whole_request(codec.frame(message, client_id), codec.version)

    check_request(codec, message, request)
    partitions = elements(codec, message)
    indices = random.sample(range(len(partitions)), random.randrange(len(partitions) + 1))
    limits = [random.choice([request.partitions[index].max_bytes, 0, 2**31 - 1]) for index in indices]
    chosen = [(request.partitions[index], limit) for index, limit in zip(indices, limits, strict=True)]
    values = {"max_wait_ms": random.choice([0, 500]), "max_bytes": random.choice([0, 2**31 - 1])}
    session = random.choice([{}, {"session_id": 7, "session_epoch": 2**31 - 1}])

    written = write_request(data, request, chosen, **values, **session)

    meant = regrouped(
        codec,
        message,
        [
            Element(partitions[index].topic, codec.changed(partitions[index].partition, partition_max_bytes=limit))
            for index, limit in zip(indices, limits, strict=True)
        ],
        forgotten_topics_data=codec.empty_array(),
        **({"session_id": 0, "session_epoch": -1} | values | session),
    )
    assert written == codec.frame(meant, client_id)


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
@SOME
@given(seed=SEEDS)
def test_a_request_of_which_nothing_is_changed_is_the_same(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    whole = regrouped(codec, message, elements(codec, message), forgotten_topics_data=codec.empty_array())
    frame = codec.frame(whole)

    data, request = read_whole_request(frame, codec.version)

    assert unchanged(data, request) == frame


def unchanged(data: bytes, request: ReplicaFetch) -> bytes:
    return write_request(
        data,
        request,
        [(partition, partition.max_bytes) for partition in request.partitions],
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
    )


UNKNOWN_TAGS: Final = b"\x02\x05\x03abc\xc8\x01\x00"


def tagged_request(version: int, *, forgotten: bool) -> bytes:
    """Return a request (v12+) with unknown tags wherever there can be any."""
    replica_id = b"" if version >= 15 else pack(">i", 2)
    topic = (bytes(15) + b"%c", 16) if version >= 13 else (b"\x02%c", 2)
    entry = pack(">iiqiqi", 4, 5, 6, 7, 8, 9)
    topics = b"".join(topic[0] % name + b"\x03" + (entry + UNKNOWN_TAGS) * 2 + tags for name, tags in TAGGED_TOPICS)
    forgotten_topics = b"\x02" + topic[0] % b"f" + b"\x03" + bytes(8) + UNKNOWN_TAGS if forgotten else b"\x01"
    state = b"\x01\x0d" + pack(">iqB", 2, 3, 0) if version >= 15 else b"\x01\x00"
    tags = b"\x03" + b"\x00\x03\x03id" + state + b"\x09\x01x"
    header = pack(">hhih", FETCH, version, 7, 3) + b"etl" + UNKNOWN_TAGS
    front = replica_id + pack(">iiibii", 500, 1, 1_000, 0, 0, -1)
    return framed(header + front + b"\x04" + topics + forgotten_topics + b"\x05rack" + tags)


TAGGED_TOPICS: Final = ((b"a", UNKNOWN_TAGS), (b"b", b"\x00"), (b"c", b"\x01\x00\x01?"))


@pytest.mark.parametrize("version", range(12, NEWEST + 1))
def test_unknown_tags_of_a_request_are_kept(version: int) -> None:
    frame = tagged_request(version, forgotten=False)
    data, request = read_whole_request(frame, version)

    assert request.replica_id == 2
    assert len(request.partitions) == 6
    assert unchanged(data, request) == frame
    data, request = read_whole_request(tagged_request(version, forgotten=True), version)
    assert unchanged(data, request) == frame
    narrowed = [(partition, 9 + 1) for partition in request.partitions]
    written = write_request(data, request, narrowed, max_wait_ms=500, max_bytes=1_000)
    assert written == frame.replace(pack(">qi", 8, 9), pack(">qi", 8, 10))


@pytest.mark.parametrize("version", [12, 17])
def test_tags_of_an_entry_that_is_left_out_are_not_those_of_its_neighbours(version: int) -> None:
    data, request = read_whole_request(tagged_request(version, forgotten=False), version)
    last_first = [(request.partitions[index], 9) for index in (5, 0)]

    written = write_request(data, request, last_first, max_wait_ms=0, max_bytes=0)

    _, again = read_whole_request(written, version)
    assert [partition.topic[-1:] for partition in again.partitions] == [b"c", b"a"]
    assert {topic[-1:]: tags for topic, tags in again.topic_tags.items()} == {
        b"c": b"\x01\x00\x01?",
        b"a": UNKNOWN_TAGS,
    }


@pytest.mark.parametrize("version", [12, 17])
def test_tags_of_a_topic_that_comes_again_and_again_do_not_multiply(version: int) -> None:
    data, request = read_whole_request(tagged_request(version, forgotten=False), version)
    alternating = [(request.partitions[index], 9) for index in (0, 2, 1, 3, 0, 2)]

    written = write_request(data, request, alternating, max_wait_ms=0, max_bytes=0)

    _, again = read_whole_request(written, version)
    assert [partition.topic[-1:] for partition in again.partitions] == [b"a", b"b"] * 3
    assert written.count(UNKNOWN_TAGS) == 1 + 6 + 1  # of the header, of each entry, of the first group


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_a_partition_that_comes_twice_is_read_twice(version: int) -> None:
    codec = REQUESTS[version]
    data, request = read_whole_request(codec.frame(codec.example(3)), version)

    assert len(request.partitions) == 9
    assert len({partition[:5] for partition in request.partitions}) == 1
    _, again = read_whole_request(unchanged(data, request), version)
    assert [partition[:5] for partition in again.partitions] == [partition[:5] for partition in request.partitions]


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
def test_a_request_cut_anywhere_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(2))
    body = body_of(frame)

    for size in range(len(frame)):
        for short in (frame[:size], framed(frame[4:size]), framed(frame[4:size]) + frame):
            with pytest.raises(ProtocolError):
                read_request(short, 0, body, codec.version)


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
@pytest.mark.parametrize("wrong_by", [1, 2**31 - 1, -1, None])
def test_a_request_of_another_size_than_stands_in_front_is_refused(codec: Codec, wrong_by: int | None) -> None:
    frame = codec.frame(codec.example(2))
    # None: two bytes from the end of the data, if they were counted from there.
    size_bytes = -4 - 2 if wrong_by is None else min(len(frame) - 4 + wrong_by, 2**31 - 1)

    data = pack(">i", size_bytes) + frame[4:] + (b"??" if wrong_by is None else b"")

    with pytest.raises(ProtocolError):
        read_request(data, 0, body_of(frame), codec.version)


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
def test_a_request_with_bytes_left_over_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(1))

    with pytest.raises(TrailingBytes):
        read_request(framed(frame[4:] + b"\0"), 0, body_of(frame), codec.version)


# -- responses

BATCH_LENGTHS: Final = st.lists(st.integers(26, 300), max_size=20)


def check_response(codec: Codec, message: Untyped, data: bytes, response: ReplicaResponse) -> None:
    """Check each value that was read against the message's own."""
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
@SOME
@given(seed=SEEDS)
def test_a_response_is_read_and_written_anew_as_a_codec_would_write_it(codec: Codec, seed: int) -> None:
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
    # V40: the charge is of only these entries.
    assert charged_bytes(entries, version) == 4 + codec.body_bytes(ours)


def mixed_entries(
    codec: Codec, message: Untyped, data: bytes, response: ReplicaResponse, random: Random
) -> tuple[list[Entry], list[Element]]:
    """Take some entries in any order, some cut, some replaced by empty ones; return them, and a codec's own."""
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


@pytest.mark.parametrize("codec", RESPONSES, ids=repr)
@SOME
@given(seed=SEEDS)
def test_a_response_of_which_nothing_is_changed_is_the_same(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    frame = codec.frame(regrouped(codec, message, elements(codec, message), session_id=0))

    data, response = read_whole_response(frame, codec.version)

    entries = [
        Entry(one.topic, truncate_partition(data, one, one.records_end, codec.version)) for one in response.partitions
    ]
    assert write_response(data, len(BEFORE), response, entries, codec.version) == frame


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


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_records_that_are_blanked_are_none_and_not_null(version: int) -> None:
    data, partition = one_partition(version, b"three")
    data_null, null = one_partition(version, None)
    data_none, none = one_partition(version, b"")

    blanked = b"".join(truncate_partition(data, partition, partition.records, version))

    assert blanked == b"".join(truncate_partition(data_none, none, none.records, version))
    assert b"".join(truncate_partition(data_null, null, null.records, version)) == data_null[null.begin : null.end]


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_records_are_not_copied_before_a_frame_is_put_together(version: int) -> None:
    data, partition = one_partition(version, bytes(10_000))

    for size_bytes in (10_000, 9_000):
        parts = truncate_partition(data, partition, partition.records + size_bytes, version)
        assert [part.obj is data for part in parts if isinstance(part, memoryview)] in ([True], [True] * 3)
        assert sum(len(part) for part in parts if isinstance(part, bytes)) <= 4


@pytest.mark.parametrize(
    ("version", "charge"), [(0, 8), *[(version, 12) for version in range(1, 7)], (7, 18), (11, 18), (12, 16), (17, 16)]
)
def test_an_empty_response_is_charged_what_kafka_charges(version: int, charge: int) -> None:
    """V39: constant charges of an empty Fetch response; the frame has one byte more than that from v12 on."""
    assert charged_bytes([], version) == charge
    frame = make_response(7, [], version)
    assert int.from_bytes(frame[:4]) == charge + (1 if version >= 12 else 0)
    assert fetch.charged_bytes(len(frame) - 4, version) == charge


@pytest.mark.parametrize("version", range(7, NEWEST + 1))
def test_an_answer_may_say_that_a_session_is_not_found(version: int) -> None:
    frame = make_response(-7, [], version, error_code=FETCH_SESSION_ID_NOT_FOUND)

    assert frame[4:8] == pack(">i", -7)
    _, response = read_whole_response(frame, version)
    assert response[:4] == (0, FETCH_SESSION_ID_NOT_FOUND, 0, [])


@pytest.mark.parametrize("codec", RESPONSES, ids=repr)
def test_a_response_cut_anywhere_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(2))

    for size in range(len(frame)):
        for data in (frame[:size], frame):
            with pytest.raises(ProtocolError):
                read_response(data, 0, size, codec.version)
        with pytest.raises(ProtocolError):
            read_response(frame[:size], 0, len(frame), codec.version)


@pytest.mark.parametrize("codec", RESPONSES, ids=repr)
def test_a_response_with_bytes_left_over_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(1)) + b"\0"

    with pytest.raises(TrailingBytes):
        read_response(frame, 0, len(frame), codec.version)


# -- anybody's bytes

MANY: Final = b"\xff\xff\xff\xff\x0f"
TOPIC: Final = b"\x02" + bytes(16)


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        (MANY, MalformedLength),
        (TOPIC + MANY, MalformedLength),
        (b"\x01" + MANY, MalformedLength),
        (b"\x01" + TOPIC + MANY, MalformedLength),
        (b"\x01\x01" + MANY, MalformedLength),
        (TOPIC + b"\x02" + bytes(32) + MANY, Truncated),
    ],
    ids=["topics", "partitions", "forgotten topics", "forgotten partitions", "rack", "tags of an entry"],
)
def test_a_request_of_four_billion_elements_fails_at_once(counts: bytes, error: type[ProtocolError]) -> None:
    frame = framed(bytes(11) + bytes(21) + counts + bytes(40))

    with pytest.raises(error):
        read_request(frame, 0, 4 + 11, 17)


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


@pytest.mark.parametrize("version", [0, 4, 11])
@pytest.mark.parametrize("lie", [-2, -(2**31), 2**31 - 1, 1_000])
def test_a_length_of_an_old_response_that_cannot_be_is_refused(version: int, lie: int) -> None:
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


@pytest.mark.parametrize("version", range(NEWEST + 1))
@given(data=st.binary(max_size=120), position=st.integers(0, 20), size=st.integers(-10, 140))
def test_any_bytes_give_values_or_an_error(version: int, data: bytes, position: int, size: int) -> None:
    for sized in (data, data[:position] + pack(">i", max(size, -(2**31))) + data[position + 4 :]):
        try:
            request = read_request(sized, position, position + 10, version)
        except ProtocolError:
            continue
        assert position + 10 < request.end <= len(sized)
        assert all(0 <= one.begin < one.end <= request.end for one in request.partitions)
    try:
        response = read_response(data, position, size, version)
    except ProtocolError:
        return
    assert response.end == position + size
    assert all(0 <= one.begin < one.end <= response.end for one in response.partitions)


@pytest.mark.parametrize("codec", [*REQUESTS, *RESPONSES], ids=repr)
@SOME
@given(at=st.integers(0, 10_000), lie=st.one_of(st.binary(min_size=1, max_size=5), st.just(MANY)))
def test_a_frame_that_lies_gives_values_or_an_error(codec: Codec, at: int, lie: bytes) -> None:
    frame = codec.frame(codec.example(2))
    body = body_of(frame) if codec.kind == "request" else 8
    at = body + at % (len(frame) - body)
    lying = framed(frame[4:at] + lie + frame[at + len(lie) :])
    try:
        if codec.kind == "request":
            request = read_request(lying, 0, body, codec.version)
            assert read_whole_request(unchanged(lying, request), codec.version)
        else:
            response = read_response(lying, 0, len(lying), codec.version)
            entries = [
                Entry(one.topic, truncate_partition(lying, one, one.records, codec.version))
                for one in response.partitions
            ]
            assert read_whole_response(write_response(lying, 0, response, entries, codec.version), codec.version)
    except ProtocolError:
        return


# -- batches


def batch_bytes(magic: int, value_bytes: int) -> bytes:
    """Return a batch of one record, or a message of magic 0 or 1, as kafka-python writes it."""
    builder = MemoryRecordsBuilder(magic=magic, compression_type=0, batch_size=1_000_000)
    builder.append(key=None, value=bytes(value_bytes), timestamp=1_700_000_000_000 if magic else None)
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.parametrize("magic", [0, 1, 2])
@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=9), cut_at=st.integers(0, 5_000), begin=st.integers(0, 9)
)
@example(sizes=[30] * 9, cut_at=190, begin=0)
def test_only_whole_batches_are_taken(magic: int, sizes: list[int], cut_at: int, begin: int) -> None:
    """V45: records may end in a part of a batch, at exactly ``partition_max_bytes``."""
    batches = [batch_bytes(magic, size) for size in sizes]
    edges = [begin, *accumulate(map(len, batches), initial=begin)]
    data = bytes(begin) + b"".join(batches)
    end = min(begin + cut_at, len(data))

    whole = end_of_whole_batches(data, begin, end)

    assert whole == max(edge for edge in edges if edge <= end)
    assert end_of_whole_batches(data[:end], begin, end) == whole
    assert end_of_whole_batches(memoryview(data), begin, end) == whole


def test_batches_of_all_magics_lie_behind_each_other() -> None:
    data = b"".join(batch_bytes(magic, 10) for magic in (2, 0, 1, 2))

    assert end_of_whole_batches(data, 0, len(data)) == len(data)
    assert end_of_whole_batches(data, 0, len(data) - 1) == len(data) - len(batch_bytes(2, 10))


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 1, 13, 100, 2**31 - 1])
def test_a_batch_of_an_impossible_length_is_not_whole(length: int) -> None:
    first = batch_bytes(2, 10)
    data = first + pack(">qi", 1, length) + bytes(60)

    assert end_of_whole_batches(data, 0, len(data)) == len(first)
    assert end_of_whole_batches(data, len(first), len(data)) == len(first)


def test_the_shortest_message_is_whole() -> None:
    """Source: ``LegacyRecord.RECORD_OVERHEAD_V0`` in Apache Kafka: 14 bytes, of which neither key nor value is any."""
    data = pack(">qi", 0, 14) + bytes(14)

    assert end_of_whole_batches(data, 0, len(data)) == 26
    assert end_of_whole_batches(data, 0, 25) == 0


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_first_batch_says_how_long_it_is_although_it_is_cut_off(magic: int) -> None:
    batch = batch_bytes(magic, 10)

    for end in range(len(batch) + 20):
        size_bytes = first_batch_size(b"?" * 5 + batch + bytes(20), 5, 5 + end)
        assert size_bytes == (len(batch) if end >= 12 else 0)


@pytest.mark.parametrize(("length", "size_bytes"), [(-(2**31), 0), (-13, 0), (-12, 0), (2**31 - 1, 2**31 + 11)])
def test_the_first_batch_may_say_anything(length: int, size_bytes: int) -> None:
    assert first_batch_size(pack(">qi", 0, length), 0, 12) == size_bytes


@given(data=st.binary(max_size=200), begin=st.integers(0, 200), end=st.integers(0, 200))
def test_any_records_end_within_their_bounds(data: bytes, begin: int, end: int) -> None:
    begin, end = sorted((min(begin, len(data)), min(end, len(data))))

    assert begin <= end_of_whole_batches(data, begin, end) <= end
