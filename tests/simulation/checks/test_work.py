"""Tests that the work of one callback and the buckets of one connection are counted."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.checks.work import Work
from tests.simulation.violation import Violation


def a_world(buckets: int = 2, stale: int = 0) -> StandIn:
    world = StandIn()
    account = SimpleNamespace(peer_host="10.0.2.1", buckets=[None] * buckets, stale_buckets=[None] * stale)
    connection = SimpleNamespace(state=SimpleNamespace(account=account))
    listener = SimpleNamespace(connections=[connection])
    world.scenario.proxy = SimpleNamespace(server=SimpleNamespace(listeners=[listener]))
    world.watch(Work)
    return world


def begin(world: StandIn, number: int, *, names: int = 1, connection: int = 1) -> None:
    for at in range(number):
        world.forward(world.send(0, entity=ETL._replace(client_id=f"etl-{at % names}"), connection=connection))


@pytest.mark.parametrize(("names", "most"), [(1, 1_500), (2, 300)])
def test_requests_of_one_callback_are_bounded(names: int, most: int) -> None:
    world = a_world()
    begin(world, 1)
    world.scheduler.calls += 1
    begin(world, most, names=names)
    begin(world, most, connection=2)
    world.scheduler.calls += 1
    begin(world, most, names=names)
    begin(world, 2, names=2)

    with pytest.raises(Violation, match="too many others"):
        begin(world, 2, names=2)


def test_what_has_waited_for_a_dial_may_begin_at_once() -> None:
    world = a_world()
    begin(world, 512 + 303, names=2)

    with pytest.raises(Violation, match="too many others"):
        begin(world, 2, names=2)


@pytest.mark.parametrize(("buckets", "stale", "is_fine"), [(5, 12, True), (5, 13, False)])
def test_buckets_of_a_connection_are_bounded(buckets: int, stale: int, is_fine: bool) -> None:
    world = a_world(buckets, stale)

    if is_fine:
        world.wait(500)
    else:
        with pytest.raises(Violation, match="holds 18 buckets"):
            world.wait(500)
