"""Tests when a connection releases its slot at the broker, and what its requests cost."""

from __future__ import annotations

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.concurrency import VegasLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import (
    ASKS_FROM_BYTES,
    UPLOAD_GRACE_US,
)
from kafka_quota_proxy.proxy.fair_queue.cost import CompletedRequest
from tests.support.controller import Controller, delete
from tests.support.frames import (
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.queued_clients import Crowd, costs, handshake, handshake_response, heartbeat
from tests.support.wire import START_MS


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000, 10**12])
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_clock_jump_takes_no_slot_or_turn(jump_ms: int, is_adaptive: bool) -> None:
    crowd = Crowd()
    if is_adaptive:
        crowd.dispatcher.update(crowd.settings, VegasLimit(minimum=1, maximum=2), START_MS * 1_000)
    for _ in range(3):
        first, second, third = crowd.wires
        first.client(produce_request(1))
        second.client(produce_request(2))
        third.client(produce_request(3))

        for wire in crowd.wires:
            wire.now_ms += jump_ms
        jump_ms = -jump_ms if jump_ms < 0 else jump_ms

        assert first.broker(produce_response(1)) == produce_response(1)
        for wire in crowd.granted():
            wire.resume()
        second.broker(produce_response(2))
        for wire in crowd.granted():
            wire.resume()
        third.broker(produce_response(3))
        assert crowd.dispatcher.in_flight == 0
        assert len(crowd.dispatcher.queue) == 0
    assert sum(count for count, _, _ in crowd.stats.served.values()) == 9
    assert min(queue_us for _, queue_us, _ in crowd.stats.served.values()) >= 0


@pytest.mark.parametrize("ahead", [pytest.param(b"", id="one"), pytest.param(produce_request(9), id="two")])
def test_login_behind_the_last_request_frees_the_slot(ahead: bytes) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    assert first.client(ahead + other_request(1) + handshake(2)) == ahead + other_request(1) + handshake(2)
    second.client(other_request(3))
    if ahead:
        first.broker(produce_response(9))
        assert crowd.granted() == []

    first.broker(other_response(1))
    assert crowd.granted() == [second]  # a request without cost needs no slot
    first.broker(handshake_response(2))
    second.resume()
    second.broker(other_response(3))

    assert crowd.dispatcher.in_flight == 0
    assert first.session.is_idle


def test_answered_broker_query_frees_the_slot() -> None:
    crowd = Crowd(QuotaRule(user=DEFAULT, controller_mutation_rate=10.0))
    first, second, _ = crowd.wires
    controller = Controller(one=30)
    question = first.client(delete("one"))
    assert question
    second.client(produce_request(2))

    first.broker(controller.answers(question))
    assert crowd.granted() == [second]
    second.resume()
    second.broker(produce_response(2))
    assert crowd.granted() == [first]
    assert first.broker(controller.answers(first.resume()))
    assert controller.asked == [ApiKey.METADATA, ApiKey.DELETE_TOPICS]
    assert crowd.dispatcher.in_flight == 0


def test_control_slot_carries_control_requests_only() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(produce_request(1))
    second.client(produce_request(2))

    assert third.client(heartbeat(3), heartbeat(4), produce_request(5)) == heartbeat(3) + heartbeat(4)
    assert third.session.state.blocked_by is not None
    third.broker(other_response(3), other_response(4))
    assert third.to_broker() == b""
    first.broker(produce_response(1))
    assert crowd.granted() == [second]


def test_stalled_upload_behind_another_request_frees_the_slot() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    half = produce_request(2, size_bytes=2 * ASKS_FROM_BYTES)
    first.client(produce_request(1), half[:ASKS_FROM_BYTES])
    second.client(other_request(3))

    crowd.wait(UPLOAD_GRACE_US // 1_000)
    assert crowd.granted() == []  # the broker still works on the request before
    first.broker(produce_response(1))
    crowd.wait(UPLOAD_GRACE_US // 1_000 - 1)
    assert crowd.granted() == []
    crowd.wait(1)
    assert crowd.granted() == [second]

    assert first.client(half[ASKS_FROM_BYTES:]) == half[ASKS_FROM_BYTES:]
    assert first.broker(produce_response(2))
    assert first.session.is_idle
    second.resume()
    second.broker(other_response(3))
    assert crowd.dispatcher.in_flight == 0


def test_produce_without_acks_uses_no_slot_of_another_request() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    unanswered = produce_request(2, acks=0)
    assert first.client(produce_request(1), unanswered) == produce_request(1)
    crowd.wait(4)

    first.broker(produce_response(1))
    assert first.to_broker() == unanswered

    assert second.client(produce_request(3)) == b""
    crowd.wait(3)
    assert crowd.granted() == []
    crowd.wait(1)  # as long as the answered one took
    assert crowd.granted() == [second]


def test_produce_without_acks_costs_once_forwarded() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    request = produce_request(1, acks=0)

    first.client(produce_request(1, acks=0, size_bytes=2 * ASKS_FROM_BYTES)[:-1])
    second.client(request)
    assert costs(crowd) == []
    crowd.wait(5)
    first.client(b"\0")
    assert costs(crowd) == [2]
    second.resume()

    assert costs(crowd) == [3]
    assert crowd.cost.done == [
        CompletedRequest(ApiKey.PRODUCE, 0, 0, 0),
        CompletedRequest(ApiKey.PRODUCE, 0, 5_000, 5_000),  # for the time in which it arrived
        CompletedRequest(ApiKey.PRODUCE, 5_000, 0, 0),
    ]
    for wire in crowd.wires:
        wire.session.close(now_ms=wire.now_ms, has_passed=True)
    assert costs(crowd) == [3]


@pytest.mark.parametrize("has_passed", [True, False])
def test_client_that_closes_early_is_charged_if_the_broker_got_the_request(has_passed: bool) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(produce_request(1), other_request(2), handshake(3))
    second.client(produce_request(3))
    crowd.wait(7)

    for wire in first, second:
        wire.session.state.now_ns = wire.now_ms * 1_000_000
        wire.session.close(now_ms=wire.now_ms, has_passed=has_passed)

    assert costs(crowd) == ([2] if has_passed else [])  # the second request never reached the broker
    assert [(done.api_key, done.elapsed_us) for done in crowd.cost.done] == (
        [(ApiKey.PRODUCE, 7_000), (ApiKey.METADATA, 0)] if has_passed else []
    )


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("end", ["rest", "end", "close", "broker"])
def test_parked_upload_is_charged_at_its_end(acks: int, end: str) -> None:
    crowd = Crowd()
    first, _, _ = crowd.wires
    request = produce_request(1, acks=acks, size_bytes=2 * ASKS_FROM_BYTES)
    first.client(request[:ASKS_FROM_BYTES])
    crowd.wait(UPLOAD_GRACE_US // 1_000)
    assert costs(crowd) == [1]  # for the time of its slot

    if end == "rest":
        first.client(request[ASKS_FROM_BYTES:])
        assert acks == 0 or first.broker(produce_response(1))
    elif end == "end":
        first.session.receive_end_from_client()
        first.session.close(now_ms=first.now_ms, has_passed=True)
    else:
        first.session.close(now_ms=first.now_ms, has_passed=end == "close")

    assert costs(crowd) == ([1] if end == "broker" else [2])


def test_requests_behind_a_delayed_response_hold_no_slot() -> None:
    crowd = Crowd(
        QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0),
        QuotaRule(user=DEFAULT, request_percentage=1.0, enforcement=Enforcement.OBSERVE),
        enforcement=Enforcement.DELAY,
    )
    first, second, _ = crowd.wires
    first.client(other_request(0), produce_request(1, size_bytes=6_000), other_request(2))
    first.broker(other_response(0))
    second.client(other_request(3))

    assert first.broker(produce_response(1)) == b""
    assert first.session.state.delayed_until_ms > first.now_ms
    assert crowd.granted() == [second]
    assert first.listening.service.served == 0
    crowd.wait(first.session.state.delayed_until_ms - first.now_ms - 1)
    second.resume()
    second.broker(other_response(3))
    crowd.wait(1)
    assert first.to_client()
    assert first.listening.service.served == 1
    crowd.wait(3)
    first.broker(other_response(2))

    assert [done.elapsed_us for done in crowd.cost.done if done.api_key == ApiKey.METADATA][-1] == 3_000
    assert first.bucket("request").usage.amount < 1_000_000
    assert crowd.dispatcher.in_flight == 0
    assert first.session.is_idle


def test_client_that_does_not_read_holds_no_slot_and_sends_no_more() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(other_request(1), other_request(2))
    first.broker(other_response(1))
    second.client(other_request(3))

    first.session.pause_answers()
    assert crowd.granted() == [second]
    assert first.listening.service.served == 0
    second.resume()
    second.broker(other_response(3))
    crowd.wait(60_000)
    first.session.state.now_ns = first.now_ms * 1_000_000
    first.session.resume_answers()
    crowd.wait(3)
    first.broker(other_response(2))
    assert crowd.cost.done[-1].elapsed_us == 3_000

    first.session.pause_answers()
    assert first.client(other_request(4)) == b""
    assert first.session.state.blocked_by is not None
    assert crowd.dispatcher.in_flight == 0
    first.session.resume_answers()
    assert first.resume() == other_request(4)
    first.broker(other_response(4))
    assert crowd.dispatcher.in_flight == 0
