"""Tests that a request waits for room in its bucket, and what is charged of requests without a response."""

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


def test_request_of_a_muted_client_waits() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))

    assert wire.client(produce_request(2), other_request(3)) == b""
    assert wire.session.state.blocked_by is not None
    wire.wait(1_999)
    assert wire.to_broker() == b""
    wire.wait(1)
    assert wire.to_broker() == produce_request(2) + other_request(3)


def test_pipelined_requests_are_forwarded_while_the_bucket_has_room() -> None:
    wire = Wire(A_TIGHT_RULE)  # there is room for 5,000 bytes

    assert wire.client(*(produce_request(number, size_bytes=1_000) for number in range(6))) == b"".join(
        produce_request(number, size_bytes=1_000) for number in range(5)
    )
    assert wire.session.state.blocked_by is not None


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


FIVE_A_SECOND = QuotaRule(client_id=DEFAULT, request_rate=5.0)


def test_produce_without_acks_is_counted_once_forwarded() -> None:
    wire = Wire(FIVE_A_SECOND)
    request = produce_request(acks=0)
    for _ in range(50):
        wire.client(request)
    assert wire.muted_for_ms == 0

    wire.client(request[:-1])
    assert wire.bucket("request_rate").usage.requests == 50
    wire.client(request[-1:])

    assert wire.bucket("request_rate").usage.requests == 51
    assert wire.muted_for_ms == 200


@pytest.mark.parametrize("says_so", [True, False])
def test_produce_without_acks_that_is_cut_off_is_not_counted(says_so: bool) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(produce_request(acks=0)[:-1])

    if says_so:
        wire.session.receive_end_from_client()
    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    bucket = wire.bucket("request_rate")
    assert (bucket.usage.requests, bucket.reserved.amount) == (0, 0)


@pytest.mark.parametrize("is_connected", [True, False])
def test_produce_without_acks_is_charged_only_if_the_broker_is_connected(is_connected: bool) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.session.await_broker()
    request = produce_request(acks=0)
    wire.client(request, request)
    buckets = [wire.bucket(), wire.bucket("request_rate")]
    assert [bucket.usage.amount for bucket in buckets] == [0, 0]
    assert [bucket.reserved.amount for bucket in buckets] == [2 * (len(request) - 4), 2]

    if is_connected:
        wire.session.connect_broker(now_ms=wire.now_ms)
    else:
        wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert [bucket.usage.amount for bucket in buckets] == ([2 * (len(request) - 4), 2] if is_connected else [0, 0])
    assert [bucket.reserved.amount for bucket in buckets] == [0, 0]


def test_requests_are_pipelined_and_answered_in_order() -> None:
    wire = Wire()
    requests = [produce_request(1), fetch_request(2), other_request(3), produce_request(4)]
    responses = [produce_response(1), fetch_response(2), other_response(3), produce_response(4)]

    assert wire.client(b"".join(requests)) == b"".join(requests)
    assert wire.broker(*responses) == b"".join(responses)
    assert wire.session.is_idle


@pytest.mark.parametrize("acks_of_the_last", [0, 1])
def test_client_that_disconnects_early_is_charged_for_complete_requests(acks_of_the_last: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=1_000), produce_request(2, acks=acks_of_the_last, size_bytes=2_000)[:500])

    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    assert wire.bucket().reserved.amount == 0
    assert wire.bucket().usage.amount == 1_000


def test_requests_in_flight_are_bounded() -> None:
    wire = Wire()

    passed = wire.client(b"".join(other_request(number) for number in range(10_000)))

    assert passed == b"".join(other_request(number) for number in range(MAX_IN_FLIGHT))
    wire.broker(other_response(0))
    assert wire.to_broker() == other_request(MAX_IN_FLIGHT)
