"""Tests requests that have no response yet."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.proxy.session.in_flight import MAX_IN_FLIGHT
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


def test_requests_are_pipelined_and_answered_in_order() -> None:
    wire = Wire()
    requests = [produce_request(1), fetch_request(2), other_request(3), produce_request(4)]
    responses = [produce_response(1), fetch_response(2), other_response(3), produce_response(4)]

    assert wire.client(b"".join(requests)) == b"".join(requests)
    assert wire.broker(*responses) == b"".join(responses)
    assert wire.session.is_idle


def test_lost_broker_returns_reservations() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=4_000))

    wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert wire.bucket().in_flight == 0
    assert wire.bucket().amount == 0


@pytest.mark.parametrize("acks_of_the_last", [0, 1])
def test_client_that_disconnects_early_is_charged_for_complete_requests(acks_of_the_last: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=1_000), produce_request(2, acks=acks_of_the_last, size_bytes=2_000)[:500])

    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    assert wire.bucket().in_flight == 0
    assert wire.bucket().amount == 1_000


def test_requests_in_flight_are_bounded() -> None:
    wire = Wire()

    passed = wire.client(b"".join(other_request(number) for number in range(10_000)))

    assert passed == b"".join(other_request(number) for number in range(MAX_IN_FLIGHT))
    wire.broker(other_response(0))
    assert wire.to_broker() == other_request(MAX_IN_FLIGHT)
