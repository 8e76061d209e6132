"""Tests the charges of requests for their number and for their time at the broker."""

from dataclasses import replace
from itertools import product
from math import isnan

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule, Shaping
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.throttle_time import throttle_time_offset
from kafka_quota_proxy.proxy.quota.entity_usage import UsageTotals
from kafka_quota_proxy.proxy.session import Session
from tests.protocol.support import kio_messages
from tests.support.cases import each_case
from tests.support.frames import (
    fetch_request,
    framed,
    other_request,
    other_response,
    produce_request,
    produce_response,
    request_header,
)
from tests.support.rules_in_force import update
from tests.support.wire import Wire

FIVE_A_SECOND = QuotaRule(client_id=DEFAULT, request_rate=5.0)
TEN_PERCENT = QuotaRule(client_id=DEFAULT, request_percentage=10.0)


def ask(wire: Wire, number: int = 1, *, takes_ms: int = 0) -> bytes:
    wire.client(other_request(number))
    wire.wait(takes_ms)
    return wire.broker(other_response(number))


@pytest.mark.parametrize(
    "request_", [produce_request(), fetch_request(), other_request()], ids=["Produce", "Fetch", "other"]
)
def test_new_connection_waits_for_the_rest_of_the_throttle_time(request_: bytes) -> None:
    wire = Wire(FIVE_A_SECOND)
    for number in range(51):
        ask(wire, number)
    newcomer = Session(wire.listening)

    newcomer.receive_from_client(request_, now_ms=wire.now_ms)

    assert newcomer.state.to_broker == []
    assert newcomer.needs.wake_at_ms == wire.now_ms + 200


def test_more_requests_than_the_rate_allows_wait_like_bytes() -> None:
    wire = Wire(FIVE_A_SECOND)
    for number in range(50):
        ask(wire, number)
        assert wire.muted_for_ms == 0

    answer = ask(wire, 50)

    # 51 requests in ten windows of a second: (5.1 - 5) / 5 * 10 s
    assert wire.muted_for_ms == 200
    assert int.from_bytes(answer[8:12]) == 200
    assert wire.bucket("request_rate").usage.totals == UsageTotals(51, 51, 1, 200)


@pytest.mark.parametrize("shaping", list(Shaping))
def test_pipelined_requests_are_reserved_before_they_are_forwarded(shaping: Shaping) -> None:
    wire = Wire(replace(FIVE_A_SECOND, shaping=shaping))
    allowed = 50 if shaping is Shaping.SAMPLED else 5

    passed = wire.client(*(other_request(number) for number in range(allowed + 20)))

    assert passed.count(b"etl") == allowed
    assert wire.session.state.blocked_by is not None


# Alone at the broker, a request works for a fifth of its time, and 100 bytes take half a microsecond.
def test_unanswered_request_is_counted_when_its_connection_ends() -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(*(other_request(number) for number in range(3)))

    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    bucket = wire.bucket("request_rate")
    assert (bucket.usage.requests, bucket.reserved.amount) == (3, 0)


def test_request_that_never_reached_the_broker_is_not_counted() -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(other_request(1), other_request(2)[:-1])

    wire.session.receive_end_from_client()
    wire.session.close(now_ms=wire.now_ms, has_passed=False)

    bucket = wire.bucket("request_rate")
    assert (bucket.usage.requests, bucket.reserved.amount) == (0, 0)


FEW_BYTES_NS = 1_000


def worked_ms(wire: Wire) -> float:
    amount_ns = wire.bucket("request").usage.amount
    assert amount_ns % 1_000_000 < FEW_BYTES_NS * wire.bucket("request").usage.requests
    return amount_ns // 1_000_000


def test_time_above_request_percentage_throttles() -> None:
    """100 % is one thread, so 10 % are a second in ten seconds."""
    wire = Wire(TEN_PERCENT)
    for number in range(9):
        ask(wire, number, takes_ms=500)
    assert wire.muted_for_ms == 0

    ask(wire, 9, takes_ms=1_000)

    # 1.1 s in the ten windows that count from the start: (11 - 10) / 10 * 10 s
    assert worked_ms(wire) == 1_100
    assert wire.muted_for_ms == 1_000


@pytest.mark.parametrize("is_answered", [True, False])
def test_new_request_time_scale_holds_from_the_next_request(is_answered: bool) -> None:
    wire = Wire(replace(TEN_PERCENT, enforcement=Enforcement.OBSERVE))
    ask(wire, 1, takes_ms=500)

    update(wire.listening.quotas, replace(wire.config, request_time_scale=1.5))
    if is_answered:
        ask(wire, 2, takes_ms=500)
    else:
        wire.client(other_request(2))
        wire.wait(500)
        wire.session.state.now_ns = wire.now_ms * 1_000_000
        wire.session.close(now_ms=wire.now_ms, has_passed=True)

    assert worked_ms(wire) == 100 + 150


def test_one_wait_for_time_is_a_window_at_the_most() -> None:
    """Source: Kafka's ClientRequestQuotaManager.throttleTime and maxThrottleTimeMs."""
    wire = Wire(TEN_PERCENT)

    ask(wire, takes_ms=20_000)

    assert wire.muted_for_ms == 1_000


def test_time_of_a_pipelined_request_starts_at_the_response_before_it() -> None:
    wire = Wire(replace(TEN_PERCENT, enforcement=Enforcement.OBSERVE))
    wire.client(other_request(1), other_request(2))
    wire.wait(30)
    wire.broker(other_response(1))
    wire.wait(50)
    wire.broker(other_response(2))

    assert worked_ms(wire) == (30 + 50) / 5


@pytest.mark.parametrize("is_ahead", [True, False])
def test_time_starts_when_the_whole_request_is_forwarded(is_ahead: bool) -> None:
    wire = Wire(replace(TEN_PERCENT, enforcement=Enforcement.OBSERVE))
    request = other_request(2)
    if is_ahead:
        wire.client(other_request(1), request[:-1])
        wire.wait(20)
        wire.broker(other_response(1))
    else:
        wire.client(request[:-1])
    wire.wait(700)
    wire.client(request[-1:])
    wire.wait(30)
    wire.broker(other_response(2))

    assert worked_ms(wire) == (10 if is_ahead else 6)


def test_time_starts_when_the_broker_is_connected() -> None:
    wire = Wire(TEN_PERCENT)
    wire.client(other_request(1))
    wire.wait(700)
    wire.session.state.now_ns = wire.now_ms * 1_000_000
    wire.session.connect_broker(now_ms=wire.now_ms)
    wire.wait(30)
    wire.broker(other_response(1))

    assert worked_ms(wire) == 6


def test_request_percentage_allows_no_pipelining() -> None:
    wire = Wire(TEN_PERCENT)

    assert wire.client(other_request(1), other_request(2)).count(b"etl") == 1
    assert wire.session.state.blocked_by is not None
    assert wire.broker(other_response(1)) == other_response(1)
    assert wire.to_broker().count(b"etl") == 1


BOTH = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0, request_percentage=10.0)


@pytest.mark.parametrize(
    ("size_bytes", "takes_ms", "kind", "other"),
    [(6_000, 0, "produce", "request"), (100, 12_000, "request", "produce"), (5_500, 6_000, "request", "produce")],
)
def test_only_the_bucket_with_the_longer_wait_counts_as_throttled(
    size_bytes: int, takes_ms: int, kind: str, other: str
) -> None:
    """Source: RequestQuotaTest.testResponseThrottleTimeWhenBothProduceAndRequestQuotasViolated in Kafka."""
    wire = Wire(BOTH)
    wire.client(produce_request(1, size_bytes=size_bytes))
    wire.wait(takes_ms)
    wire.broker(produce_response(1))

    assert wire.muted_for_ms == wire.bucket(kind).usage.throttling.time_ms > 0
    assert not isnan(wire.bucket(kind).usage.throttling.average_ms.peek(now_ms=wire.now_ms))
    assert isnan(wire.bucket(other).usage.throttling.average_ms.peek(now_ms=wire.now_ms))


def test_observed_rule_does_not_hide_an_enforced_rule() -> None:
    wire = Wire(
        QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, enforcement=Enforcement.OBSERVE),
        QuotaRule(user=DEFAULT, request_rate=5.0),
    )
    for number in range(51):
        wire.client(produce_request(number, size_bytes=6_000))
        wire.broker(produce_response(number))

    assert wire.bucket("produce").usage.throttling.observed_time_ms > wire.muted_for_ms == 200


# The field of each older version is found in tests/protocol.
NEWEST = dict(kio_messages.api_versions())


@each_case("api_key", sorted(NEWEST.keys() - {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}))
@pytest.mark.parametrize("piece_bytes", [1, 1_000_000])
def test_each_response_with_the_field_has_the_throttle_time(api_key: int, piece_bytes: int) -> None:
    version = NEWEST[api_key]
    wire = Wire(QuotaRule(client_id=DEFAULT, request_rate=0.000_1))
    request = kio_messages.request_frame(kio_messages.example(kio_messages.request_class(api_key, version)))
    answer = kio_messages.response_frame(kio_messages.example(kio_messages.response_class(api_key, version)))
    wire.client(request)

    told = b"".join(wire.broker(answer[at : at + piece_bytes]) for at in range(0, len(answer), piece_bytes))

    at = throttle_time_offset(answer, api_key, version)
    if at is None:
        assert told == answer
    else:
        assert int.from_bytes(told[at : at + 4]) == wire.muted_for_ms
        assert told[:at] + told[at + 4 :] == answer[:at] + answer[at + 4 :]
    assert wire.muted_for_ms > 1_000_000


def test_longer_broker_throttle_time_stays_and_mutes() -> None:
    wire = Wire(QuotaRule(client_id=DEFAULT, request_rate=0.5))
    for number in range(5):
        ask(wire, number)
    wire.client(other_request(5))

    answer = wire.broker(framed((5).to_bytes(4) + (60_000).to_bytes(4) + bytes(80)))

    assert int.from_bytes(answer[8:12]) == wire.muted_for_ms == 60_000


def test_a_login_that_cannot_be_read_reserves_nothing() -> None:
    wire = Wire(FIVE_A_SECOND)
    ask(wire)
    broken = framed(request_header(ApiKey.SASL_HANDSHAKE, 1, 2, "etl", is_flexible=False) + b"\x7f\xffshort")

    with pytest.raises(ProtocolError):
        wire.client(broken)
    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    assert wire.bucket("request_rate").reserved.amount == 0


@pytest.mark.parametrize(("first", "then"), list(product(["etl", "reports"], repeat=2)))
def test_each_client_id_of_a_connection_is_charged_for_its_requests(first: str, then: str) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(produce_request(1, client_id=first), other_request(2, client_id=then))
    wire.client(produce_request(3, client_id=first))
    wire.broker(produce_response(1), other_response(2), produce_response(3))

    counts = {name: wire.bucket("request_rate", client_id=name).usage.requests for name in {first, then}}
    assert counts == ({first: 3} if first == then else {first: 2, then: 1})
    for name in counts:
        assert wire.bucket("request_rate", client_id=name).reserved.amount == 0


def test_client_id_change_by_another_request_holds_its_bucket() -> None:
    """If no connection held the bucket, it could be evicted, and the client would get another quota."""
    wire = Wire(QuotaRule(client_id=DEFAULT, producer_byte_rate=1e9), QuotaRule(user=DEFAULT, request_rate=1_000.0))
    wire.client(produce_request(1))
    wire.broker(produce_response(1))

    wire.client(other_request(2, client_id="web"))
    wire.broker(other_response(2))
    wire.client(produce_request(3))

    assert wire.bucket().reserved.amount > 0
    assert wire.bucket().holders == 1
