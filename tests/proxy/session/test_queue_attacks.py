"""Tests that no client takes the slots of a broker from all others: sessions and a queue on a simulated clock."""

from __future__ import annotations

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ASKS_FROM_BYTES, UPLOAD_GRACE_US
from kafka_quota_proxy.proxy.fair_queue.cost import RequestCount
from kafka_quota_proxy.proxy.fair_queue.dispatcher import State
from tests.support.frames import other_request, other_response, produce_request, produce_response
from tests.support.logins import authenticate_request, authenticate_response, handshake_request, handshake_response
from tests.support.queued_clients import Crowd, costs, grouped, heartbeat
from tests.support.wire import Wire

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
    assert not any(wire.session.state.is_blocked for wire in attackers)  # they are read on


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
    crowd.line.cost = RequestCount(0)
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
