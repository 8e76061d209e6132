"""Tests which requests are forwarded, however their bytes are cut."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.protocol.errors import HeadTooLong
from tests.support.frames import (
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_request_body_is_forwarded_in_pieces_without_buffering() -> None:
    wire = Wire()
    request = produce_request(size_bytes=1_000_000)

    passed = [wire.client(request[at : at + 65_536]) for at in range(0, len(request), 65_536)]

    assert [len(piece) for piece in passed] == [65_536] * 15 + [len(request) - 15 * 65_536]
    assert b"".join(passed) == request


def test_request_header_waits_until_it_is_complete() -> None:
    wire = Wire()
    request = produce_request(version=9)

    assert wire.client(request[:20]) == b""
    assert wire.session.state.blocked_by is None  # the session waits for bytes, and not for time
    assert wire.client(request[20:]) == request


def test_cut_off_request_is_not_awaited() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=400), produce_request(2, size_bytes=4_000)[:100])

    wire.session.receive_end_from_client()

    assert wire.bucket().reserved.amount == 400
    assert not wire.session.is_idle
    wire.broker(produce_response(1))
    assert wire.session.is_idle
    assert wire.bucket().reserved.amount == 0


def test_cut_off_request_without_acks_keeps_earlier_responses() -> None:
    wire = Wire()
    wire.client(other_request(1), produce_request(2, acks=0, size_bytes=4_000)[:100])

    wire.session.receive_end_from_client()

    assert not wire.session.is_idle
    wire.broker(other_response(1))
    assert wire.session.is_idle
    assert wire.bucket().usage.amount == 0


def test_short_remainder_does_not_keep_the_whole_read_in_memory() -> None:
    wire = Wire()
    requests = b"".join(produce_request(number, size_bytes=1_000) for number in range(200))

    wire.client(requests + produce_request(200)[:5])

    assert len(wire.session._requests._data) == 5


def test_endless_header_is_refused() -> None:
    wire = Wire()
    endless = other_request(1, api_key=3, version=12)[4:]
    header = endless[:8] + b"\x00\x01x" + b"\xff\x01" + b"\x00\xff\xff\x7f"  # the first tag has 2 MiB

    with pytest.raises(HeadTooLong):
        wire.client((50_000_000).to_bytes(4, "big") + header, *([bytes(10_000)] * 30))
