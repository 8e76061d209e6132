"""Tests that a request that waits for nothing is found, and one that waits for its quota is not."""

import pytest

from tests.simulation.checks.liveness import Liveness
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation


def a_world() -> StandIn:
    world = StandIn()
    world.watch(Liveness)
    return world


def test_a_request_that_is_never_forwarded_is_found() -> None:
    world = a_world()
    world.send()
    world.wait(16_000)
    with pytest.raises(Violation, match="is not forwarded"):
        world.exchange(connection=2)


def test_a_response_that_is_never_passed_is_found() -> None:
    world = a_world()
    exchange = world.send()
    world.forward(exchange)
    world.answer(exchange)
    world.wait(16_000)
    with pytest.raises(Violation, match="answered by its broker"):
        world.ledger.disconnected("producer-1", 1, by_client=True)


def test_a_broker_and_a_quota_may_take_their_time() -> None:
    world = a_world()
    at_broker = world.send()
    world.forward(at_broker)
    (check,) = world.ledger.checks
    check.rules_changed([{"client-id": "etl", "producer_byte_rate": 100_000}])
    world.send(connection=2)
    world.wait(40_000)
    world.exchange(connection=3)


def test_faults_explain_a_wait() -> None:
    world = a_world()
    world.send()
    world.scenario.fired["broker crash"] = 1
    world.wait(60_000)
    world.exchange(connection=2)
