"""Tests that requests which create, grow or delete topics are read and changed, against two codecs."""

from collections.abc import Iterable
from itertools import cycle
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.codec import MAX_ELEMENTS, framed
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.primitives import written_count
from kafka_quota_proxy.protocol.topic_mutations import (
    FIRST_REFUSABLE_VERSION,
    THROTTLING_QUOTA_EXCEEDED,
    THROTTLING_QUOTA_EXCEEDED_MESSAGE,
    Topic,
    is_mutation,
    read_request,
    read_response,
    refuse_all_topics,
    with_refused_topics,
    without_topics,
)
from tests.protocol.support.codecs import Codec, KafkaPython, codecs, uuid_of
from tests.protocol.support.kio_messages import Untyped, generated_scalar
from tests.support.cases import SEEDS, each_case

CREATE, DELETE, GROW = int(ApiKey.CREATE_TOPICS), int(ApiKey.DELETE_TOPICS), int(ApiKey.CREATE_PARTITIONS)
KEYS: Final = (CREATE, DELETE, GROW)
VERSIONS: Final = [(key, version) for key in KEYS for version in range(HIGHEST_VERSION[key] + 1)]
REQUESTS = [codec for key in KEYS for codec in codecs("request", key)]
RESPONSES = [codec for key in KEYS for codec in codecs("response", key)]
RESULTS: Final = {CREATE: "topics", DELETE: "responses", GROW: "results"}


# -- requests


def array_name(codec: Codec) -> str:
    return "topic_names" if codec.api_key == DELETE and codec.version < 6 else "topics"


def topic_of(codec: Codec, element: Untyped) -> Topic:
    if isinstance(element, str):
        return element.encode()
    if element.name is None:
        return uuid_of(codec.get(element, "topic_id"))
    return bytes(element.name.encode())


def partitions_of(codec: Codec, element: Untyped) -> int:
    if codec.api_key == DELETE:
        return 0
    if codec.api_key == GROW:
        return int(element.count)
    return len(element.assignments) or int(element.num_partitions)


def requested(codec: Codec, message: Untyped) -> list[Untyped]:
    return list(getattr(message, array_name(codec)))


@pytest.mark.parametrize("codec", REQUESTS, ids=repr)
@each_case("seed", SEEDS)
def test_request_without_some_topics_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    client_id = random.choice([None, "", generated_scalar("string", random)])
    frame = codec.frame(message, correlation_id=-3, client_id=client_id)

    request = read_request(frame)

    elements = requested(codec, message)
    assert request[:3] == (codec.api_key, codec.version, -3)
    assert [mutation[:2] for mutation in request.topics] == [
        (topic_of(codec, element), partitions_of(codec, element)) for element in elements
    ]
    assert request.validate_only == codec.get(message, "validate_only", default=False)
    left_out = {mutation.topic for mutation in request.topics if random.random() < 0.5}
    kept = [element for element in elements if topic_of(codec, element) not in left_out]
    meant = codec.changed(message, **{array_name(codec): kept})
    assert without_topics(frame, request, left_out) == codec.frame(meant, correlation_id=-3, client_id=client_id)
    assert without_topics(frame, request, set()) is frame


@pytest.mark.parametrize("version", range(6))
def test_all_entries_of_a_topic_are_left_out(version: int) -> None:
    codec = KafkaPython("request", DELETE, version)
    message = codec.made(topic_names=["a", "b", "a"], timeout_ms=3)
    frame = codec.frame(message)

    written = without_topics(frame, read_request(frame), {b"a"})

    assert written == codec.frame(codec.made(topic_names=["b"], timeout_ms=3))


def test_unknown_tags_stay_with_their_entry() -> None:
    codec = KafkaPython("request", DELETE, 6)
    topic_a, topic_b = (codec.element("topics", name=name, topic_id=None) for name in "ab")
    both = with_tag(codec.frame(codec.made(topics=[topic_a, topic_b], timeout_ms=3)))
    only_b = with_tag(codec.frame(codec.made(topics=[topic_b], timeout_ms=3)))

    assert without_topics(both, read_request(both), {b"a"}) == only_b


def with_tag(frame: bytes) -> bytes:
    """Add tag 5, two bytes long, to the last topic of a DeleteTopics request v6."""
    return framed(frame[4:-6], b"\x01\x05\x02hi", frame[-5:])


def test_mutation_apis_are_recognised() -> None:
    assert all(is_mutation(key, version) for key, version in VERSIONS)
    assert not any(is_mutation(key, HIGHEST_VERSION[key] + 1) for key in KEYS)
    assert not any(is_mutation(key, 0) for key in ApiKey if key not in KEYS)


# -- responses


def results_of(codec: Codec, message: Untyped) -> list[Untyped]:
    return list(getattr(message, RESULTS[codec.api_key]))


def refused_element(codec: Codec, topic: Topic) -> Untyped:
    values: dict[str, Any] = {
        "name": topic.decode() if isinstance(topic, bytes) else None,
        "topic_id": topic if isinstance(topic, UUID) else None,
        "error_code": THROTTLING_QUOTA_EXCEEDED,
        "error_message": THROTTLING_QUOTA_EXCEEDED_MESSAGE.decode(),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
    return codec.element(RESULTS[codec.api_key], **values)


@pytest.mark.parametrize("codec", RESPONSES, ids=repr)
@each_case("seed", SEEDS)
def test_response_of_a_codec_is_read(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    frame = codec.frame(message)

    response = read_response(frame, codec.api_key, codec.version)

    assert response.throttle_time_ms == codec.get(message, "throttle_time_ms", 0)
    has_id = codec.has(f"{RESULTS[codec.api_key]}.topic_id")
    assert [result[:4] for result in response.results] == [
        (
            None if element.name is None else element.name.encode(),
            (codec.get(element, "topic_id") or None) if has_id else None,
            codec.get(element, "error_code"),
            codec.get(element, "num_partitions", -1),
        )
        for element in results_of(codec, message)
    ]


def request_of(codec: Codec, topics: Iterable[Topic]) -> bytes:
    """Return a request with these topics, in the version of ``codec``."""
    of = KafkaPython("request", codec.api_key, codec.version)
    if codec.api_key == DELETE and codec.version < 6:
        names = [topic.decode() for topic in topics if isinstance(topic, bytes)]
        return of.frame(of.made(topic_names=names, timeout_ms=3))
    elements = [
        of.element(
            "topics",
            name=topic.decode() if isinstance(topic, bytes) else None,
            topic_id=topic if isinstance(topic, UUID) else None,
            num_partitions=3,
            replication_factor=1,
            count=3,
            assignments=[],
            configs=[],
        )
        for topic in topics
    ]
    return of.frame(of.made(topics=elements, timeout_ms=3, validate_only=False))


@pytest.mark.parametrize("codec", RESPONSES, ids=repr)
@each_case("seed, throttle_time_ms", zip(SEEDS, cycle([0, 7, 2**31 - 1])))
def test_refused_topics_are_added_in_the_order_of_the_request(codec: Codec, seed: int, throttle_time_ms: int) -> None:
    random = Random(seed)  # noqa: S311
    brokers = codec.generated(random)
    names = [f"t{number}".encode() for number in range(8)]
    ids: list[Topic] = (
        [UUID(int=number) for number in range(1, 4)] if (codec.api_key, codec.version) == (DELETE, 6) else []
    )
    topics: list[Topic] = random.sample([*names, *ids], random.randrange(9))
    refused = {topic for topic in topics if random.random() < 0.5}
    passed = [topic for topic in topics if topic not in refused]
    answered = dict(zip(passed, (named(codec, random, topic) for topic in passed), strict=True))
    others = [named(codec, random, b"unasked")] if random.random() < 0.2 else []
    results = random.sample(list(answered.values()), len(answered)) + others
    response = codec.changed(brokers, **{RESULTS[codec.api_key]: results})
    # Some of the topics are twice in the request and, as with Kafka, once in the response.
    request = read_request(request_of(codec, [*topics, *random.sample(topics, len(topics) // 3)]))

    written = with_refused_topics(codec.frame(response), request, refused, throttle_time_ms=throttle_time_ms)

    merged = [refused_element(codec, topic) if topic in refused else answered[topic] for topic in topics]
    meant = codec.changed(
        brokers,
        **{RESULTS[codec.api_key]: merged + others},
        throttle_time_ms=max(throttle_time_ms, codec.get(brokers, "throttle_time_ms", 0)),
    )
    assert written == codec.frame(meant)


def test_topic_listed_by_name_and_by_id_keeps_each_result_once() -> None:
    codec = KafkaPython("response", DELETE, 6)
    topic_id = UUID(int=3)
    results = [codec.element("responses", name="a", topic_id=topic_id, error_code=0, error_message=None)]
    results.append(codec.element("responses", name=None, topic_id=topic_id, error_code=100, error_message=None))
    frame = codec.frame(codec.made(responses=results, throttle_time_ms=3))
    request = read_request(request_of(codec, [topic_id, b"a"]))

    assert with_refused_topics(frame, request, set(), throttle_time_ms=0) == frame


def named(codec: Codec, random: Random, topic: Topic) -> Untyped:
    """Return a random result for a topic. The result of a topic id may have a name too."""
    while not (elements := results_of(codec, codec.generated(random))):
        pass
    if isinstance(topic, bytes):
        return codec.changed(elements[0], name=topic.decode())
    return codec.changed(elements[0], name=random.choice([None, f"of-{topic}"]), topic_id=topic)


@each_case("codec", RESPONSES)
def test_own_response_refuses_each_topic_once(codec: Codec) -> None:
    topics: list[Topic] = [b"b", b"a", "ü".encode(), b"b"]
    if (codec.api_key, codec.version) == (DELETE, 6):
        topics.insert(1, UUID(int=3))

    written = refuse_all_topics(read_request(request_of(codec, topics)), throttle_time_ms=1_500)

    elements = [refused_element(codec, topic) for topic in dict.fromkeys(topics)]
    if isinstance(codec, KafkaPython):
        meant = codec.made(**{RESULTS[codec.api_key]: elements, "throttle_time_ms": 1_500})
        assert written == codec.frame(meant, correlation_id=7)
    else:
        message = codec.decoded(written)
        assert results_of(codec, message) == elements
        assert codec.get(message, "throttle_time_ms") == 1_500


@each_case("broker_ms, own_ms, written_ms", [(0, 1_500, 1_500), (1_500, 0, 1_500), (3_000, 1_000, 3_000)])
@each_case("api_key, first_version", FIRST_REFUSABLE_VERSION.items())
def test_v36_larger_throttle_time_is_written(
    api_key: int, first_version: int, broker_ms: int, own_ms: int, written_ms: int
) -> None:
    """Source: Kafka's KafkaApisTest.testKRaftControllerThrottleTimeEnforced (V36)."""
    codec = KafkaPython("response", api_key, first_version)
    request = read_request(request_of(codec, [b"a"]))
    frame = codec.frame(codec.made(**{RESULTS[api_key]: [], "throttle_time_ms": broker_ms}))

    written = with_refused_topics(frame, request, set(), throttle_time_ms=own_ms)

    assert read_response(written, api_key, first_version).throttle_time_ms == written_ms


# -- malformed bytes


@each_case("api_key, version", [(CREATE, 7), (DELETE, 5), (GROW, 3)])
def test_request_with_too_many_elements_is_refused(api_key: int, version: int) -> None:
    one = request_of(KafkaPython("response", api_key, version), [b"a"])
    request = read_request(one)
    (entry,) = request.topics

    def times(count: int) -> bytes:
        array = written_count(count, is_flexible=is_flexible(api_key, version)) + one[entry.begin : entry.end] * count
        return framed(one[4 : request.topics_at], array, one[request.topics_end :])

    assert len(read_request(times(MAX_ELEMENTS)).topics) == MAX_ELEMENTS
    with pytest.raises(TooManyElements):
        read_request(times(MAX_ELEMENTS + 1))


def test_response_may_have_the_configs_of_ten_thousand_topics() -> None:
    codec = KafkaPython("response", CREATE, 7)
    config = codec.element("topics.configs", name="a", value="b", read_only=False, config_source=5, is_sensitive=False)
    topic = codec.changed(refused_element(codec, b"t"), error_code=0, error_message=None, configs=[config] * 35)
    frame = codec.frame(codec.made(topics=[topic], throttle_time_ms=3))
    (one,) = read_response(frame, CREATE, 7).results
    count = written_count(10_000, is_flexible=True)
    body = frame[one.begin : one.end] * 10_000

    assert len(read_response(framed(frame[4 : one.begin - 1], count, body, b"\0"), CREATE, 7).results) == 10_000
    with pytest.raises(TooManyElements):
        read_response(
            framed(frame[4 : one.begin - 1], written_count(20_000, is_flexible=True), body * 2, b"\0"), CREATE, 7
        )
