"""Tests that a throttle time without a reason, above the bound, or that is not kept, is found."""

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.checks.throttle_times import ThrottleTimes
from tests.simulation.ledger import Exchange
from tests.simulation.network import End
from tests.simulation.violation import Violation
from tests.simulation.wire import alter_client_quotas
from tests.simulation.wire.alter_client_quotas import Result

RULE: Mapping[str, object] = {"client-id": "etl", "producer_byte_rate": "10KiB"}


def a_world(rule: Mapping[str, object] = RULE) -> StandIn:
    world = StandIn(Settings(max_throttle_ms=3_000))
    world.watch(ThrottleTimes).rules_changed([rule])
    return world


def told(world: StandIn, throttle_ms: int, *, by_broker_ms: int = 0) -> Exchange:
    """Send a Produce, and answer that the client should wait."""
    exchange = world.send()
    world.forward(exchange)
    frame = world.answer(exchange)[:-4]
    world.answer(exchange, frame=frame + by_broker_ms.to_bytes(4, "big"))
    world.give(exchange, frame + throttle_ms.to_bytes(4, "big", signed=True), throttle_ms=throttle_ms)
    return exchange


def test_a_wait_that_is_kept_passes() -> None:
    world = a_world()
    told(world, 1_000)
    world.wait(999)
    told(world, 0)


def test_a_wait_that_is_not_kept_is_found() -> None:
    world = a_world()
    told(world, 1_000)
    world.wait(900)
    with pytest.raises(Violation, match="ms too early"):
        told(world, 0)


def test_a_request_that_passes_behind_the_response_is_found() -> None:
    world = a_world()
    first, second = world.send(), world.send()
    world.forward(first)
    frame = world.answer(first)[:-4] + (500).to_bytes(4, "big")
    world.ledger.passed(first.correlation_id, len(frame))
    world.forward(second)

    with pytest.raises(Violation, match="ms too early"):
        world.ledger.received(first, frame, throttle_ms=500)


def test_another_connection_may_go_on() -> None:
    world = a_world()
    told(world, 1_000)
    world.exchange(connection=2)


def test_a_wait_above_the_bound_is_found() -> None:
    world = a_world()
    with pytest.raises(Violation, match="3000 ms is the most"):
        told(world, 3_001)


def test_a_bound_of_before_holds_for_requests_of_before_however_often_rules_change() -> None:
    world = a_world()
    world.settings = Settings(max_throttle_ms=500)
    for _ in range(3):
        world.ledger.checks[0].rules_changed([RULE])
    told(world, 3_000)
    world.wait(3_000)
    with pytest.raises(Violation, match="500 ms is the most"):
        told(world, 501)


def test_a_negative_wait_is_found() -> None:
    with pytest.raises(Violation, match="to wait for -1 ms"):
        told(a_world(), -1)


@pytest.mark.parametrize("rule", [{**RULE, "enforcement": "observe"}, {"client-id": "web", "producer_byte_rate": 1}])
def test_a_wait_without_a_limit_is_found(rule: Mapping[str, object]) -> None:
    world = a_world(rule)
    with pytest.raises(Violation, match="has no limit"):
        told(world, 10)


def test_the_brokers_own_wait_needs_no_reason_and_stays() -> None:
    world = a_world({})
    told(world, 5_000, by_broker_ms=5_000)
    with pytest.raises(Violation, match="the broker has said 5000 ms"):
        told(world, 4_000, by_broker_ms=5_000)


def test_a_proxy_that_stops_holds_nobody_back() -> None:
    world = a_world()
    told(world, 1_000)
    world.ledger.checks[0].proxy_stopping(1)
    told(world, 0)


@pytest.mark.parametrize(("error_code", "goes_on"), [(89, True), (0, False)])
def test_a_change_of_quotas_that_came_too_soon_mutes_nobody(error_code: int, *, goes_on: bool) -> None:
    world = a_world({"client-id": "etl", "request_rate": 2})
    change = world.send(49, api_version=0)
    frame = alter_client_quotas.response(
        change.correlation_id, 0, [Result(entity=(), error_code=error_code)], throttle_ms=900
    )
    world.give(change, frame, throttle_ms=900)

    next_one = world.send()
    with nullcontext() if goes_on else pytest.raises(Violation, match="too early"):
        world.forward(next_one)


@pytest.mark.parametrize("held_ms", [0, 1_000])
def test_a_request_that_overtakes_a_held_response_is_found(held_ms: float) -> None:
    world = a_world()
    first = world.send()
    end: Any = SimpleNamespace(is_open=True, received_bytes=1_000, peer=SimpleNamespace(written_bytes=60))
    first.client_end = cast("End", SimpleNamespace(is_open=True, peer=SimpleNamespace(is_on_the_way=False)))
    world.ledger.forwarding(first.correlation_id, 1, first.api_key, end)
    frame = world.answer(first)
    world.ledger.forwarding(world.send(3).correlation_id, 1, 3, end)
    world.wait(held_ms)
    with pytest.raises(Violation, match=r"while the response to .* is held back") if held_ms else nullcontext():
        world.give(first, frame)
