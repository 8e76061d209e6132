"""Tests that a connection that the proxy closes needs a reason."""

import pytest

from tests.simulation.checks.isolation import Isolation
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.violation import Violation


def a_world(settings: Settings | None = None) -> StandIn:
    world = StandIn(settings)
    world.watch(Isolation)
    world.ledger.connected("producer-1", 1, ETL)
    world.exchange()
    return world


def close(world: StandIn) -> None:
    """Let the proxy close, and some time pass."""
    world.ledger.disconnected("producer-1", 1, by_client=False)
    world.wait(1)
    world.ledger.checks[0].end()


def test_a_connection_that_is_closed_for_nothing_is_found() -> None:
    world = a_world()
    with pytest.raises(Violation, match="nothing explains it"):
        close(world)


def test_a_client_may_close() -> None:
    a_world().ledger.disconnected("producer-1", 1, by_client=True)


def test_a_broker_may_close_after_a_request_without_a_response_until_it_answers_a_later_one() -> None:
    world = a_world()
    world.send(expects_response=False)
    world.send()
    close(world)

    world = a_world()
    world.send(expects_response=False)
    world.exchange()
    with pytest.raises(Violation):
        close(world)


def test_a_fault_explains_it() -> None:
    world = a_world()
    world.ledger.disconnected("producer-1", 1, by_client=False)
    world.scenario.fired["broker crash"] += 1
    world.wait(1)
    world.ledger.checks[0].end()


def test_other_quotas_do_not_explain_it() -> None:
    world = a_world()
    world.scenario.fired["quotas changed"] = 1
    with pytest.raises(Violation):
        close(world)


def test_time_limits_and_the_end_of_the_proxy_explain_it() -> None:
    world = a_world(Settings(idle_ms=4_000))
    world.wait(4_000)
    close(world)
    world = a_world()
    world.ledger.checks[0].proxy_ended(1, is_crash=True)
    close(world)


def test_a_request_may_cross_the_end_of_an_idle_connection() -> None:
    world = a_world(Settings(idle_ms=4_000))
    world.wait(4_000)
    world.send()
    world.wait(2)
    close(world)


def test_a_request_that_was_forwarded_keeps_a_connection_from_being_idle() -> None:
    world = a_world(Settings(idle_ms=4_000))
    world.wait(4_000)
    world.forward(world.send())
    with pytest.raises(Violation, match="nothing explains it"):
        close(world)
