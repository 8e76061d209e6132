"""A session says what its next request waits for."""

import ast
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule, Shaping
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from tests.support.frames import other_request, produce_request, produce_response
from tests.support.wire import Wire

TIGHT = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0)
SESSION = Path(__file__).parents[3] / "proxy" / "session"


def blocked(wire: Wire) -> BlockedBy | None:
    return wire.session.state.blocked_by


@pytest.mark.parametrize("shaping", Shaping)
def test_a_pipelined_request_over_the_limit_waits_for_the_quota(shaping: Shaping) -> None:
    wire = Wire(TIGHT, shaping=shaping)
    assert blocked(wire) is None

    wire.client(produce_request(1, size_bytes=4_000), produce_request(2, size_bytes=4_000))

    assert blocked(wire) is BlockedBy.QUOTA


def test_a_request_of_a_client_that_was_told_to_wait_waits_for_that_time() -> None:
    wire = Wire(TIGHT)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    wire.client(other_request(2))

    assert blocked(wire) is BlockedBy.THROTTLE_TIME
    wire.wait(2_000)
    assert blocked(wire) is None


def test_a_request_behind_an_answer_that_is_held_back_waits_for_it() -> None:
    wire = Wire(TIGHT, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    wire.client(other_request(2))

    assert blocked(wire) is BlockedBy.DELAYED_ANSWER


def test_a_request_of_a_client_that_reads_nothing_waits_for_the_client() -> None:
    wire = Wire(QuotaRule(client_id=DEFAULT, request_percentage=50.0))
    wire.session.pause_answers()
    wire.client(other_request(1))

    assert blocked(wire) is BlockedBy.UNREAD_ANSWERS


def test_a_request_after_many_in_a_millisecond_lets_other_connections_go_first() -> None:
    wire = Wire()
    wire.session.state.in_flight_limit = 10_000
    wire.client(*(other_request(number) for number in range(2_000)))

    assert blocked(wire) is BlockedBy.OTHER_CONNECTIONS


def test_a_request_of_a_connection_that_ends_waits_for_nothing() -> None:
    wire = Wire()
    wire.session.take_no_more()
    wire.client(other_request(1))

    assert blocked(wire) is BlockedBy.END


def test_one_module_writes_the_reason() -> None:
    writers = {
        path.name
        for path in SESSION.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "blocked_by" and isinstance(node.ctx, ast.Store)
    }

    assert writers == {"state.py"}
