"""Tests that a throttle time is compared with what a bucket owes, from below and from above."""

import pytest

from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.checks.throttle_amounts import ThrottleAmounts
from tests.simulation.violation import Violation

RATE = 10_000
BYTES = 50_000  # of each request, worth 5 s
# One of the five seconds is free: an idle client has saved up one, and two windows are one long at least.
PACED, SAMPLED = Settings(shaping="paced"), Settings(window_num=2)


def a_world(settings: Settings) -> StandIn:
    world = StandIn(settings)
    world.watch(ThrottleAmounts).rules_changed([{"client-id": "etl", "producer_byte_rate": RATE}])
    return world


def produce(world: StandIn, throttle_ms: int, connection: int = 1) -> None:
    world.exchange(size=BYTES + 4, throttle_ms=throttle_ms, connection=connection)


@pytest.mark.parametrize(("settings", "throttle_ms"), [(PACED, 4_000), (SAMPLED, 4_000)])
def test_what_the_bucket_owes_is_right(settings: Settings, throttle_ms: int) -> None:
    world = a_world(settings)
    produce(world, throttle_ms)


@pytest.mark.parametrize(
    ("settings", "throttle_ms", "text"),
    [
        (PACED, 3_990, "owes 3999 ms or more"),
        (PACED, 4_010, "owes 4000 ms at most"),
        (SAMPLED, 3_990, "owes 3999 ms or more"),
        (SAMPLED, 4_010, "owes 4001 ms at most"),
    ],
)
def test_less_or_more_than_the_bucket_owes_is_found(settings: Settings, throttle_ms: int, text: str) -> None:
    world = a_world(settings)
    with pytest.raises(Violation, match=text):
        produce(world, throttle_ms)


def test_the_debt_of_all_connections_counts() -> None:
    world = a_world(PACED)
    produce(world, 4_000)
    with pytest.raises(Violation, match="owes 8998 ms or more"):
        produce(world, 4_000, connection=2)


def test_a_client_may_be_told_the_turns_of_those_that_wait() -> None:
    world = a_world(PACED)
    world.send(connection=2)
    produce(world, 40_000)


def test_those_that_waited_at_the_charge_may_be_forwarded_before_the_answer_passes() -> None:
    world = a_world(PACED)
    mine = world.send(size=BYTES + 4)
    world.forward(mine)
    other = world.send(connection=2)
    answer = world.answer(mine)
    world.wait(1)
    world.forward(other)
    world.give(mine, answer, throttle_ms=40_000)


def test_the_longest_throttle_time_is_enough() -> None:
    world = a_world(Settings(shaping="paced", max_throttle_ms=500))
    produce(world, 500)


def test_a_charge_of_a_client_that_has_gone_may_count_or_not() -> None:
    world = a_world(PACED)
    world.forward(world.send(size=BYTES + 4, connection=2))
    world.ledger.disconnected("producer-1", 2, by_client=True)
    produce(world, 4_000)
    produce(world, 14_000, connection=3)


def test_windows_whose_charges_are_not_certain_have_wide_bounds() -> None:
    world = a_world(SAMPLED)
    world.forward(world.send(connection=2))
    produce(world, 3_000)
    with pytest.raises(Violation, match="owes 6998 ms or more"):
        produce(world, 4, connection=3)
