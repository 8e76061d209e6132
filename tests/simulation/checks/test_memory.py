"""Tests that too much memory for what peers do not read is found."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.memory import MOST_OF_ONE_BYTES, Memory
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation


def a_world(*unsent_bytes: int) -> StandIn:
    """Return a world whose proxy has a connection for each number, with so many bytes to send."""
    world = StandIn(Settings(max_buffered=1_000_000))
    world.watch(Memory)
    ends = [SimpleNamespace(unsent_bytes=size, remote=("10.0.2.1", 40_000)) for size in unsent_bytes]
    process = SimpleNamespace(transports=[SimpleNamespace(end=end) for end in ends])
    world.scenario.proxy = SimpleNamespace(process=process)
    return world


def test_a_connection_may_hold_a_few_reads() -> None:
    a_world(MOST_OF_ONE_BYTES).exchange()


def test_a_connection_that_holds_more_is_found() -> None:
    with pytest.raises(Violation, match="is the most"):
        a_world(0, MOST_OF_ONE_BYTES + 1).exchange()


def test_many_connections_hold_at_most_max_buffered_for_long() -> None:
    world = a_world(*[250_000] * 5)
    world.exchange()
    world.wait(7_001)
    with pytest.raises(Violation, match="max_buffered"):
        world.exchange()


def test_many_connections_may_hold_max_buffered() -> None:
    world = a_world(*[250_000] * 4)
    world.exchange()
    world.wait(7_001)
    world.exchange()
