"""Tests that a batch that overtakes a refused one is found."""

import pytest

from tests.simulation.checks.refused_order import RefusedOrder
from tests.simulation.checks.support import StandIn
from tests.simulation.ledger import Exchange
from tests.simulation.violation import Violation
from tests.simulation.wire import produce
from tests.simulation.wire.produce import PartitionData, TopicData
from tests.simulation.wire.records import Batch, write_batch

_VERSION = 8


def a_world() -> StandIn:
    world = StandIn()
    world.watch(RefusedOrder)
    return world


def send(world: StandIn, sequence: int) -> Exchange:
    batch = write_batch(Batch(f"p-{sequence}", 200, 1, 7, 0, sequence))
    frame = produce.request(1, _VERSION, "etl", [TopicData("orders", [PartitionData(0, batch)])], acks=-1)
    body = frame[4 + 8 + 2 + len("etl") :]
    return world.send(api_version=_VERSION, body=body)


def test_a_later_batch_waits_for_the_refused_one() -> None:
    world = a_world()
    refused, later = send(world, 3), send(world, 4)
    world.give(refused, bytes(60))
    with pytest.raises(Violation, match=r"\[3\] were refused"):
        world.forward(later)


def test_what_was_sent_again_holds_nobody_back() -> None:
    world = a_world()
    world.give(send(world, 3), bytes(60))
    world.forward(send(world, 3))
    world.forward(send(world, 4))


def test_earlier_batches_and_other_connections_may_pass() -> None:
    world = a_world()
    world.give(send(world, 3), bytes(60))
    world.forward(send(world, 2))
    world.ledger.disconnected("producer-1", 1, by_client=False)
    world.forward(send(world, 4))
