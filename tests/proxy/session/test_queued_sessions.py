"""Tests that exactly the clients with a request at the broker have a slot, whatever clients do."""

from collections.abc import Callable
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.connection_queue import HeldSlot
from kafka_quota_proxy.proxy.fair_queue.dispatcher import State
from kafka_quota_proxy.proxy.fair_queue.request_kind import CONTROL
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.queued_clients import Crowd, grouped, handshake, handshake_response, heartbeat
from tests.support.wire import Wire

REQUESTS: Final[dict[str, Callable[[int], bytes]]] = {
    "produce": produce_request,
    "large": lambda number: produce_request(number, size_bytes=60_000),
    "upload": lambda number: produce_request(number, size_bytes=600_000),
    "unanswered": lambda number: produce_request(number, acks=0),
    "fetch": fetch_request,
    "other": other_request,
    "heartbeat": heartbeat,
    "join": lambda number: grouped(ApiKey.JOIN_GROUP, number),
    "login": handshake,
}
ANSWERS: Final[dict[int, Callable[[int], bytes]]] = {
    ApiKey.PRODUCE: produce_response,
    ApiKey.FETCH: fetch_response,
    ApiKey.SASL_HANDSHAKE: handshake_response,
}
DELAYS: Final = QuotaRule(client_id=DEFAULT, producer_byte_rate=100.0)
STEPS: Final = st.tuples(
    st.integers(0, 2),
    st.sampled_from([*REQUESTS, "answer", "answer", "answer", "full", "empty"]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 20, 1_000]),
)


class Client:
    """A client of the queue. ``rest`` is the part of its last request that it has not sent yet."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.rest = b""
        self.is_full = False
        self.number = 0

    def do(self, what: str, *, in_halves: bool) -> None:
        session = self.wire.session
        session.state.now_ns = self.wire.now_ms * 1_000_000
        if what == "full":
            self.is_full = True
            session.pause_answers()
        elif what == "empty":
            self.is_full = False
            session.resume_answers()
            self.wire.resume()
        elif what == "answer":
            self.answer()
        else:
            self.number += 1
            request = self.rest + REQUESTS[what](self.number)
            half = len(request) // 2 if in_halves else len(request)
            self.rest = request[half:]
            self.wire.client(request[:half])

    def answer(self) -> None:
        session = self.wire.session
        is_half = session.state.request_left and len(session.state.in_flight) == 1 and session.state.unanswered is None
        if session.state.in_flight and not (is_half or self.is_full or session.state.delayed_until_ms):
            oldest = session.state.in_flight[0]
            correlation_id, api_key = oldest.correlation_id, oldest.profile.api_key
            self.wire.broker(ANSWERS.get(api_key, other_response)(correlation_id))

    def check(self) -> None:
        session = self.wire.session
        call = session.state.broker_turn.queued
        if call is None:
            return
        is_at_work = bool(session.state.in_flight or session.state.request_left)
        assert is_at_work or call.ticket.state in (State.IDLE, State.WAITING)
        assert call.ticket.state is not State.RUNNING or not (self.is_full or session.state.delayed_until_ms)
        assert session.state.broker_turn._service is None or not (self.is_full or session.state.delayed_until_ms)
        for sent in (pending.charge for pending in session.state.in_flight):
            if sent is not None and call.ticket.state is State.RUNNING:
                assert (sent.kind.api_key in CONTROL) is call.ticket.is_control


def let_pass(crowd: Crowd, wait_ms: int) -> None:
    """Let time pass, and wake each session when its timer is due."""
    end_ms = crowd.wires[0].now_ms + wait_ms
    for wire in crowd.wires:
        while wire.now_ms < (wake_at_ms := wire.session.wake_at_ms) <= end_ms:
            wire.now_ms = wake_at_ms
            wire.session.state.now_ns = wire.now_ms * 1_000_000
            wire.session.handle_timer(now_ms=wire.now_ms)
        wire.now_ms = end_ms
    crowd.timeouts.park_due(end_ms * 1_000)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.sampled_from([(), (DELAYS,)]), st.lists(STEPS, min_size=20, max_size=60))
def test_slots_belong_to_connections_with_requests_at_the_broker(
    slots: int, rules: tuple[QuotaRule, ...], steps: list[tuple[int, str, bool, int]]
) -> None:
    crowd = Crowd(*rules, slots=slots, enforcement=Enforcement.DELAY)
    clients = [Client(wire) for wire in crowd.wires]

    def settle() -> None:
        while granted := crowd.granted():
            for wire in granted:
                wire.resume()
        for client in clients:
            client.check()
        tickets = [
            wire.session.state.broker_turn.queued.ticket
            for wire in crowd.wires
            if wire.session.state.broker_turn.queued is not None
        ]
        running = [ticket for ticket in tickets if ticket.state is State.RUNNING]
        held = sum(isinstance(holder, HeldSlot) for holder in crowd.timeouts._at_us)
        assert crowd.dispatcher.in_flight == sum(not ticket.is_control for ticket in running) + held
        # A request that lost its slot while its rest arrived counts again when it is whole.
        assert crowd.dispatcher.in_flight <= slots + crowd.stats.parked.get(ApiKey.PRODUCE, 0)
        assert crowd.dispatcher.control_in_flight == sum(ticket.is_control for ticket in running)

    for which, what, in_halves, wait_ms in steps:
        clients[which].do(what, in_halves=in_halves)
        settle()
        let_pass(crowd, wait_ms)
        settle()

    for client in clients:
        client.do("empty", in_halves=False)
        client.wire.client(client.rest)
        client.rest = b""
    for _ in range(200):
        for client in clients:
            client.do("answer", in_halves=False)
            settle()
        let_pass(crowd, 3_000_000)
        settle()
        if all(wire.session.is_idle for wire in crowd.wires):
            break
    assert all(wire.session.is_idle for wire in crowd.wires)
    assert (crowd.dispatcher.in_flight, crowd.dispatcher.control_in_flight, len(crowd.dispatcher.queue)) == (0, 0, 0)
