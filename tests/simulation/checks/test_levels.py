"""Tests that too many turns of the heaviest user are found."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.levels import Levels
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.ledger import Entity, Exchange
from tests.simulation.violation import Violation

_HEAVY, _LIGHT = 1, 2  # connections


def send(world: StandIn, connection: int) -> Exchange:
    user = "alice" if connection == _HEAVY else "bob"
    exchange = world.send(connection=connection, entity=Entity(user, "etl", "10.0.2.1"))
    end = SimpleNamespace(is_open=True, is_on_the_way=False, peer=SimpleNamespace(is_open=True))
    exchange.client_end = end  # type: ignore[assignment] # it stands in for an end
    return exchange


def pass_through(world: StandIn, exchange: Exchange) -> None:
    world.forward(exchange)
    world.wait(50)
    world.give(exchange, world.answer(exchange))


def a_world(alice: int, bob: int) -> StandIn:
    """Return a world in which two users have had so many requests before their costs were halved."""
    settings = Settings(has_queue=True, max_in_flight=1, queues_users=True, hides_addresses=False)
    world = StandIn(settings)
    world.scenario.setup = SimpleNamespace(replication=1)
    world.watch(Levels).proxy_started(1)
    for connection, number in ((_HEAVY, alice), (_LIGHT, bob)):
        for _ in range(number):
            pass_through(world, send(world, connection))
    left_ms = 6_500 - 50 * (alice + bob)
    for _ in range(10):
        world.wait(left_ms / 10)
    return world


def let_alice_pass(world: StandIn) -> None:
    send(world, _LIGHT)
    for _ in range(8):
        exchange = send(world, _HEAVY)
        world.wait(50)
        pass_through(world, exchange)


def test_the_heaviest_user_with_too_many_turns_is_found() -> None:
    world = a_world(alice=30, bob=5)
    with pytest.raises(Violation, match="alice, who has most of the costs, is forwarded while others wait"):
        let_alice_pass(world)


def test_nobody_has_more_than_half_of_the_costs() -> None:
    let_alice_pass(a_world(alice=20, bob=20))


def test_who_waits_alone_has_any_number_of_turns() -> None:
    world = a_world(alice=30, bob=5)
    for _ in range(20):
        pass_through(world, send(world, _HEAVY))
