"""Tests which requests are still forwarded for a client that produces with acks=0 and is drained."""

from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES
from tests.support.frames import fetch_request, other_request, produce_request
from tests.support.wire import Wire


def drained() -> Wire:
    wire = Wire()
    wire.client(produce_request(1, acks=0))
    wire.session.drain()
    return wire


def test_requests_with_an_answer_are_dropped_and_others_forwarded() -> None:
    wire = drained()
    kept = [produce_request(number, acks=0) for number in (2, 5)]

    sent = [kept[0], fetch_request(3), produce_request(4), kept[1], other_request(6)]

    assert wire.client(b"".join(sent)) == b"".join(kept)
    assert wire.session.is_idle
    assert wire.session.takes_unanswered


def test_each_cut_of_a_dropped_request_gives_the_same_result() -> None:
    dropped, kept = produce_request(2, version=9, client_id="other"), produce_request(3, acks=0, client_id="third")
    for cut in range(1, len(dropped + kept)):
        wire = drained()

        passed = wire.client((dropped + kept)[:cut], (dropped + kept)[cut:])

        assert passed == kept, cut


def test_request_that_began_before_is_completed() -> None:
    wire = Wire()
    begun = produce_request(2, acks=0, size_bytes=5_000)
    wire.client(produce_request(1, acks=0) + begun[:2_000])
    wire.session.drain()

    assert wire.client(begun[2_000:] + other_request(3)) == begun[2_000:]


def test_nothing_follows_a_dropped_request_that_is_too_long_to_be_kept() -> None:
    wire = drained()
    long = produce_request(2, size_bytes=2 * MAX_HEAD_BYTES)

    assert wire.client(long[:1_000], long[1_000:] + produce_request(3, acks=0)) == b""

    assert not wire.session.takes_unanswered
    assert wire.session.has_answered
