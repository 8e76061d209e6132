"""Tests that requests of a client that has gone are dropped while they wait, and counted."""

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from tests.support.frames import fetch_request, other_request, produce_request, produce_response
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0)


def in_debt() -> Wire:
    """Return a connection that is muted for two seconds."""
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    return wire


def test_waiting_requests_are_dropped() -> None:
    wire = in_debt()
    wire.client(produce_request(2) + fetch_request(3) + other_request(4))

    wire.session.abandon(now_ms=wire.now_ms)
    wire.wait(10_000)

    assert wire.to_broker() == b""
    assert wire.session.is_idle
    assert wire.listening.counters.abandoned == 3


def test_records_without_an_answer_are_kept_and_what_follows_them_is_not_answered() -> None:
    """The client may have closed its sending side only. The answer to a later request would come before the others."""
    wire = in_debt()
    kept = [produce_request(number, acks=0) for number in (3, 5)]
    wire.client(produce_request(2) + kept[0] + produce_request(4) + kept[1])

    wire.session.abandon(now_ms=wire.now_ms)
    wire.wait(10_000)

    assert wire.to_broker() == b"".join(kept)
    assert wire.client(produce_request(6), produce_request(7, acks=0)) == produce_request(7, acks=0)


def test_incomplete_request_is_dropped_and_nothing_is_taken_after_it() -> None:
    wire = in_debt()
    wire.client(produce_request(2)[:100])

    wire.session.abandon(now_ms=wire.now_ms)

    assert wire.session.is_idle
    assert wire.listening.counters.abandoned == 1
    assert wire.client(produce_request(2)[100:], produce_request(3)) == b""


def test_request_behind_one_that_is_not_answered_stays() -> None:
    """A client may close its sending side, and wait for all of its answers."""
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=5_000), produce_request(2))

    wire.session.abandon(now_ms=wire.now_ms)
    wire.broker(produce_response(1))

    assert wire.to_broker() == produce_request(2)
    assert wire.listening.counters.abandoned == 0


def test_request_that_cannot_be_read_ends_what_is_dropped() -> None:
    wire = in_debt()
    wire.client(produce_request(2) + b"GET / HTTP/1.1\r\n")

    wire.session.count_abandoned()

    assert wire.listening.counters.abandoned == 1


def test_client_that_waits_for_nothing_loses_nothing() -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.session.abandon(now_ms=wire.now_ms)

    assert wire.client(produce_request(1)) == produce_request(1)
