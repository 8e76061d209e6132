"""Tests that no client takes the slots of a broker from all others: sessions and a queue on a simulated clock."""

from __future__ import annotations

from collections import deque

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ASKS_FROM_BYTES, UPLOAD_GRACE_US
from kafka_quota_proxy.proxy.fair_queue.cost import RequestCount
from kafka_quota_proxy.proxy.fair_queue.dispatcher import State
from kafka_quota_proxy.proxy.fair_queue.usual_time import LEAST_GRACE_US, LEAST_PATIENCE_US
from tests.support.frames import (
    fetch_request,
    fetched_batch,
    framed,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.logins import authenticate_request, authenticate_response, handshake_request, handshake_response
from tests.support.queued_clients import CountingLimit, Crowd, costs, grouped, heartbeat
from tests.support.wire import START_MS, Wire

_GRACE_MS = UPLOAD_GRACE_US // 1_000
_LARGE = produce_request(1, size_bytes=1_000_000)


def log_in(wire: Wire) -> None:
    wire.client(handshake_request("PLAIN"))
    wire.broker(handshake_response())
    wire.client(authenticate_request(b"\0alice\0secret"))
    wire.broker(authenticate_response(b""))
    assert wire.session.account.principal == "alice"


def test_half_sent_requests_hold_no_slot() -> None:
    crowd = Crowd(slots=4, clients=41)
    *attackers, light = crowd.wires
    for wire in attackers:
        assert wire.client(_LARGE[:80]) == b""

    assert light.client(produce_request(2)) == produce_request(2)
    assert crowd.dispatcher.in_flight == 1
    assert any(wire.session.state.blocked_by is None for wire in attackers)  # they are read on


def test_half_sent_control_requests_hold_no_slot() -> None:
    crowd = Crowd(clients=1_001)
    *attackers, light = crowd.wires
    for wire in attackers:
        assert wire.client(grouped(ApiKey.OFFSET_COMMIT)[:-1]) == b""

    assert light.client(heartbeat()) == heartbeat()
    assert crowd.dispatcher.control_in_flight == 1


def test_half_sent_request_behind_another_takes_no_slot_over() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    assert first.client(other_request(1), _LARGE[:80]) == other_request(1)
    second.client(other_request(2))

    first.broker(other_response(1))

    assert crowd.granted() == [second]


def test_request_that_is_too_long_for_one_read_asks_with_its_first_bytes() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    assert first.client(_LARGE[: ASKS_FROM_BYTES - 1]) == b""
    assert crowd.dispatcher.in_flight == 0
    assert first.client(_LARGE[ASKS_FROM_BYTES - 1 : ASKS_FROM_BYTES + 1]) == _LARGE[: ASKS_FROM_BYTES + 1]
    assert second.client(produce_request(2)) == b""

    crowd.wait(_GRACE_MS)

    assert crowd.granted() == [second]


def test_upload_pays_for_the_time_of_its_slot() -> None:
    crowd = Crowd()
    crowd.line.cost = RequestCount()
    first, second, _ = crowd.wires
    for number in range(40):  # a Produce takes 2 ms
        second.client(produce_request(number))
        crowd.wait(2)
        second.broker(produce_response(number))
    paid = sum(costs(crowd))

    first.client(_LARGE[:ASKS_FROM_BYTES])
    crowd.wait(_GRACE_MS)
    first.session.close(now_ms=first.now_ms, has_passed=False)

    assert sum(costs(crowd)) - paid == _GRACE_MS // 2


def test_upload_that_has_lost_its_slot_counts_again_when_it_is_whole() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(_LARGE[:ASKS_FROM_BYTES])
    crowd.wait(_GRACE_MS)
    second.client(produce_request(2))

    assert first.client(_LARGE[ASKS_FROM_BYTES:]) == _LARGE[ASKS_FROM_BYTES:]

    assert crowd.dispatcher.in_flight == 2  # the broker works on both
    second.broker(produce_response(2))
    assert third.client(produce_request(3)) == b""
    first.broker(produce_response(1))
    assert crowd.granted() == [third]


def test_client_before_its_login_gets_no_slot_where_clients_log_in() -> None:
    crowd = Crowd(clients=4)
    known, stranger, other, late = crowd.wires
    assert stranger.client(produce_request(1)) == produce_request(1)
    assert crowd.dispatcher.in_flight == 1  # so far, nobody has logged in
    stranger.session.close(now_ms=stranger.now_ms, has_passed=False)
    log_in(known)

    assert other.client(produce_request(1)) == produce_request(1)  # the broker closes the connection
    assert crowd.dispatcher.in_flight == 0
    assert known.client(produce_request(2)) == produce_request(2)
    assert crowd.dispatcher.in_flight == 1

    other.broker(produce_response(1))  # so clients need no login any more
    assert late.client(produce_request(3)) == b""


def test_a_user_cannot_hold_all_control_slots() -> None:
    crowd = Crowd(clients=101)
    *flood, light = crowd.wires
    light.session.account.peer_host = "10.0.0.9"
    passed = [wire for wire in flood if wire.client(grouped(ApiKey.OFFSET_COMMIT))]

    assert len(passed) == 3
    assert light.client(heartbeat()) == heartbeat()
    passed[0].broker(other_response(1))
    (granted,) = crowd.granted()
    assert granted.resume() == grouped(ApiKey.OFFSET_COMMIT)
    assert granted.session.state.broker_turn.queued is not None
    assert granted.session.state.broker_turn.queued.ticket.state is State.RUNNING
    assert crowd.dispatcher.control_in_flight == 4


def test_produce_that_waits_for_followers_gives_its_slot_back() -> None:
    crowd = Crowd(slots=2, clients=4)
    limit = CountingLimit(2)
    crowd.dispatcher.update(crowd.settings, limit, START_MS * 1_000)
    stalled, also_stalled, light, other = crowd.wires
    stalled.client(produce_request(1, acks=-1))
    crowd.wait(1)
    light.client(produce_request(2))
    light.broker(produce_response(2))  # so the broker is not busy
    also_stalled.client(produce_request(1, acks=-1))
    assert light.client(produce_request(3)) == b""
    taken_us = crowd.stats.served[0][2]

    crowd.wait(LEAST_GRACE_US // 1_000 - 1)
    assert crowd.granted() == [light]
    assert light.resume() == produce_request(3)
    assert other.client(produce_request(4)) == b""
    crowd.wait(1)
    assert crowd.granted() == []  # of the requests that came after the second one, none is answered
    light.broker(produce_response(3))
    assert crowd.granted() == [other]
    crowd.wait(8_800)
    stalled.broker(produce_response(1))

    assert limit.observed == 2  # those of the light client
    assert crowd.stats.served[0][2] - taken_us < 100_000  # so no request of another user is refused for it
    assert crowd.dispatcher.normal.usual_time.mean_us(crowd.wires[0].now_ms * 1_000) < 1_000


def test_produces_that_wait_for_followers_in_all_slots_give_them_back() -> None:
    crowd = Crowd(slots=4, clients=11)
    *stalled, light = crowd.wires
    for wire in stalled:
        wire.client(produce_request(1, acks=-1))
    assert light.client(produce_request(2)) == b""

    crowd.wait(LEAST_PATIENCE_US // 1_000 - 1)
    assert crowd.granted() == []
    crowd.wait(1)
    for wire in crowd.granted():
        wire.resume()
    crowd.wait(LEAST_PATIENCE_US // 1_000)
    assert light in crowd.granted()
    light.resume()
    light.broker(produce_response(2))
    for _ in range(10):
        light.client(produce_request(2))
        crowd.wait(1)
        light.broker(produce_response(2))
    assert crowd.stats.parked == {ApiKey.PRODUCE: 8}


@pytest.mark.parametrize("api_key", [ApiKey.OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.LEAVE_GROUP])
def test_control_request_that_waits_for_followers_gives_its_slot_back(api_key: ApiKey) -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(grouped(api_key))
    crowd.wait(1)
    second.client(heartbeat())
    second.broker(other_response(1))
    third.client(grouped(ApiKey.FIND_COORDINATOR))

    crowd.wait(LEAST_GRACE_US // 1_000)

    assert crowd.stats.parked == {api_key: 1}
    assert crowd.dispatcher.control_in_flight == 1


class SlowBroker:
    """Works on one request at a time, for ``work_ms``. Each client sends the next request at once."""

    def __init__(self, crowd: Crowd, request: bytes, work_ms: int) -> None:
        self.crowd = crowd
        self.request = request
        self.work_ms = work_ms
        self.received: deque[Wire] = deque()
        self.at_ms = 0
        self.done_ms = 0
        self.answered = 0
        self.most = 0

    def take(self, wire: Wire, sent: bytes) -> None:
        if sent:
            self.received.append(wire)
            self.most = max(self.most, len(self.received))

    def run(self, wires: list[Wire], for_ms: int) -> None:
        for wire in wires:
            self.take(wire, wire.client(self.request))
        for _ in range(for_ms):
            self.at_ms += 1
            self.crowd.wait(1)
            if self.received and self.at_ms >= self.done_ms:
                wire = self.received.popleft()
                wire.broker(produce_response(1))
                self.answered += 1
                self.done_ms = self.at_ms + self.work_ms
                self.take(wire, wire.client(self.request))
            for wire in self.crowd.granted():
                self.take(wire, wire.resume())


@pytest.mark.parametrize("work_ms", [1, 5])
@pytest.mark.parametrize("acks", [1, -1])
def test_flood_stays_in_the_queue_whatever_it_wants_to_be_acknowledged(acks: int, work_ms: int) -> None:
    crowd = Crowd(slots=4, clients=100)
    broker = SlowBroker(crowd, produce_request(1, acks=acks), work_ms)
    broker.run(crowd.wires, 500 * work_ms)
    broker.most = 0
    broker.run([], 500 * work_ms)
    assert broker.most == 4
    assert broker.answered > 900


@pytest.mark.parametrize("padding", ["client-id", "rack"])
def test_fetch_that_makes_its_request_long_is_not_empty(padding: str) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    client_id = "x" * 30_000 if padding == "client-id" else "etl"
    request = fetch_request(1, client_id=client_id)
    if padding == "rack":
        request = framed(request[4:-2] + (30_000).to_bytes(2) + bytes(30_000))
    first.client(request)
    crowd.wait(21)
    first.broker(fetched_batch(1, size_bytes=60_000))

    second.client(produce_request(2))
    assert first.client(request) == b""


def test_requests_without_answers_pass_while_no_other_is_answered() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    many = produce_request(1, acks=0) * 100
    assert first.client(many) == many
    assert second.client(many) == many
