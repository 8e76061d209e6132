"""Tests that a client of a broker that is there does not wait for others' dials."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.dials import Dials
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation


def a_world(settings: Settings | None = None) -> Any:
    world: Any = StandIn(settings)
    world.network = SimpleNamespace(unreachable={})
    broker = SimpleNamespace(is_up=True, is_stalled=False, host="10.0.1.1")
    world.scenario.cluster = SimpleNamespace(brokers={1: broker})
    process = SimpleNamespace(has_no_descriptor=lambda: False)
    world.scenario.proxy = SimpleNamespace(process=process, server=SimpleNamespace(is_listening=True))
    world.watch(Dials)
    wait(world, 12_000)
    return world


def wait(world: StandIn, ms: float) -> None:
    for _ in range(int(ms / 500)):
        world.wait(500)


def send(world: StandIn) -> None:
    world.send(18).client_end = SimpleNamespace(is_open=True, is_on_the_way=False)  # type: ignore[assignment]


def test_a_request_whose_broker_is_not_dialled_is_found() -> None:
    world = a_world()
    send(world)
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 5_000)


def test_a_dial_from_before_the_broker_was_there_may_take_ten_seconds() -> None:
    world = a_world()
    world.network.unreachable["10.0.1.1"] = None
    send(world)
    wait(world, 20_000)
    world.network.unreachable.clear()
    wait(world, 13_000)
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 2_000)


def test_a_request_with_a_limit_may_wait() -> None:
    world = a_world()
    (check,) = world.ledger.checks
    check.rules_changed([{"client-id": "etl", "request_rate": 1}])
    send(world)
    wait(world, 60_000)
