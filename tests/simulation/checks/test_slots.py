"""Tests that too many requests at a broker, and idle slots, are found."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.settings import Settings
from tests.simulation.checks.slots import Slots
from tests.simulation.checks.support import StandIn
from tests.simulation.ledger import Entity, Exchange
from tests.simulation.violation import Violation


def an_end() -> SimpleNamespace:
    return SimpleNamespace(is_open=True, is_on_the_way=False, peer=SimpleNamespace(is_open=True))


def a_world(most: int = 1, *, has_second_names: bool = False, may_be_two: bool = False) -> StandIn:
    world = StandIn(Settings(has_queue=True, max_in_flight=most, hides_addresses=False))
    world.scenario.setup = SimpleNamespace(replication=1, has_second_names=has_second_names)
    world.scenario.broker_names = SimpleNamespace(may_be_two=may_be_two, look=lambda: None)
    world.watch(Slots)
    for connection in (1, 2):
        world.exchange(connection=connection)
    return world


def send(world: StandIn, connection: int, api_key: int = 0, user: str = "alice") -> Exchange:
    exchange = world.send(api_key, connection=connection, entity=Entity(user, "etl", "10.0.2.1"))
    exchange.client_end = an_end()  # type: ignore[assignment] # it stands in for an end
    return exchange


def wait(world: StandIn, times: int = 10) -> None:
    for _ in range(times):
        world.wait(300)


def overtake(world: StandIn, other: Exchange) -> None:
    """Let one connection after the other send a request and get the slot."""
    for number in range(100):
        world.give(other, world.answer(other))
        other = send(world, 3 + number, user="bob")
        world.forward(other)
        world.wait(300)


def test_one_request_more_than_may_be_is_found() -> None:
    world = a_world()
    world.forward(send(world, 1))
    with pytest.raises(Violation, match="2 connections have requests"):
        world.forward(send(world, 2))


def test_two_names_of_a_broker_have_one_queue() -> None:
    world = a_world(has_second_names=True)
    world.forward(send(world, 1))
    with pytest.raises(Violation, match="2 connections have requests"):
        world.forward(send(world, 2))


def test_each_name_of_a_broker_that_was_disturbed_may_have_a_queue_of_its_own() -> None:
    world = a_world(has_second_names=True, may_be_two=True)
    world.forward(send(world, 1))
    world.forward(send(world, 2))
    with pytest.raises(Violation, match="3 connections have requests"):
        world.forward(send(world, 3))


def test_as_many_as_may_be_are_right() -> None:
    world = a_world(2)
    world.forward(send(world, 1))
    world.forward(send(world, 1))
    world.forward(send(world, 2))


def test_a_request_that_waits_beside_a_free_slot_is_found() -> None:
    world = a_world()
    send(world, 1)
    with pytest.raises(Violation, match="has a free slot"):
        wait(world)


def test_a_fetch_that_waits_for_data_uses_no_slot() -> None:
    world = a_world()
    world.forward(send(world, 2, 1))
    send(world, 1)
    with pytest.raises(Violation, match="has a free slot"):
        wait(world)


def test_a_request_may_wait_while_all_slots_are_used() -> None:
    world = a_world()
    world.forward(send(world, 2))
    send(world, 1)
    wait(world, 100)


def test_a_request_that_all_others_overtake_is_found() -> None:
    world = a_world()
    other = send(world, 2)
    world.forward(other)
    send(world, 1)
    world.wait(300)
    with pytest.raises(Violation, match="that came later"):
        overtake(world, other)
