"""Tests that a request that waits for nothing is found, and one that waits for its quota is not."""

import pytest

from tests.simulation.checks.liveness import Liveness
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.violation import Violation


def a_world(settings: Settings | None = None) -> StandIn:
    world = StandIn(settings)
    world.watch(Liveness)
    return world


def test_a_request_that_is_never_forwarded_is_found() -> None:
    world = a_world()
    world.send()
    with pytest.raises(Violation, match="is not forwarded"):
        world.wait(16_000)


def test_a_response_that_is_never_passed_is_found() -> None:
    world = a_world()
    exchange = world.send()
    world.forward(exchange)
    world.answer(exchange)
    world.wait(14_000)
    with pytest.raises(Violation, match="answered by its broker"):
        world.wait(2_000)


def test_a_broker_and_a_quota_may_take_their_time() -> None:
    world = a_world()
    at_broker = world.send()
    world.forward(at_broker)
    (check,) = world.ledger.checks
    check.rules_changed([{"client-id": "etl", "producer_byte_rate": 100_000}])
    world.send(connection=2)
    world.wait(38_000)
    world.exchange(connection=3)


def test_faults_explain_a_wait() -> None:
    world = a_world()
    world.send()
    world.scenario.fired["broker crash"] = 1
    world.wait(60_000)
    world.exchange(connection=2)


def test_a_request_is_judged_again_when_a_fault_is_over() -> None:
    world = a_world()
    world.scenario.fired["broker crash"] = 1
    world.wait(1_000)  # so that the fault is noticed
    world.wait(71_000)
    world.send()
    with pytest.raises(Violation, match="is not forwarded"):
        world.wait(16_000)


def test_a_connection_of_after_the_fault_is_judged_sooner() -> None:
    world = a_world()
    world.scenario.fired["connection cut"] = 1
    world.wait(1_000)  # so that the fault is noticed
    world.wait(1)
    world.ledger.connected("producer-1", 1, ETL)
    world.send()
    with pytest.raises(Violation, match="is not forwarded"):
        world.wait(16_000)


def test_a_fault_without_an_end_explains_everything() -> None:
    world = a_world()
    world.scenario.fired["tiny windows"] = 1
    world.exchange(connection=2)
    world.wait(1_000_000)
    world.send()
    world.wait(60_000)
    world.exchange(connection=2)


def test_a_request_that_the_queue_forgets_is_found() -> None:
    world = a_world(Settings(has_queue=True))
    world.send()
    world.wait(15_400)
    with pytest.raises(Violation, match="is not forwarded"):
        world.wait(1_000)


def test_a_request_is_judged_soon_after_the_last_fault_of_a_world() -> None:
    world = a_world()
    world.scenario.fired["tiny windows"] = 1
    world.exchange(connection=2)
    world.send()
    world.wait(200_000)
    (check,) = world.ledger.checks
    check.faults_ended()
    world.wait(70_000)
    with pytest.raises(Violation, match="is not forwarded"):
        world.wait(2_000)
