"""Tests that a follower's Fetch request is read and written, against the frames of two codecs."""

from random import Random
from struct import pack

import pytest

from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.fetch import UNLIMITED_BYTES
from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch, read_request, write_request
from tests.protocol.support.fetches import NEWEST, Codec, Element, elements, regrouped
from tests.protocol.support.kio_messages import Untyped, framed, generated_scalar
from tests.protocol.support.replica_fetches import (
    MANY,
    REQUESTS,
    TOPIC,
    body_of,
    read_whole_request,
    tagged_request,
    unchanged,
)
from tests.support.cases import SEEDS, each_case


def check_request(codec: Codec, message: Untyped, request: ReplicaFetch) -> None:
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


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
@each_case("seed", SEEDS)
def test_changed_request_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
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


@pytest.mark.parametrize("version", range(12, NEWEST + 1))
def test_unknown_tags_of_a_request_are_kept(version: int) -> None:
    frame = tagged_request(version, forgotten=False)
    data, request = read_whole_request(frame, version)

    assert request.replica_id == 2
    assert len(request.partitions) == 6
    assert unchanged(data, request) == frame
    data, request = read_whole_request(tagged_request(version, forgotten=True), version)
    assert request.forgotten == [(bytes(15) + b"f" if version >= 13 else b"f", 0)] * 2
    assert unchanged(data, request) == frame
    narrowed = [(partition, 9 + 1) for partition in request.partitions]
    written = write_request(data, request, narrowed, max_wait_ms=500, max_bytes=1_000)
    assert written == frame.replace(pack(">qi", 8, 9), pack(">qi", 8, 10))


@each_case("codec", REQUESTS)
def test_truncated_request_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(2))
    body = body_of(frame)

    for size in range(len(frame)):
        for short in (frame[:size], framed(frame[4:size]), framed(frame[4:size]) + frame):
            with pytest.raises(ProtocolError):
                read_request(short, 0, body, codec.version)


@each_case("codec", REQUESTS)
@each_case("wrong_by", [1, 2**31 - 1, -1, None])
def test_request_with_a_wrong_size_field_is_refused(codec: Codec, wrong_by: int | None) -> None:
    frame = codec.frame(codec.example(2))
    # None stands for a negative size, which as a Python index would be two bytes before the end.
    size_bytes = -4 - 2 if wrong_by is None else min(len(frame) - 4 + wrong_by, 2**31 - 1)

    data = pack(">i", size_bytes) + frame[4:] + (b"??" if wrong_by is None else b"")

    with pytest.raises(ProtocolError):
        read_request(data, 0, body_of(frame), codec.version)


@each_case("codec", REQUESTS)
def test_request_with_extra_bytes_is_refused(codec: Codec) -> None:
    frame = codec.frame(codec.example(1))

    with pytest.raises(TrailingBytes):
        read_request(framed(frame[4:] + b"\0"), 0, body_of(frame), codec.version)


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
