"""Tests requests to change the broker's quotas among other requests: order is kept, and nothing is lost."""

from random import Random

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    Alteration,
    Altered,
    AlterRequest,
    AlterResponse,
    Op,
    write_response,
)
from kafka_quota_proxy.proxy.rules.api import Ticket
from kafka_quota_proxy.proxy.rules.broker.forwarded_alter import MAX_BYTES
from kafka_quota_proxy.proxy.rules.outcome import NOBODY
from tests.support.frames import other_request, other_response, produce_request, produce_response
from tests.support.quota_request_frames import write_alter_request
from tests.support.stub_broker import correlation_id
from tests.support.wire import Wire

ETL = (("client-id", "etl"),)
OPS = (Op("producer_byte_rate", 5.0),)


class Follower:
    """Holds each response to a quota change until ``tell`` is called."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def await_change(self, changed: tuple[Alteration, ...], answer: bytes, owner: object) -> Ticket:
        assert changed == (Alteration(ETL, OPS),)
        self.tickets.append(Ticket(answer, NOBODY, owner))
        return self.tickets[-1]

    def tell(self, wire: Wire) -> bytes:
        """Release the oldest response. Return the bytes that the client receives."""
        ticket = self.tickets.pop(0)
        assert ticket.owner is wire
        ticket.answer = ticket.frame
        wire.session.resume(now_ms=wire.now_ms)
        return wire.to_client()


def wire_of(*rules: QuotaRule) -> tuple[Wire, Follower]:
    wire, follower = Wire(*rules), Follower()
    wire.listening.policy = wire.listening.policy._replace(authority=follower)
    return wire, follower


def alter(number: int, *, is_dry: bool = False) -> bytes:
    return write_alter_request(AlterRequest(1, number, (Alteration(ETL, OPS),), is_dry), client_id="etl")


def done(number: int) -> bytes:
    return write_response(AlterResponse(0, (Altered(0, None, ETL),)), correlation_id=number, api_version=1)


def answer_of(request: bytes) -> bytes:
    number = correlation_id(request)
    api_key = int.from_bytes(request[4:6])
    return done(number) if api_key == ALTER else other_response(number) if api_key else produce_response(number)


def cut(data: bytes, random: Random) -> list[bytes]:
    pieces = []
    while data:
        size = random.choice((1, 2, 7, 40, 200, len(data)))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("rules", [(), (QuotaRule(client_id="etl", request_rate=1e6),)])
@pytest.mark.parametrize("seed", range(60))
def test_responses_come_once_and_in_order_for_any_split_of_the_bytes(seed: int, rules: tuple[QuotaRule, ...]) -> None:
    random = Random(seed)  # noqa: S311
    wire, follower = wire_of(*rules)
    asked = []
    for number in range(1, 13):
        kind = random.choice(("alter", "alter", "dry", "produce", "other"))
        if kind == "produce":
            asked.append(produce_request(number))
        else:
            asked.append(other_request(number) if kind == "other" else alter(number, is_dry=kind == "dry"))
    to_come, to_broker, to_client = cut(b"".join(asked), random), b"", b""
    answered = held = 0
    while len(to_client) < sum(len(answer_of(one)) for one in asked):
        if to_come and (random.random() < 0.5 or not (follower.tickets or answered < len(to_broker))):
            to_broker += wire.client(to_come.pop(0))
        elif follower.tickets and random.random() < 0.5:
            assert not wire.session.has_answered
            to_client += follower.tell(wire)
        else:
            to_broker += wire.to_broker()
            size = 4 + int.from_bytes(to_broker[answered : answered + 4])
            if answered + size <= len(to_broker):
                request, answered = to_broker[answered : answered + size], answered + size
                held += len(follower.tickets)
                for piece in cut(answer_of(request), random):
                    to_client += wire.broker(piece)
        to_broker += wire.to_broker()

    assert to_broker == b"".join(asked)
    assert to_client == b"".join(answer_of(one) for one in asked)
    assert wire.session.has_answered
    assert held == 0  # the broker gets no other request while a response is held


def test_held_response_stops_reading_and_delays_the_drain() -> None:
    wire, follower = wire_of()
    assert wire.client(alter(1)) == alter(1)
    assert wire.broker(done(1)) == b""

    assert wire.session.state.blocked_by is not None
    assert wire.client(other_request(2)) == b""
    wire.session.take_no_more()
    assert not wire.session.has_answered
    assert follower.tell(wire) == done(1)
    assert wire.session.has_answered
    assert wire.to_broker() == b""


def test_closing_drops_a_held_response() -> None:
    wire, follower = wire_of()
    wire.client(alter(1))
    wire.broker(done(1))

    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    assert follower.tickets[0].is_dropped


def test_request_that_is_too_large_or_too_new_is_forwarded_unchanged() -> None:
    wire, follower = wire_of()
    many = AlterRequest(1, 1, (Alteration(ETL, OPS * (MAX_BYTES // 20)),), False)
    large = write_alter_request(many, client_id="etl")
    assert len(large) > MAX_BYTES
    assert wire.client(large[:1_000]) == large[:1_000]
    assert wire.client(large[1_000:]) == large[1_000:]
    assert wire.broker(done(1)) == done(1)

    newer = alter(2)[:6] + (2).to_bytes(2) + alter(2)[8:]
    assert wire.client(newer) == newer
    assert wire.broker(other_response(2)) == other_response(2)
    assert follower.tickets == []
