"""Tests that what waits without a reason is found, and that each reason is known."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulation.checks.held_back import HeldBack
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.ledger import Exchange
from tests.simulation.network import End
from tests.simulation.violation import Violation

RULES = [{"client-id": "etl", "producer_byte_rate": 10_000, "consumer_byte_rate": 10_000}]


def an_end(**state: bool) -> End:
    found: Any = SimpleNamespace(**({"is_open": True, "is_on_the_way": False} | state))
    found.peer = SimpleNamespace(is_open=True, is_on_the_way=False, written_bytes=0)
    return cast("End", found)


def a_world(settings: Settings | None = None, rules: Any = RULES) -> StandIn:
    world = StandIn(settings)
    world.watch(HeldBack).rules_changed(rules)
    first = send(world, 18)  # so that the broker is dialled
    forward(world, first)
    world.give(first, world.answer(first))
    return world


def send(world: StandIn, api_key: int = 0, **more: Any) -> Exchange:
    exchange = world.send(api_key, **more)
    exchange.client_end = an_end()
    return exchange


def forward(world: StandIn, exchange: Exchange, end: End | None = None) -> None:
    world.ledger.forwarding(exchange.correlation_id, 1, exchange.api_key, end or an_end())
    world.ledger.forwarded(exchange)


def wait(world: StandIn, ms: float) -> None:
    for _ in range(int(ms / 500)):
        world.wait(500)


def test_a_request_whose_bucket_is_free_is_found() -> None:
    world = a_world()
    send(world)
    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 7_500)


def test_a_request_without_a_limit_is_found() -> None:
    world = a_world(rules=[])
    send(world)
    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 7_500)


def test_a_response_that_has_arrived_is_found() -> None:
    world = a_world()
    exchange = send(world)
    forward(world, exchange)
    world.answer(exchange)
    with pytest.raises(Violation, match="is answered by its broker, and not here"):
        wait(world, 7_500)


def test_a_request_waits_for_the_throttle_time_of_another_connection() -> None:
    world = a_world()
    other = send(world, connection=2)
    forward(world, other)
    world.give(other, world.answer(other), throttle_ms=10_000)
    send(world)
    wait(world, 13_000)
    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 2_000)


def test_a_request_waits_for_25_seconds_for_one_that_its_broker_has() -> None:
    world = a_world()
    forward(world, send(world, connection=2))
    send(world)
    wait(world, 28_000)
    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 2_000)


@pytest.mark.parametrize("sent_bytes", [-1, 40, 41])
def test_a_request_waits_for_none_whose_client_sends_nothing(sent_bytes: int) -> None:
    world = a_world()
    begun = send(world, size=200_000)
    world.ledger.forwarding(begun.correlation_id, 1, 0, an_end())
    begun.sent_bytes, begun.forwarded_bytes = sent_bytes, 40
    second = send(world, 18, connection=3)
    forward(world, second)
    world.give(second, world.answer(second))
    send(world, connection=3)

    if sent_bytes == 40:
        with pytest.raises(Violation, match="is not forwarded"):
            wait(world, 7_500)
    else:
        wait(world, 20_000)


def test_a_request_waits_for_the_rest_of_one_whose_client_has_gone() -> None:
    world = a_world()
    begun = send(world, size=200_000)
    world.ledger.forwarding(begun.correlation_id, 1, 0, an_end())
    second = send(world, 18, connection=3)
    forward(world, second)
    world.give(second, world.answer(second))
    world.ledger.disconnected(begun.client, begun.connection, by_client=True)
    send(world, connection=3)
    wait(world, 60_000)
    begun.client_end.peer.is_open = False  # type: ignore[union-attr]
    wait(world, 20_000)  # the proxy has charged it

    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 10_000)


def test_a_fetch_waits_no_longer_than_it_says() -> None:
    world = a_world()
    body = (500).to_bytes(4) + bytes(40)
    other = send(world, 1, connection=2, api_version=15, body=bytes(1) + body)
    forward(world, other)
    world.give(other, world.answer(other), throttle_ms=60_000)
    send(world, 1, api_version=15, body=bytes(1) + body)
    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 8_000)


@pytest.mark.parametrize("is_shared", [False, True])
def test_consumers_who_share_a_limit_wait_until_half_a_window_is_paid(*, is_shared: bool) -> None:
    world = a_world()
    body = bytes(1) + (60_000).to_bytes(4) + bytes(40)
    if is_shared:
        other = send(world, 1, connection=2, api_version=15, body=body)
        forward(world, other)
        world.give(other, world.answer(other))
    own = send(world, 1, api_version=15, body=body)
    forward(world, own)
    world.give(own, world.answer(own, 100_000), throttle_ms=500)  # it owes ten seconds, and half a window has five
    send(world, 1, api_version=15, body=body)
    wait(world, 8_000 if is_shared else 3_500)
    with pytest.raises(Violation, match="is not forwarded"):
        wait(world, 1_500)


@pytest.mark.parametrize("state", ["is_on_the_way", "is_open"])
def test_what_the_network_has_is_not_held_back(state: str) -> None:
    world = a_world()
    exchange = send(world)
    exchange.client_end = an_end(**{state: state == "is_on_the_way"})
    wait(world, 20_000)


def test_a_connection_that_is_served_again_and_again_is_found() -> None:
    world = a_world()
    for connection in (1, 3):
        first = send(world, 18, connection=connection)
        forward(world, first)
        world.give(first, world.answer(first))
    forward(world, send(world, connection=2))  # so that the bucket is busy
    send(world)
    wait(world, 1_000)
    for _ in range(2):
        forward(world, send(world, connection=3))
        world.wait(2)
    with pytest.raises(Violation, match="number 3 of its connection while"):
        forward(world, send(world, connection=3))


def overtake(world: StandIn, connection: int) -> None:
    for _ in range(3):
        forward(world, send(world, connection=connection))
        world.wait(2)


def must_pass_after_4_s(world: StandIn, *, overtaken_by: int) -> None:
    """Let another connection overtake the request that waits: within four seconds it may, later it may not."""
    wait(world, 3_500)
    overtake(world, overtaken_by)
    wait(world, 1_000)
    with pytest.raises(Violation, match="number 3 of its connection while"):
        overtake(world, overtaken_by)


def test_a_client_that_gets_no_response_is_muted_for_its_debt_and_the_line() -> None:
    world = a_world()
    send(world, connection=2)
    forward(world, send(world, size=20_000, expects_response=False))  # it owes 2 s, and 2 s for the other connection
    send(world)
    must_pass_after_4_s(world, overtaken_by=2)


def test_a_client_that_gets_no_response_is_muted_for_the_line_that_others_have_left() -> None:
    world = a_world()
    gone = send(world, connection=2)
    world.ledger.disconnected(gone.client, 2, by_client=True)
    forward(world, send(world, size=20_000, expects_response=False))
    send(world)
    must_pass_after_4_s(world, overtaken_by=3)
