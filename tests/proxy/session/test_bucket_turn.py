"""Tests that a request waits for room in its bucket."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from tests.support.frames import (
    other_request,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_request_of_a_muted_client_waits() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))

    assert wire.client(produce_request(2), other_request(3)) == b""
    assert wire.session.state.is_blocked
    wire.wait(1_999)
    assert wire.to_broker() == b""
    wire.wait(1)
    assert wire.to_broker() == produce_request(2) + other_request(3)


def test_pipelined_requests_are_forwarded_while_the_bucket_has_room() -> None:
    wire = Wire(A_TIGHT_RULE)  # there is room for 5,000 bytes

    assert wire.client(*(produce_request(number, size_bytes=1_000) for number in range(6))) == b"".join(
        produce_request(number, size_bytes=1_000) for number in range(5)
    )
    assert wire.session.state.is_blocked


def test_client_over_its_quota_has_one_request_in_flight() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(*(produce_request(number, size_bytes=5_000) for number in range(3)))

    assert wire.broker(produce_response(0)) == produce_response(0)
    assert wire.to_broker() == produce_request(1, size_bytes=5_000)
    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=10_000)
    assert wire.to_broker() == b""
    wire.wait(10_000)
    assert wire.to_broker() == produce_request(2, size_bytes=5_000)


def test_connections_of_a_bucket_share_its_room() -> None:
    wire = Wire(A_TIGHT_RULE)
    other = Wire(A_TIGHT_RULE)
    other.session.state.context = other.session.account.context = wire.listening

    wire.client(produce_request(1, size_bytes=4_000))

    assert other.client(produce_request(1, size_bytes=600)) != b""  # passes as in Kafka, alone on its connection
    assert other.client(produce_request(2, size_bytes=600)) == b""


@pytest.mark.parametrize("acks", [0, 1])
def test_a_client_that_stalls_within_a_huge_request_blocks_others_for_25_seconds(acks: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    other = Wire(A_TIGHT_RULE)
    other.session.state.context = other.session.account.context = wire.listening
    wire.client(produce_request(1, acks=acks, size_bytes=84_000_000)[:10_000])

    assert other.client(produce_request(1)) == b""
    other.wait(24_999)
    assert other.to_broker() == b""
    other.wait(1)

    assert other.to_broker() == produce_request(1)
    assert other.broker(produce_response(1)) == produce_response(1)
    assert other.client(produce_request(2)) == b""
    other.wait(800)  # at the pace of the quota
    assert other.to_broker() == produce_request(2)
