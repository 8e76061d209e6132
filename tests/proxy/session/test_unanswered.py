"""Tests responses that arrive after the client has left: fetches are charged, and others are skipped."""

import pytest

from kafka_quota_proxy.config.model import Enforcement, QuotaRule
from kafka_quota_proxy.proxy.session.unanswered import Unanswered
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

LIMITED = QuotaRule(client_id="etl", producer_byte_rate=1e6, consumer_byte_rate=1e6)


def left(wire: Wire) -> Unanswered:
    unanswered = wire.session.close(now_ms=wire.now_ms, has_passed=True)
    assert unanswered is not None
    assert not unanswered.is_done
    return unanswered


@pytest.mark.parametrize("piece_bytes", [1, 5, 400, 100_000])
def test_each_fetch_is_charged_its_response_for_any_split(piece_bytes: int) -> None:
    wire = Wire(LIMITED)
    wire.client(other_request(1), fetch_request(2), produce_request(3))
    unanswered = left(wire)
    bucket = wire.bucket("fetch")
    assert (bucket.holders, bucket.reserved.amount > 0) == (1, True)
    answers = other_response(1, size_bytes=700) + fetch_response(2, size_bytes=3_000)

    for at in range(0, len(answers), piece_bytes):
        if unanswered.is_done:
            break
        assert unanswered.receive(answers[at : at + piece_bytes], now_ms=wire.now_ms)

    assert unanswered.is_done
    assert (bucket.usage.amount, bucket.usage.requests, bucket.holders, bucket.reserved.amount) == (3_000, 1, 0, 0)
    assert (wire.bucket("produce").usage.amount, wire.bucket("produce").reserved.amount) == (400, 0)


def test_rest_of_a_partial_response_is_not_parsed_as_a_header() -> None:
    wire = Wire(LIMITED)
    wire.client(other_request(1), fetch_request(2))
    whole = other_response(1, size_bytes=5_000)
    wire.broker(whole[:1_000])
    unanswered = left(wire)

    assert unanswered.receive(whole[1_000:] + fetch_response(2, size_bytes=3_000)[:8], now_ms=wire.now_ms)

    assert unanswered.is_done
    assert wire.bucket("fetch").usage.amount == 3_000


@pytest.mark.parametrize("come_bytes", [3, 7])
def test_partial_header_is_completed_after_the_client_disconnects(come_bytes: int) -> None:
    wire = Wire(LIMITED)
    wire.client(fetch_request(1))
    answer = fetch_response(1, size_bytes=3_000)
    wire.broker(answer[:come_bytes])
    unanswered = left(wire)

    assert unanswered.receive(answer[come_bytes:], now_ms=wire.now_ms)

    assert wire.bucket("fetch").usage.amount == 3_000


def test_held_response_is_charged_once() -> None:
    wire = Wire(
        QuotaRule(client_id="etl", producer_byte_rate=1.0, consumer_byte_rate=1e6), enforcement=Enforcement.DELAY
    )
    wire.client(produce_request(1), fetch_request(2))
    assert wire.broker(produce_response(1)[:20], produce_response(1)[20:]) == b""
    assert wire.session.state.delayed_until_ms
    unanswered = left(wire)

    assert unanswered.receive(fetch_response(2, size_bytes=3_000), now_ms=wire.now_ms)

    assert (wire.bucket("produce").usage.amount, wire.bucket("fetch").usage.amount) == (400, 3_000)


@pytest.mark.parametrize(("is_charged", "requests"), [(True, 1), (False, 0)])
def test_abandoned_fetch_is_charged_its_reservation_or_nothing(is_charged: bool, requests: int) -> None:
    wire = Wire(LIMITED)
    wire.client(fetch_request(1))
    bucket = wire.bucket("fetch")
    reserved_bytes = bucket.reserved.amount
    unanswered = left(wire)

    unanswered.close(now_ms=wire.now_ms, is_charged=is_charged)
    unanswered.close(now_ms=wire.now_ms, is_charged=is_charged)

    assert (bucket.usage.amount, bucket.usage.requests) == (reserved_bytes if is_charged else 0, requests)
    assert (bucket.holders, bucket.reserved.amount) == (0, 0)


@pytest.mark.parametrize("answer", [fetch_response(2), b"\0\0\0\3" + bytes(8)])
def test_unread_responses_are_reported(answer: bytes) -> None:
    wire = Wire(LIMITED)
    wire.client(fetch_request(1))

    assert not left(wire).receive(answer, now_ms=wire.now_ms)


@pytest.mark.parametrize("rules", [(), (QuotaRule(client_id="etl", producer_byte_rate=1.0),)])
def test_without_a_fetch_limit_no_response_is_awaited(rules: tuple[QuotaRule, ...]) -> None:
    wire = Wire(*rules)
    wire.client(fetch_request(1))

    assert wire.session.close(now_ms=wire.now_ms, has_passed=True) is None


def test_a_charged_fetch_wakes_the_next_in_line() -> None:
    wire = Wire(QuotaRule(client_id="etl", consumer_byte_rate=500.0))
    other = wire.beside()
    wire.client(fetch_request(1))
    assert other.client(fetch_request(2)) == b""
    unanswered = left(wire)

    assert unanswered.receive(fetch_response(1, size_bytes=3_000)[:6], now_ms=wire.now_ms)
    assert unanswered.held_bytes == 6
    assert unanswered.receive(fetch_response(1, size_bytes=3_000)[6:], now_ms=wire.now_ms)

    assert unanswered.is_done
    line = wire.bucket("fetch").line
    assert line is not None
    assert line.mean_amount == 3_000
