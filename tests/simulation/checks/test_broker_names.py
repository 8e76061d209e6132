"""Tests what excuses that a broker has a bucket for each of its two names: a fault before it is settled."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.broker_names import BrokerNames, may_have_two_buckets
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation

_HERE, _THERE = ("10.0.0.1", 9001), ("10.0.2.1", 40_000)


def a_server(sets: int) -> SimpleNamespace:
    upstreams = {name: SimpleNamespace(broker=f"broker {name % sets}") for name in range(2)}
    return SimpleNamespace(brokers=SimpleNamespace(single=upstreams))


def a_world(*, has_second_names: bool = True) -> StandIn:
    world = StandIn()
    world.scenario.setup = SimpleNamespace(has_second_names=has_second_names, brokers=1)
    world.scenario.proxy = SimpleNamespace(is_running=True, server=a_server(1))
    world.scenario.fired = {"broker crash": 0, "connection reset": 0, "quotas changed": 0}
    world.scenario.broker_names = world.watch(BrokerNames)
    world.ledger.checks[0].proxy_started(1)
    return world


def happens(world: StandIn, kind: str) -> None:
    world.wait(100)
    world.scenario.fired[kind] += 1
    world.wait(100)


def two(world: StandIn) -> bool:
    return may_have_two_buckets(world)  # type: ignore[arg-type] # it stands in for the world


def test_without_a_fault_it_has_one() -> None:
    world = a_world()
    assert not two(world)
    happens(world, "quotas changed")
    assert not two(world)


def test_a_fault_before_the_first_client_and_for_two_seconds_after_it_excuses_two() -> None:
    for wait_ms in (0, 1_700):
        world = a_world()
        world.wait(60_000)
        world.ledger.served(_HERE, _THERE)
        world.wait(wait_ms)
        happens(world, "connection reset")
        assert two(world)
        world.wait(600_000)
        assert two(world), "for as long as the process runs"


def test_a_later_fault_excuses_nothing() -> None:
    world = a_world()
    world.ledger.served(_HERE, _THERE)
    world.wait(2_100)
    happens(world, "broker crash")
    assert not two(world)


def test_a_fault_of_before_excuses_the_next_process_as_long_as_it_lasts() -> None:
    world = a_world()
    happens(world, "broker crash")
    (check,) = world.ledger.checks
    check.proxy_ended(1, is_crash=True)
    check.proxy_started(2)
    assert two(world)
    world.wait(60_000)
    check.proxy_started(3)
    assert not two(world)


def test_two_sets_without_an_excuse_are_found() -> None:
    world = a_world()
    world.ledger.served(_HERE, _THERE)
    world.scenario.proxy.server = a_server(2)
    world.wait(1_900)
    with pytest.raises(Violation, match="1 brokers with two names each have 2 sets of buckets"):
        world.wait(200)


def test_a_broker_with_one_name_has_one() -> None:
    world = a_world(has_second_names=False)
    happens(world, "broker crash")
    assert not two(world)
