"""Tests that a connection that is not closed in time, and one that is closed too early, are found."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.check import Check
from tests.simulation.checks.cut_short import CutShort
from tests.simulation.checks.ends import Ends
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.ledger import Exchange
from tests.simulation.violation import Violation

_PORT = ("10.0.0.1", 9192)


class FakeEnd:
    def __init__(self) -> None:
        self.local, self.remote = _PORT, ("10.0.2.1", 40_000)
        self.is_open = True
        self.is_on_the_way = self.has_shut_down = self.has_ended = self.is_reset = self.is_timed_out = False
        self.unread_bytes = self.unsent_bytes = self.received_bytes = self.written_bytes = 0
        self.link = SimpleNamespace(is_cut=False)
        self.peer: Any = None


def a_world(check: type[Check], settings: Settings | None = None) -> tuple[StandIn, Exchange, FakeEnd, FakeEnd]:
    """Return a world, a request, the proxy's end to its client, and that to its broker."""
    world = StandIn(settings or Settings(limited_ports={_PORT: 0}))
    client, own, broker = FakeEnd(), FakeEnd(), FakeEnd()
    client.peer, own.peer, broker.peer = own, client, FakeEnd()
    broker.local = ("10.0.0.1", 50_000)
    transports = {FakeTransport(end): None for end in (own, broker)}
    world.scenario.proxy = SimpleNamespace(is_running=True, process=SimpleNamespace(transports=transports))
    world.watch(check).proxy_started(1)
    world.ledger.connected("producer-1", 1, ETL)
    exchange = world.send()
    exchange.client_end = client  # type: ignore[assignment] # they stand in for ends
    for one in world.ledger.checks:
        one.sent(exchange)
    world.ledger.forwarding(exchange.correlation_id, 1, 0, broker)  # type: ignore[arg-type]
    world.ledger.forwarded(exchange)
    return world, exchange, own, broker


class FakeTransport:
    def __init__(self, end: FakeEnd) -> None:
        self.end = end

    def is_closing(self) -> bool:
        return False


def wait(world: StandIn, seconds: int) -> None:
    for _ in range(seconds):
        world.wait(1_001)


def test_what_is_open_may_be_open() -> None:
    world, _, _, _ = a_world(Ends)
    wait(world, 200)


def test_a_vanished_broker_must_be_found() -> None:
    world, _, _, broker = a_world(Ends)
    broker.link.is_cut = True
    wait(world, 45)
    with pytest.raises(Violation, match="its broker has vanished"):
        wait(world, 20)


def test_a_client_without_a_broker_must_be_closed() -> None:
    world, _, _, broker = a_world(Ends)
    transports = world.scenario.proxy.process.transports
    for transport in [one for one in transports if one.end is broker]:
        del transports[transport]
    with pytest.raises(Violation, match="its broker has gone"):
        wait(world, 20)


def test_an_idle_connection_must_be_closed() -> None:
    world, exchange, _, _ = a_world(Ends, Settings(limited_ports={_PORT: 0}, idle_ms=4_000))
    wait(world, 60)  # it waits for its response
    world.give(exchange, world.answer(exchange))
    with pytest.raises(Violation, match="got idle"):
        wait(world, 20)


def test_a_request_behind_the_proxys_end_is_found() -> None:
    world, exchange, own, broker = a_world(Ends)
    own.has_shut_down = True
    with pytest.raises(Violation, match="no response any more"):
        world.ledger.forwarding(exchange.correlation_id, 1, 0, broker)  # type: ignore[arg-type]


def close(world: StandIn, exchange: Exchange) -> None:
    exchange.client_end.has_ended = True  # type: ignore[union-attr, misc]
    world.ledger.disconnected("producer-1", 1, by_client=False)


def test_a_connection_is_not_closed_in_the_middle_of_a_request() -> None:
    world, exchange, _, _ = a_world(CutShort)
    with pytest.raises(Violation, match="which its broker has"):
        close(world, exchange)


def test_a_broker_or_a_stop_may_end_it() -> None:
    world, exchange, _, broker = a_world(CutShort)
    broker.has_ended = True
    close(world, exchange)
    world, exchange, _, _ = a_world(CutShort)
    world.ledger.checks[0].proxy_stopping(1)
    close(world, exchange)
