"""Tests that a client of a broker that is there does not wait for others' dials."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.dials import Dials
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation


def a_world(*, is_cluster: bool = False) -> Any:
    world: Any = StandIn()
    world.network = SimpleNamespace(unreachable={}, lost_dials=[])
    broker = SimpleNamespace(is_up=True, is_stalled=False, host="10.0.1.1", hosts=("10.0.1.1", "10.0.4.1"))
    world.scenario.cluster = SimpleNamespace(brokers={1: broker})
    world.scenario.setup = SimpleNamespace(is_cluster=is_cluster)
    process = SimpleNamespace(has_no_descriptor=lambda: False)
    world.scenario.proxy = SimpleNamespace(process=process, server=SimpleNamespace(is_listening=True))
    world.watch(Dials)
    wait(world, 12_000)
    return world


def wait(world: StandIn, ms: float) -> None:
    for _ in range(int(ms / 500)):
        world.wait(500)


def send(world: StandIn) -> None:
    end: Any = SimpleNamespace(is_open=True, is_on_the_way=False, peer=SimpleNamespace(is_open=True))
    world.send(18).client_end = end


def test_a_request_whose_broker_is_not_dialled_is_found() -> None:
    world = a_world()
    send(world)
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 5_000)


def test_a_wait_counts_from_when_the_broker_is_there() -> None:
    world = a_world()
    world.network.unreachable["10.0.1.1"] = None
    send(world)
    wait(world, 20_000)
    world.network.unreachable.clear()
    wait(world, 4_000)
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 1_000)


@pytest.mark.parametrize("host", ["10.0.1.1", "10.0.4.1"])
def test_a_dial_whose_packet_was_lost_between_two_looks_may_take_ten_seconds(host: str) -> None:
    world = a_world()
    send(world)
    world.network.lost_dials.append((world.clock.now_ms, host))
    wait(world, 13_500)
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 2_000)


def test_the_dial_of_another_broker_explains_nothing() -> None:
    world = a_world()
    send(world)
    world.network.lost_dials.append((world.clock.now_ms, "10.0.1.2"))
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 5_000)


def test_an_unknown_broker_of_a_cluster_may_lead_to_a_dial_of_another() -> None:
    world = a_world(is_cluster=True)
    world.network.lost_dials.append((world.clock.now_ms - 1, "10.0.1.2"))  # this is not the dial of the request
    send(world)
    with pytest.raises(Violation, match="broker 1 could be dialled"):
        wait(world, 5_000)
    world = a_world(is_cluster=True)
    send(world)
    world.network.lost_dials.append((world.clock.now_ms, "10.0.1.2"))
    wait(world, 13_500)


def test_a_connection_that_the_proxy_has_closed_waits_for_nothing() -> None:
    world = a_world()
    send(world)
    next(iter(world.ledger.exchanges.values())).client_end.peer.is_open = False
    wait(world, 20_000)


def test_a_request_with_a_limit_may_wait() -> None:
    world = a_world()
    (check,) = world.ledger.checks
    check.rules_changed([{"client-id": "etl", "request_rate": 1}])
    send(world)
    wait(world, 60_000)
