"""Tests refusals against the frames of two codecs, and which requests must not be refused."""

from collections.abc import Callable
from itertools import cycle
from random import Random
from struct import pack
from typing import Any, Final

import pytest

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.codec import MAX_ELEMENTS, framed
from kafka_quota_proxy.protocol.primitives import written_count
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.protocol.topic_mutations import FIRST_REFUSABLE_VERSION, read_request, refuse_all_topics
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.codecs import Codec, KafkaPython, Kio, codecs
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import SEEDS, each_case

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
COMMIT, JOIN = int(ApiKey.OFFSET_COMMIT), int(ApiKey.JOIN_GROUP)
REFUSED: Final = (PRODUCE, FETCH, COMMIT, JOIN, *map(int, FIRST_REFUSABLE_VERSION))
NOT_ENOUGH_REPLICAS, COORDINATOR_LOAD_IN_PROGRESS = 19, 14


def check(codec: Codec, written: bytes | None, correlation_id: int, **values: object) -> None:
    """Assert that a response is what kafka-python writes with these values, and that kio can read it."""
    responses = KafkaPython("response", codec.api_key, codec.version)
    assert written == responses.frame(responses.made(**values), correlation_id=correlation_id)
    if isinstance(codec, Kio):
        Kio("response", codec.api_key, codec.version).decoded(written)


def same_topics(codec: Codec, topics: Untyped, path: str, element: Callable[[Any], dict[str, object]]) -> list[Untyped]:
    """Return the topics of a request as topics of its response, with ``element`` of each partition."""
    responses = KafkaPython("response", codec.api_key, codec.version)
    array, inner = path.split(".")
    inner_of_request = "partition_data" if codec.api_key == PRODUCE else inner
    return [
        responses.element(
            array,
            name=getattr(topic, "name", None),
            topic_id=getattr(topic, "topic_id", None),
            **{inner: [responses.element(path, **element(one)) for one in getattr(topic, inner_of_request)]},
        )
        for topic in topics
    ]


def made(codec: Codec, random: Random, **values: object) -> tuple[Untyped, bytes]:
    message = codec.changed(codec.generated(random), **values)
    client_id = random.choice([None, "", "etl"])
    return message, codec.frame(message, correlation_id=-5, client_id=client_id)


@pytest.mark.parametrize("codec", codecs("request", PRODUCE), ids=repr)
@each_case("seed, acks", zip(SEEDS, cycle([1, -1])))
def test_produce_gets_not_enough_replicas_for_each_partition(codec: Codec, seed: int, acks: int) -> None:
    message, frame = made(codec, Random(seed), acks=acks)  # noqa: S311

    def partition(sent: Untyped) -> dict[str, object]:
        nothing = {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1}
        return {
            "index": sent.index,
            "error_code": NOT_ENOUGH_REPLICAS,
            **nothing,
            "record_errors": [],
            "error_message": None,
        }

    check(
        codec,
        refusal_response(frame, throttle_time_ms=700),
        -5,
        responses=same_topics(codec, message.topic_data, "responses.partition_responses", partition),
        throttle_time_ms=700,
    )


@each_case("codec", codecs("request", PRODUCE))
def test_produce_with_acks_0_is_not_refused(codec: Codec) -> None:
    _, frame = made(codec, Random(1), acks=0)  # noqa: S311

    assert refusal_response(frame, throttle_time_ms=700) is None


@pytest.mark.parametrize("codec", codecs("request", FETCH), ids=repr)
@each_case("seed, throttle_time_ms", zip(SEEDS, cycle([0, 1, 700])))
def test_fetch_gets_an_empty_response_without_session(codec: Codec, seed: int, throttle_time_ms: int) -> None:
    _, frame = made(codec, Random(seed), **replica(codec, -1))  # noqa: S311

    written = refusal_response(frame, throttle_time_ms=throttle_time_ms)

    # Without a throttle time, a client would take this response for an invalid one.
    check(codec, written, -5, responses=[], throttle_time_ms=max(1, throttle_time_ms), error_code=0, session_id=0)


def replica(codec: Codec, replica_id: int) -> dict[str, object]:
    if codec.version < 15:
        return {"replica_id": replica_id}
    if isinstance(codec, Kio):
        state = codec.cls.__dataclass_fields__["replica_state"].type
        return {"replica_state": state(replica_id=replica_id, replica_epoch=3)}
    field = codec.cls.fields["replica_state"]
    return {"replica_state": field.data_class(version=codec.version, replica_id=replica_id, replica_epoch=3)}


@each_case("codec", codecs("request", FETCH))
def test_fetch_of_a_follower_is_not_refused(codec: Codec) -> None:
    _, frame = made(codec, Random(1), **replica(codec, 3))  # noqa: S311

    assert refusal_response(frame, throttle_time_ms=700) is None


@pytest.mark.parametrize("codec", codecs("request", JOIN), ids=repr)
@each_case("seed", SEEDS)
def test_join_group_gets_coordinator_loading_and_keeps_its_member_id(codec: Codec, seed: int) -> None:
    message, frame = made(codec, Random(seed))  # noqa: S311

    check(
        codec,
        refusal_response(frame, throttle_time_ms=700),
        -5,
        throttle_time_ms=700,
        error_code=COORDINATOR_LOAD_IN_PROGRESS,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None if codec.version >= 7 else "",
        leader="",
        skip_assignment=False,
        member_id=message.member_id,
        members=[],
    )


@pytest.mark.parametrize("codec", codecs("request", COMMIT), ids=repr)
@each_case("seed", SEEDS)
def test_offset_commit_gets_coordinator_loading(codec: Codec, seed: int) -> None:
    message, frame = made(codec, Random(seed))  # noqa: S311

    def partition(sent: Untyped) -> dict[str, object]:
        return {"partition_index": sent.partition_index, "error_code": COORDINATOR_LOAD_IN_PROGRESS}

    check(
        codec,
        refusal_response(frame, throttle_time_ms=700),
        -5,
        topics=same_topics(codec, message.topics, "topics.partitions", partition),
        throttle_time_ms=700,
    )


@pytest.mark.parametrize(
    "codec", [codec for key in FIRST_REFUSABLE_VERSION for codec in codecs("request", key)], ids=repr
)
@each_case("seed", SEEDS)
def test_mutations_are_refused_from_the_first_version_that_knows_the_error(codec: Codec, seed: int) -> None:
    _, frame = made(codec, Random(seed))  # noqa: S311

    written = refusal_response(frame, throttle_time_ms=700)

    is_strict = codec.version >= FIRST_REFUSABLE_VERSION[codec.api_key]
    assert written == (refuse_all_topics(read_request(frame), throttle_time_ms=700) if is_strict else None)


# -- requests that are not refused


def test_no_other_api_is_refused() -> None:
    for api_key, version in kio_messages.api_versions():
        if api_key not in REFUSED:
            message = kio_messages.example(kio_messages.request_class(api_key, version))
            assert refusal_response(kio_messages.request_frame(message), throttle_time_ms=700) is None, message
    for cls, version in kafka_python_messages.messages("request"):
        if cls.API_KEY not in REFUSED:
            old = kafka_python_messages.example(cls, version)
            assert refusal_response(kafka_python_messages.request_frame(old), throttle_time_ms=700) is None, old


@pytest.mark.parametrize("api_key", REFUSED)
def test_unknown_versions_are_not_refused(api_key: int) -> None:
    codec = KafkaPython("request", api_key, HIGHEST_VERSION[api_key])
    _, frame = made(codec, Random(1))  # noqa: S311
    newer = frame[:6] + pack(">h", HIGHEST_VERSION[api_key] + 1) + frame[8:]

    assert refusal_response(newer, throttle_time_ms=700) is None


@each_case("version", [0, 9, 13])
def test_request_with_too_many_partitions_is_not_refused(version: int) -> None:
    flexible = version >= 9
    count = MAX_ELEMENTS + 1
    name = bytes(16) if version >= 13 else b"\x02t" if flexible else b"\0\x01t"
    partition = bytes(4) + (b"\x01\0" if flexible else bytes(4))
    front = pack(">hhih", PRODUCE, version, 7, 0) + (b"\0" if flexible else b"")
    front += b"" if version < 3 else b"\0" if flexible else b"\xff\xff"
    topics = written_count(1, is_flexible=flexible) + name + written_count(count, is_flexible=flexible)
    frame = framed(front, pack(">hi", 1, 3), topics, partition * count, b"\0\0" if flexible else b"")

    assert refusal_response(frame, throttle_time_ms=700) is None


# -- malformed bytes
