"""Fuzzes topic mutations under a quota, refusals of requests of any API, and the query for partition counts.

Requests and responses are valid or damaged. These properties must hold:

* nothing but a ``ProtocolError`` is raised;
* a request from which topics were removed is read as one with the other topics, in order;
* a response of the proxy, or one with added topics, is read as intended and has the request's correlation_id;
* each topic of a request passes or is refused, and a strict quota that is not violated refuses none;
* the permits that are reserved for a request are given back when it ends, and no charge is negative;
* a refusal has a throttle time if its version has the field, and is not much longer than the request.
"""

from collections import Counter
from collections.abc import Set
from functools import lru_cache
from struct import pack
from typing import Final
from uuid import UUID

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.metadata_query import FIRST_VERSION, LATEST_VERSION, read_partition_counts
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.protocol.throttle_time import throttle_time_offset
from kafka_quota_proxy.protocol.topic_mutations import (
    BROKER_DEFAULT,
    FIRST_REFUSABLE_VERSION,
    THROTTLING_QUOTA_EXCEEDED,
    MutationRequest,
    Topic,
    is_mutation,
    read_request,
    read_response,
    refuse_all_topics,
    with_refused_topics,
    without_topics,
)
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.mutation import decide, settle, uncounted_topics
from tests.fuzz import seeds
from tests.fuzz.source import MAX_FRAMES, Source, damaged
from tests.protocol.support.codecs import KafkaPython

_START_MS: Final = 1_767_225_600_000
_THROTTLE_TIME_MS: Final = 0x5EAF00D
_KEYS: Final = tuple(sorted(FIRST_REFUSABLE_VERSION))
_TOPICS: Final[tuple[Topic, ...]] = (b"a", b"moving", "ü".encode(), b"", UUID(int=7), UUID(int=2**127))
_COUNTS: Final = (1, 3, 0, BROKER_DEFAULT, -(2**31), 2**31 - 1, 10, 1_000)
_LIMITS: Final = (None, 10.0, 0.01, 1e9)
_ERRORS: Final = (0, 0, 36, 7, -1, 89, 41)
_PAUSES_MS: Final = (0, 1, 1_000, 3_600_000)
_REFUSED: Final = (*_KEYS, 0, 1, 8, 11)
_MOST_TOPICS: Final = 5


def play(source: Source) -> int:
    """Act on all decisions of the source, and return the number of frames that were read."""
    play_one = (_mutate, _mutate, _refuse, _count)
    limit = _LIMITS[source.below(len(_LIMITS))]
    bucket = _bucket(limit)
    now_ms, frames = _START_MS, 0
    while source.has_more and frames < MAX_FRAMES:
        now_ms += _PAUSES_MS[source.below(len(_PAUSES_MS))]
        play_one[source.below(len(play_one))](source, bucket, now_ms)
        frames += 1
    return max(frames, 1)


def _bucket(limit: float | None) -> Bucket:
    rules = () if limit is None else (QuotaRule(user=DEFAULT, controller_mutation_rate=limit),)
    manager = ClientQuotaManager(QuotaKind.MUTATION, rules, shaping=Shaping.PACED, burst_ms=11_000)
    return manager.bucket(user="alice", client_id="admin", now_ms=_START_MS)


# -- requests that create, extend and delete topics


def _mutate(source: Source, bucket: Bucket, now_ms: int) -> None:
    api_key = _KEYS[source.below(len(_KEYS))]
    version, choice = source.below(HIGHEST_VERSION[api_key] + 1), source.byte()
    asked = tuple(
        (source.below(len(_TOPICS)), source.below(len(_COUNTS))) for _ in range(source.below(_MOST_TOPICS + 1))
    )
    frame = _request(api_key, version, asked)
    if choice & 1:
        frame = damaged(frame, source)
    try:
        request = read_request(frame) if is_mutation(*_api_of(frame)) else None
    except ProtocolError:
        return
    if request is None:
        return
    topics = {mutation.topic for mutation in request.topics}
    known = {topic: _COUNTS[source.below(len(_COUNTS))] for topic in topics if choice & 2}
    assert topics - set(known) >= set(uncounted_topics(request, known))
    is_violated = bucket.is_limited and not bucket.has_room(0, now_ms=now_ms)
    decision = decide(
        request,
        bucket,
        known={topic: max(count, 0) for topic, count in known.items()},
        default_partitions=3 if choice & 4 else 1,
        may_refuse=not choice & 8,
        now_ms=now_ms,
    )
    assert set(decision.permits) | decision.refused == topics
    assert not set(decision.permits) & decision.refused
    assert all(permits >= 0 for permits in decision.permits.values())
    assert decision.is_strict or not decision.refused
    if decision.is_strict and is_violated:
        assert not any(decision.permits.values())
    if not is_violated and len(topics) == 1:
        assert not decision.refused
    before = bucket.usage.amount
    bucket.reserved.add(decision.reserved, now_ms=now_ms)
    _rewrite(source, frame, request, decision.refused)

    response = _response(source, request)
    if choice & 16:
        response = damaged(response, source)
    try:
        results = read_response(response, request.api_key, request.api_version).results
    except ProtocolError:
        bucket.reserved.settle(decision.reserved)
        return
    wait_ms = settle(decision, results, bucket, now_ms=now_ms)
    assert bucket.reserved.amount == 0
    assert bucket.usage.amount >= before
    assert wait_ms > 0 if decision.refused and not decision.permits else wait_ms >= 0
    _put_in(response, request, decision.refused)


def _api_of(frame: bytes) -> tuple[int, int]:
    return int.from_bytes(frame[4:6], signed=True), int.from_bytes(frame[6:8], signed=True)


def _rewrite(source: Source, frame: bytes, request: MutationRequest, refused: Set[Topic]) -> None:
    """Remove topics from a request, and refuse all of its topics. Assert that both results are read as intended."""
    some = {mutation.topic for mutation in request.topics if source.byte() & 1}
    for left_out in (refused, some):
        written = without_topics(frame, request, left_out)
        assert int.from_bytes(written[:4]) == len(written) - 4
        again = read_request(written)
        assert [mutation[:2] for mutation in again.topics] == [
            mutation[:2] for mutation in request.topics if mutation.topic not in left_out
        ]
        assert again[:3] == request[:3]
        assert again.validate_only == request.validate_only
    written = refuse_all_topics(request, throttle_time_ms=_THROTTLE_TIME_MS)
    assert written[4:8] == pack(">i", request.correlation_id)
    results = read_response(written, request.api_key, request.api_version).results
    assert [result.error_code for result in results] == [THROTTLING_QUOTA_EXCEEDED] * len(results)
    assert [_of(request, result.name, result.topic_id) for result in results] == list(
        dict.fromkeys(mutation.topic for mutation in request.topics)
    )
    _check_throttle_time(written, request.api_key, request.api_version)


def _of(request: MutationRequest, name: bytes | None, topic_id: UUID | None) -> Topic:
    if name is not None:
        return name
    return topic_id or UUID(int=0)


def _put_in(response: bytes, request: MutationRequest, refused: Set[Topic]) -> None:
    written = with_refused_topics(response, request, refused, throttle_time_ms=_THROTTLE_TIME_MS)
    before = read_response(response, request.api_key, request.api_version)
    after = read_response(written, request.api_key, request.api_version)
    assert len(after.results) == len(before.results) + len(refused)
    assert Counter(result[:4] for result in after.results) >= Counter(result[:4] for result in before.results)
    assert after.throttle_time_ms >= before.throttle_time_ms


def _response(source: Source, request: MutationRequest) -> bytes:
    """Return a broker's response with some topics of the request and with some other topics."""
    results = tuple(
        (source.below(len(_TOPICS)), _ERRORS[source.below(len(_ERRORS))], source.below(len(_COUNTS)))
        for _ in range(source.below(_MOST_TOPICS + 1))
    )
    return _broker_response(request.api_key, request.api_version, results)


@lru_cache(10_000)
def _request(api_key: int, version: int, asked: tuple[tuple[int, int], ...]) -> bytes:
    codec = KafkaPython("request", api_key, version)
    topics = [(_TOPICS[topic], _COUNTS[count]) for topic, count in asked]
    names = [(topic.decode(), count) for topic, count in topics if isinstance(topic, bytes)]
    if api_key == ApiKey.DELETE_TOPICS and version == HIGHEST_VERSION[api_key]:
        elements = [
            codec.element("topics", **({"name": topic.decode()} if isinstance(topic, bytes) else {"topic_id": topic}))
            for topic, _ in topics
        ]
        return codec.frame(codec.made(topics=elements, timeout_ms=3))
    if api_key == ApiKey.DELETE_TOPICS:
        return codec.frame(codec.made(topic_names=[name for name, _ in names], timeout_ms=3))
    values = {"replication_factor": 1, "assignments": [], "configs": []}
    elements = [
        codec.element("topics", name=name, num_partitions=count, count=count, **values) for name, count in names
    ]
    return codec.frame(codec.made(topics=elements, timeout_ms=3, validate_only=False))


@lru_cache(10_000)
def _broker_response(api_key: int, version: int, results: tuple[tuple[int, int, int], ...]) -> bytes:
    codec = KafkaPython("response", api_key, version)
    array = {ApiKey.CREATE_TOPICS: "topics", ApiKey.DELETE_TOPICS: "responses"}.get(ApiKey(api_key), "results")
    elements = []
    for topic, error_code, count in results:
        one = _TOPICS[topic]
        is_name = isinstance(one, bytes)
        may_be_null = api_key == ApiKey.DELETE_TOPICS and version == HIGHEST_VERSION[api_key]
        elements.append(
            codec.element(
                array,
                name=one.decode() if isinstance(one, bytes) else None if may_be_null else "other",
                topic_id=None if is_name else one,
                error_code=error_code,
                error_message=None,
                num_partitions=_COUNTS[count],
                replication_factor=1,
                configs=[],
            )
        )
    return codec.frame(codec.made(**{array: elements, "throttle_time_ms": 3}))


# -- requests that are refused


def _refuse(source: Source, bucket: Bucket, now_ms: int) -> None:
    api_key = _REFUSED[source.below(len(_REFUSED))] if source.byte() & 3 else seeds.API_KEYS[source.byte() % 90]
    version, choice = source.below(seeds.versions(api_key)), source.byte()
    frame = seeds.request(api_key, version, choice & 3, choice >> 2 & 3)
    if choice & 0x10:
        frame = damaged(frame, source)
    try:
        written = refusal_response(frame, throttle_time_ms=_THROTTLE_TIME_MS)
    except ProtocolError:
        return
    if written is None:
        return
    api_key, version = _api_of(frame)
    assert api_key in _REFUSED
    assert written[4:8] == frame[8:12]
    assert int.from_bytes(written[:4]) == len(written) - 4
    assert len(written) <= 100 + 32 * len(frame)
    _check_throttle_time(written, api_key, version)


def _check_throttle_time(written: bytes, api_key: int, version: int) -> None:
    at = throttle_time_offset(written, api_key, version)
    assert at is None or written[at : at + 4] == pack(">i", _THROTTLE_TIME_MS)


# -- counts of partitions


def _count(source: Source, bucket: Bucket, now_ms: int) -> None:
    version, choice = FIRST_VERSION + source.below(LATEST_VERSION - FIRST_VERSION + 1), source.byte()
    frame = seeds.response(int(ApiKey.METADATA), version, choice & 3)
    if choice & 0x10:
        frame = damaged(frame, source)
    wanted: set[Topic] = {b"three", UUID(int=3), b"a"}
    try:
        counts = read_partition_counts(frame, wanted, version)
    except ProtocolError:
        return
    assert set(counts) <= wanted
    assert all(0 <= count <= len(frame) for count in counts.values())
