"""Tests requests that get an error in place of the broker's response, as a test has asked."""

import pytest

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.proxy.session.broker_turn import MAX_REFUSED_BYTES
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles, Wanted
from tests.proxy.session.testing.test_responses import wire_of_test
from tests.support.frames import fetch_request, fetch_response, framed, produce_response, request_header
from tests.support.queued_clients import idempotent_produce, whole_produce
from tests.support.wire import Wire

PRODUCE, CREATE_TOPICS = int(ApiKey.PRODUCE), int(ApiKey.CREATE_TOPICS)
NOT_LEADER = 6
REFUSED = Effects(error_code=NOT_LEADER)


def refused(frame: bytes, *, error_code: int = NOT_LEADER, throttle_time_ms: int = 0) -> bytes:
    response = refusal_response(frame, throttle_time_ms=throttle_time_ms, error_code=error_code)
    assert response is not None
    return response


def create_topics(correlation_id: int, name: bytes) -> bytes:
    """Return a CreateTopics request v7 for a topic of one partition."""
    header = request_header(CREATE_TOPICS, 7, correlation_id, "etl", is_flexible=True)
    topic = bytes([len(name) + 1]) + name + b"\0\0\0\1\0\1\1\1\0"
    return framed(header + b"\2" + topic + b"\0\0\x75\x30\0\0")


def wire_with(*orders: tuple[Wanted, Effects, int]) -> tuple[Wire, OnDemandThrottles]:
    wire, testing = wire_of_test()
    for wanted, effects, count in orders:
        testing.add(wanted, effects, count=count)
    return wire, testing


@pytest.mark.parametrize("cut", [0, 5, 30])
def test_request_gets_the_error_and_does_not_reach_the_broker(cut: int) -> None:
    wire, testing = wire_with((Wanted(api_key=PRODUCE), REFUSED, 2))

    for number in (1, 2):
        frame = whole_produce(number)
        assert wire.client(frame[:cut], frame[cut:]) == b""
        assert wire.to_client() == refused(frame)
    assert wire.client(whole_produce(3)) == whole_produce(3)
    assert wire.broker(produce_response(3)) == produce_response(3)
    assert [(one.api_key, one.effects) for one in testing.observed.find()] == [(PRODUCE, REFUSED)] * 2


def test_response_before_it_comes_first() -> None:
    wire, _ = wire_with((Wanted(api_key=PRODUCE), REFUSED, 1))

    assert wire.client(fetch_request(1), whole_produce(2)) == fetch_request(1)
    assert wire.to_client() == b""
    assert wire.broker(fetch_response(1)) == fetch_response(1) + refused(whole_produce(2))
    assert wire.to_broker() == b""


def test_request_that_is_too_long_to_be_answered_is_forwarded_and_not_counted() -> None:
    wire, testing = wire_with((Wanted(api_key=PRODUCE), REFUSED, 1))
    frame = whole_produce(1, size_bytes=MAX_REFUSED_BYTES)

    assert wire.client(frame) == frame
    assert wire.broker(produce_response(1)) == produce_response(1)
    assert len(testing.orders) == 1


def test_order_is_for_a_client_and_a_topic() -> None:
    wire, _ = wire_with(
        (Wanted(api_key=PRODUCE, client_id="other"), REFUSED, 1),
        (Wanted(api_key=PRODUCE, topic="u"), REFUSED, 1),
        (Wanted(api_key=CREATE_TOPICS, topic="b"), Effects(error_code=89), 1),
    )

    assert wire.client(whole_produce(1)) == whole_produce(1)
    wire.broker(produce_response(1))
    assert wire.client(create_topics(2, b"a")) == create_topics(2, b"a")
    wire.broker(framed(b"\0\0\0\2\0\0\0\0\0\1\0"))
    assert wire.client(create_topics(3, b"b")) == b""
    assert wire.to_client() == refused(create_topics(3, b"b"), error_code=89)


def test_error_with_a_throttle_time_mutes_the_client() -> None:
    wire, _ = wire_with((Wanted(api_key=PRODUCE), Effects(300, error_code=NOT_LEADER), 1))

    wire.client(whole_produce(1))
    assert wire.to_client() == refused(whole_produce(1), throttle_time_ms=300)
    assert wire.muted_for_ms == 300

    wire, testing = wire_of_test(enforcement=Enforcement.OBSERVE)
    testing.add(Wanted(api_key=PRODUCE), Effects(300, error_code=NOT_LEADER), count=1)
    wire.client(whole_produce(1))
    assert wire.muted_for_ms == 0


def test_later_batches_of_an_idempotent_producer_do_not_overtake_the_refused_one() -> None:
    wire, testing = wire_with((Wanted(api_key=PRODUCE), REFUSED, 1))

    assert wire.client(idempotent_produce(1, 0), idempotent_produce(2, 1)) == b""
    assert wire.to_client().startswith(refused(idempotent_produce(1, 0)))
    assert wire.client(idempotent_produce(3, 0)) == idempotent_produce(3, 0)
    assert wire.client(idempotent_produce(4, 1)) == idempotent_produce(4, 1)
    assert testing.orders == {}


def test_connection_is_closed_after_the_throttle_time() -> None:
    closed: list[tuple[object, int]] = []
    wire, testing = wire_of_test()
    testing.close_later = lambda owner, after_ms: closed.append((owner, after_ms))
    testing.add(Wanted(api_key=PRODUCE), Effects(300, error_code=NOT_LEADER, closes=True), count=1)
    testing.add(Wanted(), Effects(200, delay_ms=50, closes=True), count=1)

    wire.client(whole_produce(1))
    wire.wait(300)
    wire.client(fetch_request(2))
    wire.broker(fetch_response(2))

    assert closed == [(wire, 300), (wire, 250)]
