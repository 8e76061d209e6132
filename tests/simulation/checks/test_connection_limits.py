"""Tests that connections are judged by the limits of listeners, addresses and rules."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.connection_limits import ConnectionLimits
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.violation import Violation

PORT = ("10.0.0.1", 9192)
CLIENT = ("10.0.2.1", 40_000)
PORTS = {PORT: 0}


def a_world(settings: Settings, **rule: object) -> StandIn:
    world = StandIn(settings)
    world.scenario.proxy = SimpleNamespace(process=SimpleNamespace(transports=[]))
    world.watch(ConnectionLimits).rules_changed([rule] if rule else [])
    return world


def serve(world: StandIn, *, has_ended: bool = False) -> None:
    end = SimpleNamespace(local=PORT, remote=CLIENT, has_ended=has_ended)
    world.scenario.proxy.process.transports.append(SimpleNamespace(end=end))
    world.ledger.served(PORT, CLIENT)


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_host"])
def test_one_open_connection_too_many_is_found(limit: str) -> None:
    world = a_world(Settings(limited_ports=PORTS, **{limit: 2}))  # type: ignore[arg-type]
    serve(world)
    serve(world)
    serve(world, has_ended=True)

    with pytest.raises(Violation, match="3 are open, 2 may be"):
        serve(world)


def run(world: StandIn, *, every_ms: float, by_address: bool) -> None:
    for _ in range(300):
        if by_address:
            world.ledger.served(PORT, CLIENT)
        else:
            world.ledger.accepted(PORT, CLIENT)
        world.wait(every_ms)


@pytest.mark.parametrize("by_address", [True, False])
def test_new_connections_are_judged_by_their_rate(by_address: bool) -> None:
    settings = Settings(limited_ports=PORTS, max_creation_rate=None if by_address else 2.0)
    rule = {"ip": "<default>", "connection_creation_rate": 2} if by_address else {}
    run(a_world(settings, **rule), every_ms=500, by_address=by_address)

    with pytest.raises(Violation, match="more than the quota has given"):
        run(a_world(settings, **rule), every_ms=300, by_address=by_address)


def test_addresses_that_have_no_place_in_the_table_are_not_judged() -> None:
    settings = Settings(limited_ports=PORTS, max_buckets=2)
    world = a_world(settings, ip="<default>", connection_creation_rate=2)
    world.ledger.served(PORT, ("10.0.2.2", 40_000))

    run(world, every_ms=300, by_address=True)


def test_open_connections_of_a_bucket_are_counted_if_all_are_alive() -> None:
    world = a_world(Settings(), **{"client-id": "etl", "connections": 2})
    for connection in (1, 2, 3):
        world.exchange(3, connection=connection)

    world.exchange(3, connection=1)
    world.exchange(3, connection=2)
    with pytest.raises(Violation, match="has 3 connections"):
        world.exchange(3, connection=3)


def test_a_connection_whose_end_the_client_learns_late_is_no_violation() -> None:
    world = a_world(Settings(), **{"client-id": "etl", "connections": 2})
    for connection in (1, 2, 3):
        world.exchange(3, connection=connection)

    world.ledger.disconnected("producer-1", 1, by_client=False)

    world.exchange(3, connection=2)
    world.exchange(3, connection=3)


def test_connections_of_before_count_under_new_rules() -> None:
    world = a_world(Settings(), **{"client-id": "etl", "connections": 2})
    for connection in (1, 2):
        world.exchange(3, connection=connection)

    world.ledger.checks[0].rules_changed([{"user": "<default>", "connections": 2}])
    world.wait(2_000)
    world.ledger.connected("producer-1", 3, ETL)
    for connection in (3, 1, 2):
        world.exchange(3, connection=connection)
    with pytest.raises(Violation, match="has 3 connections"):
        world.exchange(3, connection=3)
