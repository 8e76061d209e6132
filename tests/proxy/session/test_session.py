"""Tests one client's session between the client, the broker and a clock: buckets, rules, the drain and the end."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.proxy.rules.effective import EffectiveRules
from tests.support.frames import (
    fetch_request,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.logins import handshake_request
from tests.support.queued_clients import Crowd
from tests.support.rules_in_force import change, update
from tests.support.wire import Wire

AN_EXPIRY_MS = 1_800_000_000_000


A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_observe_changes_no_byte_and_mutes_no_client() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.OBSERVE)

    assert wire.client(produce_request(1, size_bytes=6_000), fetch_request(2), fetch_request(3)) == (
        produce_request(1, size_bytes=6_000) + fetch_request(2) + fetch_request(3)
    )
    assert wire.broker(produce_response(1)) == produce_response(1)
    assert wire.muted_for_ms == 0
    assert wire.bucket().usage.throttling.observed_time_ms == 2_000
    assert (wire.bucket().usage.throttling.requests, wire.bucket().usage.throttling.time_ms) == (0, 0)


def test_changed_rule_applies_to_the_next_request_and_keeps_the_usage() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=5_000))
    assert wire.broker(produce_response(1)) == produce_response(1)

    update(
        wire.listening.quotas,
        replace(
            wire.config, quotas=(replace(A_TIGHT_RULE, limits={**A_TIGHT_RULE.limits, "producer_byte_rate": 250.0}),)
        ),
    )
    wire.client(produce_request(2, size_bytes=400))

    assert wire.broker(produce_response(2)) == produce_response(2, throttle_time_ms=11_600)  # (540 - 250) / 250 * 10 s


def _by_reload(wire: Wire) -> None:
    update(wire.listening.quotas, replace(wire.config, quotas=()))


def _by_time(wire: Wire) -> None:
    in_force = EffectiveRules(wire.config, name="", now_ms=wire.now_ms)
    changes = in_force.advance(9, now_ms=AN_EXPIRY_MS)
    assert changes is not None
    change(wire.listening.quotas, replace(wire.config, quotas=in_force.quotas), changes.rules)


@pytest.mark.parametrize("end", [_by_reload, _by_time])
def test_mute_lasts_longer_than_the_rule_that_caused_it(end: Callable[[Wire], None]) -> None:
    """In Kafka, too, a throttled channel waits for its whole throttle time."""
    wire = Wire(replace(A_TIGHT_RULE, expires_ms=AN_EXPIRY_MS))
    wire.client(produce_request(1, size_bytes=6_000))
    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=2_000)
    wire.wait(500)

    end(wire)

    assert wire.muted_for_ms == 1_500
    assert wire.client(produce_request(2, size_bytes=6_000)) == b""
    wire.wait(1_499)
    assert wire.to_broker() == b""
    wire.wait(1)
    assert wire.to_broker() == produce_request(2, size_bytes=6_000)
    assert wire.broker(produce_response(2)) == produce_response(2)


@pytest.mark.parametrize("acks", [0, 1])
def test_release_forwards_a_muted_clients_requests_at_once(acks: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    ahead = [produce_request(number, acks=acks, size_bytes=3_000) for number in (2, 3, 4)]
    assert wire.client(*ahead) == b""

    wire.session.release(now_ms=wire.now_ms)

    assert wire.to_broker() == b"".join(ahead)
    assert wire.session.state.blocked_by is None
    assert wire.bucket().usage.amount == (
        15_000 if acks == 0 else 6_000
    )  # without a response, a request is charged when it is forwarded


def test_stalled_client_is_idle_and_a_waiting_one_is_not() -> None:
    wire = Wire()
    request = produce_request(1, size_bytes=5_000)

    wire.client(request[:3_000])
    assert not wire.session.is_owed  # the client waits for no response
    wire.client(request[3_000:])
    assert wire.session.is_owed
    wire.broker(produce_response(1)[:12])
    assert wire.session.is_owed
    wire.broker(produce_response(1)[12:])
    assert not wire.session.is_owed
    wire.client(produce_request(2, acks=0, size_bytes=5_000)[:3_000])
    assert not wire.session.is_owed


def test_client_that_produces_without_acks_awaits_no_responses() -> None:
    wire = Wire()
    assert not wire.session.awaits_no_answers
    wire.client(produce_request(1))
    assert not wire.session.awaits_no_answers
    wire.client(produce_request(2, acks=0))
    assert wire.session.awaits_no_answers
    wire.client(fetch_request(3))
    assert not wire.session.awaits_no_answers


def test_drain_answers_partly_forwarded_requests_only() -> None:
    wire = Wire()
    request = produce_request(1, size_bytes=5_000)
    wire.client(request[:3_000])

    wire.session.take_no_more()

    assert not wire.session.is_idle
    assert wire.client(request[3_000:] + produce_request(2)) == request[3_000:]
    assert wire.session.state.blocked_by is not None
    assert not wire.session.has_answered
    assert wire.broker(produce_response(1)) == produce_response(1)
    assert wire.session.is_idle
    assert wire.to_broker() == b""
    assert wire.session.needs.wake_at_ms == 0
    assert wire.muted_for_ms == 0


def test_release_during_a_drain_forwards_no_request() -> None:
    """Otherwise a response would come after the client was told that no more follow."""
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    assert wire.client(produce_request(2)) == b""

    wire.session.take_no_more()
    wire.session.release(now_ms=wire.now_ms)

    assert wire.client(produce_request(3)) == b""
    assert wire.session.is_idle


def test_incomplete_request_is_read_to_its_end_after_a_second_in_line() -> None:
    wire = Wire(A_TIGHT_RULE)
    other = wire.beside()
    wire.client(produce_request(1, size_bytes=84_000_000)[:10_000])  # its rest does not come
    session, request = other.session, produce_request(2, size_bytes=600)

    assert other.client(request[:-1]) == b""
    assert not session.has_waited_long(now_ms=other.now_ms + 999)
    assert not session.needs.reads_client
    assert session.has_waited_long(now_ms=other.now_ms + 1_000)
    assert session.needs.reads_client
    other.client(request[-1:])

    assert not session.needs.reads_client
    session.count_abandoned()
    assert session.state.context.counters.abandoned == 1


def test_drain_goes_on_with_a_client_that_awaits_no_answers() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, acks=0))

    wire.session.drain()

    assert wire.session.takes_unanswered
    assert wire.client(produce_request(2, acks=0)) == produce_request(2, acks=0)
    assert wire.client(fetch_request(3)) == b""


def test_client_that_has_begun_a_login_is_logging_in() -> None:
    wire = Wire()
    assert not wire.session.is_logging_in

    wire.client(handshake_request("PLAIN"))

    assert wire.session.is_logging_in
    assert wire.session.follower is None


def test_the_end_of_a_connection_wakes_the_next_in_line() -> None:
    wire = Wire(A_TIGHT_RULE)
    other = wire.beside()
    wire.client(produce_request(1, size_bytes=6_000))
    assert other.client(produce_request(2, size_bytes=6_000)) == b""

    wire.session.close(now_ms=wire.now_ms, has_passed=False)
    other.take_turn()

    assert other.to_broker() == produce_request(2, size_bytes=6_000)


def test_records_without_an_answer_wait_for_a_client_that_has_gone() -> None:
    wire = Wire(A_TIGHT_RULE)
    other = wire.beside()
    wire.client(produce_request(1, size_bytes=6_000))
    assert other.client(produce_request(2, acks=0, size_bytes=6_000)) == b""

    other.session.abandon(now_ms=other.now_ms)
    other.session.count_abandoned()

    assert other.session.state.blocked_by is not None
    assert other.session.state.context.counters.abandoned == 0


def test_connection_without_requests_has_abandoned_none() -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.session.count_abandoned()

    assert wire.session.state.context.counters.abandoned == 0


def test_another_queue_of_the_broker_is_used_once_no_request_is_at_the_broker() -> None:
    first, second = Crowd(clients=0).line, Crowd(clients=0).line
    wire = Wire(line=first)
    turn = wire.session.state.broker_turn
    wire.client(other_request(1))

    turn.follow(second, 0)
    assert turn.queued is not None
    assert turn.queued.line is first
    wire.broker(other_response(1))
    turn.follow(second, 0)

    assert turn.queued.line is second
