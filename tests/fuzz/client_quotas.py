"""Fuzzes requests that describe and alter client quotas, and their responses.

Requests and responses are valid or damaged. These properties must hold:

* nothing but a ``ProtocolError`` is raised;
* a message that was read can be written and read again, and a response has the request's correlation_id;
* a response is not much longer than its request and the existing rules;
* each entity of a request has one result, with or without an error;
* after any change, Kafka allows each rule, and each rule is unchanged when it is stored and read again.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from kafka_quota_proxy.protocol.api import response_header_version
from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    AlterResponse,
    read_describe_response,
    write_response,
)
from kafka_quota_proxy.protocol.codec import read_whole_head
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.rules.alter import MAX_RULES, decide
from kafka_quota_proxy.proxy.rules.codec import (
    decode_entity,
    decode_rule,
    encode_entity,
    encode_rule,
)
from kafka_quota_proxy.proxy.rules.describe import describe
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, apply, keys_of
from tests.fuzz import seeds
from tests.fuzz.source import MAX_FRAMES, Source, damaged
from tests.support.quota_request_frames import (
    read_alter_request,
    read_alter_response,
    read_describe_request,
    write_alter_request,
    write_describe_request,
)
from tests.support.quota_requests import some_alter, some_describe

_MANY_BYTES: Final = 40_000

Rules = dict[Entity, StoredRule]


def play(source: Source) -> int:
    """Act on all decisions of the source, and return the number of frames that were read."""
    play_one = (_alter, _alter, _describe, _read_answers)
    rules: Rules = {}
    frames = 0
    while source.has_more and frames < MAX_FRAMES:
        play_one[source.below(len(play_one))](source, rules)
        frames += 1
    return max(frames, 1)


def _frame(source: Source, api_key: int, make: Callable[[], bytes]) -> bytes:
    """Return a request, which is plausible or random, and valid or damaged."""
    choice = source.byte()
    frame = make() if choice & 0x03 else seeds.request(api_key, source.below(2), choice >> 2 & 3, choice >> 5 & 3)
    return damaged(frame, source) if choice & 0x10 else frame


def _alter(source: Source, rules: Rules) -> None:
    random, version = Random(source.below(65_536)), source.below(2)  # noqa: S311
    frame = _frame(source, ALTER, lambda: write_alter_request(some_alter(random, version), client_id="admin"))
    try:
        head = read_whole_head(frame)
        if head.api_key != ALTER:
            return
        request = read_alter_request(frame)
    except ProtocolError:
        return
    if request.api_version > 1:  # the damage changed the API to one that this function does not read
        return
    assert repr(read_alter_request(write_alter_request(request, client_id=None))) == repr(request)
    decision = decide(rules, request, {Entity("bob"): "file:1"}, rules, now_ms=0)
    asked = {frozenset(dict(alteration.entity).items()) for alteration in request.alterations}
    assert {frozenset(dict(result.entity).items()) for result in decision.results} == asked
    if decision.changes:
        assert not request.validate_only
        for entity, rule in decision.changes:
            assert decode_entity(encode_entity(entity).encode()) == entity
            assert rule is None or decode_rule(entity, encode_rule(rule).encode()) == rule
    apply(rules, decision.changes)
    for entity, rule in rules.items():
        assert rule.limits.keys() <= keys_of(entity).keys()
        assert all(0 < value < float("inf") for value in rule.limits.values())
    assert 0 <= len(rules) <= MAX_RULES
    response = AlterResponse(0, decision.results)
    answer = write_response(response, correlation_id=request.correlation_id, api_version=request.api_version)
    _check_answer(frame, answer, ALTER, request.api_version, 6 * len(frame))
    assert read_alter_response(answer, request.api_version) == response


def _describe(source: Source, rules: Rules) -> None:
    random, version = Random(source.below(65_536)), source.below(2)  # noqa: S311
    frame = _frame(source, DESCRIBE, lambda: write_describe_request(some_describe(random, version), client_id=None))
    try:
        head = read_whole_head(frame)
        if head.api_key != DESCRIBE:
            return
        request = read_describe_request(frame)
    except ProtocolError:
        return
    if request.api_version > 1:
        return
    assert read_describe_request(write_describe_request(request, client_id="admin")) == request
    response = describe(rules, request)
    assert (response.entries is None) == (response.error_code != 0)
    answer = write_response(response, correlation_id=request.correlation_id, api_version=request.api_version)
    _check_answer(frame, answer, DESCRIBE, request.api_version, len(frame) + 300 * len(rules))
    assert read_describe_response(answer, request.api_version) == response


def _check_answer(frame: bytes, answer: bytes, api_key: int, version: int, most_bytes: int) -> None:
    assert int.from_bytes(answer[:4]) == len(answer) - 4
    assert answer[4:8] == frame[8:12]
    assert response_header_version(api_key, version) == version
    assert len(answer) <= _MANY_BYTES + most_bytes


def _read_answers(source: Source, rules: Rules) -> None:
    version, choice = source.below(2), source.byte()
    frame = seeds.response(DESCRIBE, version, choice & 3)
    if choice & 0x10:
        frame = damaged(frame, source)
    try:
        response = read_describe_response(frame, version)
    except ProtocolError:
        return
    again = read_describe_response(write_response(response, correlation_id=7, api_version=version), version)
    assert repr(again) == repr(response)
