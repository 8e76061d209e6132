"""Tests that the port of a broker that leads to nobody is found."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks import frames
from tests.simulation.checks.broker_ports import BrokerPorts
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.violation import Violation

PORT = 9194
CLIENT = "producer-1"


def a_world(*, has_login: bool) -> Any:
    world: Any = StandIn()
    world.network = SimpleNamespace(unreachable={})
    broker = SimpleNamespace(
        is_up=True, is_stalled=False, host="10.0.1.1", started_ms=1.0, stalled_until_ms=0.0, has_moved_away=False
    )
    world.cluster.brokers = {1: broker, 2: SimpleNamespace(**vars(broker) | {"is_up": False})}
    world.scenario.setup = SimpleNamespace(has_login=has_login, brokers=2, node_of_cluster_at=lambda port: port - 9193)
    world.watch(BrokerPorts)
    world.wait(10)
    return world


def come(world: Any, number: int, *, port: int = PORT, lasts_ms: float = 5.0, is_served: bool = False) -> None:
    """Let a client come to a port, and lose its connection."""
    world.wait(200)
    exchange = world.send(18, connection=number)
    world.ledger.connected(CLIENT, number, ETL)
    # The ledger has told the checks before the end is known, so they are told again.
    exchange.client_end = SimpleNamespace(remote=("10.0.0.100", port), link=SimpleNamespace(is_cut=False))
    for check in world.ledger.checks:
        check.sent(exchange)
    if is_served:
        world.forward(exchange)
    world.wait(lasts_ms)
    world.ledger.disconnected(CLIENT, number, by_client=False)


def tell(world: Any) -> None:
    """Pass on a list of brokers."""
    exchange = world.send(frames.METADATA, connection=100)
    world.forward(exchange)
    world.wait(1)
    world.give(exchange, world.answer(exchange))


def test_a_known_broker_that_is_not_dialled_is_found() -> None:
    world = a_world(has_login=False)
    tell(world)
    come(world, 1)
    come(world, 2)
    with pytest.raises(Violation, match="port of broker 1, which is there"):
        come(world, 3)


def test_a_broker_that_is_down_serves_nobody() -> None:
    world = a_world(has_login=False)
    tell(world)
    for number in range(9):
        come(world, number, port=PORT + 1)


def test_a_broker_that_has_started_again_may_be_somewhere_else() -> None:
    world = a_world(has_login=False)
    tell(world)
    world.cluster.brokers[1].started_ms = world.clock.now_ms
    for number in range(9):
        come(world, number)


@pytest.mark.parametrize("has_served", [False, True])
def test_the_port_of_an_unknown_broker_that_leads_to_nobody_is_found(has_served: bool) -> None:
    world = a_world(has_login=True)
    for number in range(4):
        come(world, number, port=PORT + 1)
    if has_served:
        come(world, 4, port=PORT + 1, is_served=True)
        come(world, 5, port=PORT + 1)
        return
    with pytest.raises(Violation, match=r"not known, and \[1\] could serve"):
        come(world, 4, port=PORT + 1)


def test_what_ends_late_was_not_refused() -> None:
    world = a_world(has_login=True)
    for number in range(9):
        come(world, number, lasts_ms=2_000)
