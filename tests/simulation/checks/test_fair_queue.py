"""Tests that a request that the fair call queue leaves waiting is found, and slots that are never given back."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Ticket
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue
from tests.simulation.checks.fair_queue import FairQueue
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.ledger import Exchange
from tests.simulation.leftovers import slots_in_use
from tests.simulation.violation import Violation


def a_world(*, has_queue: bool = True) -> StandIn:
    world = StandIn(Settings(has_queue=has_queue))
    world.watch(FairQueue)
    world.exchange()
    world.exchange(connection=2)
    return world


def others_work(world: StandIn, exchanges: int) -> None:
    """Let another connection have ``exchanges`` turns in 20 s, and one request at the broker all the time."""
    at_broker: Exchange | None = None
    for _ in range(exchanges):
        waiting = world.send(connection=2)
        world.forward(waiting)
        if at_broker is not None:
            world.give(at_broker, world.answer(at_broker))
        at_broker = waiting
        world.wait(20_000 / exchanges)


def test_a_request_that_others_overtake_for_ever_is_found() -> None:
    world = a_world()
    world.send()
    with pytest.raises(Violation, match="was sent"):
        others_work(world, 400)


def test_a_request_may_wait_while_the_broker_is_busy() -> None:
    world = a_world()
    world.send()
    others_work(world, 100)


def test_a_request_that_waits_for_an_idle_broker_is_found() -> None:
    world = a_world()
    world.send()
    world.wait(16_000)
    with pytest.raises(Violation, match="nothing to do"):
        world.exchange(connection=2)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_request_on_a_connection_that_is_cut_may_be_lost(is_cut: bool) -> None:
    world = a_world()
    world.send().client_end = SimpleNamespace(link=SimpleNamespace(is_cut=is_cut))  # type: ignore[assignment]
    world.wait(16_000)
    with nullcontext() if is_cut else pytest.raises(Violation, match="nothing to do"):
        world.exchange(connection=2)


def test_quotas_and_faults_explain_a_wait() -> None:
    world = a_world()
    (check,) = world.ledger.checks
    check.rules_changed([{"client-id": "etl", "producer_byte_rate": 100_000}])
    world.send()
    world.wait(16_000)
    world.exchange(connection=2)
    world = a_world()
    world.send()
    world.scenario.fired["broker crash"] = 1
    world.wait(60_000)
    world.exchange(connection=2)


def test_nothing_is_judged_without_a_queue() -> None:
    world = a_world(has_queue=False)
    world.send()
    world.wait(16_000)
    world.exchange(connection=2)


def test_slots_that_are_in_use_are_found() -> None:
    queue = BrokerQueue(settings({"max_in_flight": 1}))
    assert [*slots_in_use(queue), *slots_in_use(None)] == []
    first, second = Ticket("first"), Ticket("second")
    queue.dispatcher.ask(first, 0)
    queue.dispatcher.ask(second, 0)
    assert [*slots_in_use(queue)] == ["fair call queue: 1 slots", "fair call queue: 1 waiting requests"]
    queue.dispatcher.leave(second, 1)
    queue.dispatcher.leave(first, 1)
    assert [*slots_in_use(queue)] == []
