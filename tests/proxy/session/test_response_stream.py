"""Tests which responses are forwarded, however their bytes are cut, and how long they are held."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.errors import UnexpectedResponse
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_delay_holds_the_response_and_then_sends_it() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(fetch_request(1), other_request(2))
    answers = fetch_response(1, size_bytes=6_000) + other_response(2)

    assert wire.broker(answers[:100], answers[100:3_000]) == b""
    assert wire.session.state.delayed_until_ms == wire.now_ms + 2_000
    assert wire.broker(answers[3_000:]) == b""
    wire.wait(1_999)
    assert wire.to_client() == b""
    wire.wait(1)
    assert wire.to_client() == fetch_response(1, size_bytes=6_000) + other_response(2)
    assert wire.session.is_idle


@pytest.mark.parametrize("version", [0, 7, 13])
def test_delay_forwards_no_request_during_a_partial_response(version: int) -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, version=version, size_bytes=6_000))
    response = produce_response(1, version=version)
    wire.client(produce_request(2, version=version))

    for at in range(len(response)):
        wire.broker(response[at : at + 1])
        assert wire.to_broker() == b"", at
    wire.client(produce_request(3, version=version))
    assert wire.to_broker() == b""
    wire.wait(2_000)

    assert wire.to_broker() == produce_request(2, version=version)


def test_response_to_no_request_ends_the_connection() -> None:
    wire = Wire()

    with pytest.raises(UnexpectedResponse):
        wire.broker(other_response(1))


def test_release_sends_a_held_response_and_ends_throttling() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, size_bytes=6_000) + produce_request(2, size_bytes=6_000))
    assert wire.broker(produce_response(1)) == b""

    wire.session.release(now_ms=wire.now_ms)

    assert wire.to_client() == produce_response(1)
    assert wire.to_broker() == produce_request(2, size_bytes=6_000)
    assert wire.broker(produce_response(2)) == produce_response(2)
    assert (wire.session.state.delayed_until_ms, wire.muted_for_ms) == (0, 0)


@pytest.mark.parametrize("enforcement", [Enforcement.DELAY, Enforcement.RESPOND])
def test_release_during_a_partial_response_holds_nothing_behind_it(enforcement: Enforcement) -> None:
    """The response is charged before its last byte arrives, and must not throttle the client after the release."""
    wire = Wire(A_TIGHT_RULE, enforcement=enforcement)
    wire.client(produce_request(1, size_bytes=6_000))
    response = produce_response(1)
    assert wire.broker(response[:12]) == b""
    assert wire.client(produce_request(2)) == b""

    wire.session.release(now_ms=wire.now_ms)

    assert len(wire.broker(response[12:])) == len(response)
    assert wire.to_broker() == produce_request(2)
    assert (wire.session.state.delayed_until_ms, wire.muted_for_ms, wire.session.state.blocked_by is not None) == (
        0,
        0,
        False,
    )


@pytest.mark.parametrize("is_full_before", [False, True])
@pytest.mark.parametrize("full_for_ms", [1, 1_500, 2_000, 60_000])
def test_throttle_time_begins_when_it_is_forwarded(is_full_before: bool, full_for_ms: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    if is_full_before:
        wire.session.pause_answers()
    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=2_000)
    if not is_full_before:
        wire.session.pause_answers()
    wire.client(other_request(2))
    wire.wait(full_for_ms)
    assert wire.to_broker() == b""

    wire.session.state.now_ns = wire.now_ms * 1_000_000
    wire.session.resume_answers()

    assert wire.resume() == b""
    assert wire.muted_for_ms == 2_000
    wire.wait(1_999)
    assert wire.to_broker() == b""
    wire.wait(1)
    assert wire.to_broker() == other_request(2)


def test_throttle_time_that_has_begun_ends_later_by_the_time_for_which_nothing_was_read() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    for _ in range(2):
        wire.wait(500)
        wire.session.state.now_ns = wire.now_ms * 1_000_000
        wire.session.pause_answers()
        wire.wait(700)
        wire.session.state.now_ns = wire.now_ms * 1_000_000
        wire.session.resume_answers()

    assert wire.muted_for_ms == 1_000


def test_client_that_is_not_throttled_is_not_muted_by_a_full_buffer() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    wire.wait(2_000)

    wire.session.state.now_ns = wire.now_ms * 1_000_000
    wire.session.pause_answers()
    assert wire.client(other_request(2)) == other_request(2)
    wire.session.resume_answers()

    assert wire.client(other_request(3)) == other_request(3)
