"""Tests how a session ends: a drain completes requests, and a release ends throttling."""

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from tests.support.frames import (
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_drain_answers_partly_forwarded_requests_only() -> None:
    wire = Wire()
    request = produce_request(1, size_bytes=5_000)
    wire.client(request[:3_000])

    wire.session.take_no_more()

    assert not wire.session.is_idle
    assert wire.client(request[3_000:] + produce_request(2)) == request[3_000:]
    assert wire.session.state.is_blocked
    assert not wire.session.has_answered
    assert wire.broker(produce_response(1)) == produce_response(1)
    assert wire.session.is_idle
    assert wire.to_broker() == b""
    assert wire.session.wake_at_ms == 0
    assert wire.muted_for_ms == 0


def test_release_during_a_drain_forwards_no_request() -> None:
    """Otherwise a response would come after the client was told that no more follow."""
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    assert wire.client(produce_request(2)) == b""

    wire.session.take_no_more()
    wire.session.release(now_ms=wire.now_ms)

    assert wire.client(produce_request(3)) == b""
    assert wire.session.is_idle


def test_drain_does_not_wait_for_a_partial_header() -> None:
    wire = Wire()
    wire.client(produce_request()[:9])

    wire.session.take_no_more()

    assert wire.session.is_idle
