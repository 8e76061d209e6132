"""Tests that a consumer below its quota may notice nothing of it."""

from collections.abc import Callable
from struct import pack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulation.checks.quiet_clients import QuietClients
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.ledger import Exchange
from tests.simulation.network import End
from tests.simulation.violation import Violation

RATE = 10_000
PACED, SAMPLED = Settings(shaping="paced"), Settings()
RULES = [{"client-id": "etl", "consumer_byte_rate": RATE}]
LITTLE, MUCH = 1_000, 60_000  # half of the ten seconds in the shortest window, or of the one in a burst, and more

BOTH = pytest.mark.parametrize("settings", [PACED, SAMPLED])


def a_world(settings: Settings, rules: Any = RULES) -> StandIn:
    world = StandIn(settings)
    world.watch(QuietClients).rules_changed(rules)
    world.clock.advance(10_000_000_000)
    for connection in range(5):
        world.exchange(18, connection=connection)  # so that the broker is dialled
    return world


def send(world: StandIn, connection: int = 1) -> Exchange:
    exchange = world.send(1, api_version=11, connection=connection)
    exchange.client_end = cast("End", SimpleNamespace(link=SimpleNamespace(most_ms=lambda _: 1.0)))
    return exchange


def fetch(world: StandIn, size: int, *, throttle_ms: int = 0, of_broker_ms: int = 0, connection: int = 1) -> None:
    exchange = send(world, connection)
    world.forward(exchange)
    frame = pack(">iii", size - 4, exchange.correlation_id, of_broker_ms) + bytes(size - 12)
    world.give(exchange, world.answer(exchange, frame=frame), throttle_ms=throttle_ms)


def hold(world: StandIn, ms: float, connection: int = 1) -> None:
    exchange = send(world, connection)
    world.wait(ms)
    world.forward(exchange)


@BOTH
def test_throttle_time_is_found(settings: Settings) -> None:
    world = a_world(settings)
    fetch(world, LITTLE)
    with pytest.raises(Violation, match=r"is told to wait for 1 ms, and its bucket .* is far from its limit"):
        fetch(world, LITTLE, throttle_ms=1)


@BOTH
def test_fetch_that_the_proxy_answers_is_found(settings: Settings) -> None:
    world = a_world(settings)
    exchange = send(world)
    with pytest.raises(Violation, match="is answered by the proxy"):
        world.give(exchange, bytes(60))


@BOTH
@pytest.mark.parametrize("look", [lambda world, fetched: world.forward(fetched), lambda world, _: world.wait(0)])
def test_fetch_that_waits_longer_than_a_broker_takes_is_found(
    settings: Settings, look: Callable[[StandIn, Exchange], None]
) -> None:
    world = a_world(settings)
    fetched = send(world)
    world.clock.advance(world.clock.now_ns + 30_000_000)
    with pytest.raises(Violation, match=r"waits for 30\.0 ms, and 25\.0 ms is the most"):
        look(world, fetched)


def test_fetch_may_wait_while_another_may_be_answered() -> None:
    world = a_world(SAMPLED)
    hold(world, 20)


@BOTH
def test_fetch_may_wait_for_as_long_as_the_broker_has_taken(settings: Settings) -> None:
    world = a_world(settings)
    slow = send(world, 2)
    world.ledger.forwarding(slow.correlation_id, 1, 1)
    world.ledger.forwarded(slow)
    world.wait(300)
    world.ledger.at_broker(1, slow.request, slow.correlation_id)
    world.give(slow, world.answer(slow))
    hold(world, 300)
    with pytest.raises(Violation, match="is the most"):
        hold(world, 320, connection=3)


def test_each_fetch_that_is_answered_meanwhile_may_hold_it_back_once_more() -> None:
    world = a_world(SAMPLED)
    waiting = send(world, 2)
    fetch(world, LITTLE)
    world.wait(40)
    world.forward(waiting)


@BOTH
def test_throttle_time_of_the_broker_is_its_own(settings: Settings) -> None:
    world = a_world(settings)
    fetch(world, LITTLE, throttle_ms=700, of_broker_ms=700)


@BOTH
def test_bucket_near_its_limit_is_not_quiet_until_all_is_paid_and_forgotten(settings: Settings) -> None:
    world = a_world(settings)
    fetch(world, MUCH, throttle_ms=1_000)
    world.wait(15_000)
    hold(world, 500)
    fetch(world, LITTLE, throttle_ms=1_000, connection=2)
    world.wait(15_000)
    with pytest.raises(Violation):
        fetch(world, LITTLE, throttle_ms=1, connection=2)


def test_lowered_limit_is_judged_by_all_that_came_before() -> None:
    world = a_world(SAMPLED)
    (check,) = world.ledger.checks
    fetch(world, 20_000)
    check.rules_changed([{"client-id": "etl", "consumer_byte_rate": RATE / 5}])
    world.wait(2_000)
    fetch(world, LITTLE, throttle_ms=1_000)


def test_new_process_and_changed_rules_make_no_client_wait() -> None:
    world = a_world(SAMPLED)
    (check,) = world.ledger.checks
    fetch(world, MUCH)
    check.proxy_started(2)
    check.rules_changed(RULES)
    check.rules_changed([{"client-id": "etl", "consumer_byte_rate": RATE * 2}])
    world.wait(2_000)
    with pytest.raises(Violation):
        fetch(world, LITTLE, throttle_ms=1)


@pytest.mark.parametrize(
    "settings", [Settings(has_queue=True), Settings(max_buckets=2), Settings(max_buffered=1 << 20)]
)
def test_other_reasons_are_known(settings: Settings) -> None:
    world = a_world(settings)
    fetch(world, LITTLE, throttle_ms=1)
    hold(world, 1_000)


def test_limit_on_requests_may_make_a_client_wait() -> None:
    world = a_world(SAMPLED, [{"client-id": "etl", "consumer_byte_rate": RATE, "request_rate": 1}])
    fetch(world, LITTLE, throttle_ms=1)


def test_proxy_that_stops_is_not_judged() -> None:
    world = a_world(SAMPLED)
    (check,) = world.ledger.checks
    check.proxy_stopping(1)
    hold(world, 1_000)
