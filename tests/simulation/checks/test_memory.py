"""Tests that too much memory for what peers do not read is found."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.memory import MOST_OF_ONE_BYTES, TWO_LOOKS_MS, Memory
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation


class _End:
    """The proxy's end of a connection, after 100 bytes that the system has taken."""

    remote = ("10.0.2.1", 40_000)

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.written_bytes = unsent_bytes + 100


def a_world(*unsent_bytes: int) -> StandIn:
    """Return a world whose proxy has a connection for each number, with so many bytes to send."""
    world = StandIn(Settings(max_buffered=1_000_000))
    world.watch(Memory)
    ends = [_End(size) for size in unsent_bytes]
    process = SimpleNamespace(transports=[SimpleNamespace(end=end) for end in ends])
    world.scenario.proxy = SimpleNamespace(process=process)
    return world


def test_a_connection_may_hold_a_few_reads() -> None:
    a_world(MOST_OF_ONE_BYTES).wait(0)


def test_a_connection_that_holds_more_is_found() -> None:
    with pytest.raises(Violation, match="is the most"):
        a_world(0, MOST_OF_ONE_BYTES + 1).wait(0)


def test_peers_that_take_nothing_hold_at_most_max_buffered() -> None:
    world = a_world(*[250_000] * 5)
    world.wait(0)
    with pytest.raises(Violation, match="max_buffered"):
        world.wait(TWO_LOOKS_MS + 1)


def test_peers_that_take_nothing_may_hold_max_buffered() -> None:
    world = a_world(*[250_000] * 4)
    world.wait(0)
    world.wait(TWO_LOOKS_MS + 1)


def test_slow_peers_may_hold_more() -> None:
    world = a_world(*[250_000] * 5)
    world.wait(0)
    for transport in world.scenario.proxy.process.transports:
        transport.end.written_bytes += 1_000  # and as many were taken
    world.wait(TWO_LOOKS_MS + 1)


def test_a_process_that_stood_still_has_looked_later() -> None:
    world = a_world(*[250_000] * 5)
    world.scenario.fired["proxy paused"] = 1
    world.wait(0)
    world.wait(TWO_LOOKS_MS + 1)
