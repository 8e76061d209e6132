"""Tests the responses of a session that a test has asked to be throttled."""

from random import Random
from uuid import UUID

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.metadata_query import write_request
from kafka_quota_proxy.proxy.session.testing.observed import BY_QUOTA, ON_DEMAND
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles, Wanted
from kafka_quota_proxy.proxy.session.testing.session import OnDemandSession
from tests.protocol.support.codecs import KafkaPython
from tests.support.cases import each_case
from tests.support.frames import (
    fetch_request,
    fetch_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

PRODUCE, FETCH, METADATA = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.METADATA)
TIGHT = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0)


def wire_of_test(*rules: QuotaRule, enforcement: Enforcement = Enforcement.RESPOND) -> tuple[Wire, OnDemandThrottles]:
    wire, testing = Wire(*rules, enforcement=enforcement), OnDemandThrottles(lambda: 0)
    wire.session = OnDemandSession(wire.listening, testing, owner=wire)
    return wire, testing


@each_case("version", [1, 7, 9, 13])
def test_produce_responses_carry_exactly_what_was_asked(version: int) -> None:
    wire, testing = wire_of_test()
    testing.add(Wanted(api_key=PRODUCE), 300, count=2)

    for number, told_ms in ((1, 300), (2, 300), (3, 7)):
        assert wire.client(produce_request(number, version=version)) != b""
        response = wire.broker(produce_response(number, version=version, throttle_time_ms=7))
        assert response == produce_response(number, version=version, throttle_time_ms=told_ms)
        wire.wait(300)


def test_zero_overrides_a_throttle_time_of_the_broker_and_of_a_quota() -> None:
    wire, testing = wire_of_test(TIGHT)
    testing.add(Wanted(), 0, count=1)
    wire.client(produce_request(1, size_bytes=50_000))

    assert wire.broker(produce_response(1, throttle_time_ms=900)) == produce_response(1, throttle_time_ms=0)
    assert wire.muted_for_ms == 0


def test_delay_holds_the_response_and_observe_only_tells() -> None:
    wire, testing = wire_of_test(enforcement=Enforcement.DELAY)
    testing.add(Wanted(), 300, count=1)
    wire.client(fetch_request(1, version=7))
    assert wire.broker(fetch_response(1, version=7)) == b""
    wire.wait(300)
    assert wire.to_client() == fetch_response(1, version=7, throttle_time_ms=300)

    wire, testing = wire_of_test(enforcement=Enforcement.OBSERVE)
    testing.add(Wanted(), 300, count=1)
    wire.client(fetch_request(1))
    assert wire.broker(fetch_response(1)) == fetch_response(1, throttle_time_ms=300)
    assert wire.muted_for_ms == 0


@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000])
def test_long_response_in_pieces_is_throttled_once(piece_bytes: int) -> None:
    wire, testing = wire_of_test()
    wire.client(fetch_request(1), fetch_request(2))
    testing.add(Wanted(api_key=FETCH), 300, count=1)
    sent = fetch_response(1, size_bytes=3_000) + fetch_response(2, size_bytes=3_000)

    passed = [wire.broker(sent[at : at + piece_bytes]) for at in range(0, len(sent), piece_bytes)]

    told = fetch_response(1, size_bytes=3_000, throttle_time_ms=300)
    assert b"".join(passed) == told + fetch_response(2, size_bytes=3_000)


def test_observed_says_why_and_how_much() -> None:
    wire, testing = wire_of_test(TIGHT)
    testing.add(Wanted(), 300, count=1)
    wire.client(fetch_request(1))
    wire.broker(fetch_response(1, size_bytes=2_000))
    wire.wait(300)
    wire.client(produce_request(2, size_bytes=6_000))
    wire.broker(produce_response(2))

    found = [(one.api_key, one.throttle_time_ms, one.size_bytes, one.reason) for one in testing.observed.find("etl")]
    assert found == [(FETCH, 300, 2_000, ON_DEMAND), (PRODUCE, wire.muted_for_ms, 6_000, BY_QUOTA)]
    assert wire.muted_for_ms > 300


@each_case("version", [11, 12, 13, 16])
def test_topic_is_found_in_fetch_responses(version: int) -> None:
    wire, testing = wire_of_test()
    codec, metadata = KafkaPython("response", FETCH, version), KafkaPython("response", METADATA, 12)
    listed = [("a", UUID(int=1)), ("b", UUID(int=2))]
    elements = [metadata.element("topics", error_code=0, name=name, topic_id=topic_id) for name, topic_id in listed]
    topics = metadata.changed(metadata.generated(Random(1)), topics=elements)  # noqa: S311
    testing.add(Wanted(topic="a"), 300, count=1)
    wire.client(write_request([], correlation_id=1, client_id=b"etl", api_version=12))
    wire.broker(metadata.frame(topics, correlation_id=1))

    def response(number: int, topic: tuple[str, UUID]) -> bytes:
        values = {
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": 5,
            "aborted_transactions": [],
            "records": b"",
        }
        partition = codec.element("responses.partitions", **values)
        element = codec.element("responses", topic=topic[0], topic_id=topic[1], partitions=[partition])
        made = codec.made(throttle_time_ms=0, error_code=0, session_id=0, responses=[element])
        return codec.frame(made, correlation_id=number)

    for number, topic in ((2, listed[1]), (3, listed[0]), (4, listed[0])):
        wire.client(fetch_request(number, version=version))
        frame = response(number, topic)
        passed = wire.broker(frame[:20]) + wire.broker(frame[20:])
        assert (passed == frame) is (number != 3)
        assert [one.throttle_time_ms for one in testing.observed.find()] == [300] * (number >= 3)
        wire.wait(300)
