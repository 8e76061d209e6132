"""Tests that the oracle of quotas lets pass what a quota allows, and finds what it does not."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from struct import pack
from types import SimpleNamespace
from typing import cast

import pytest

from tests.simulation.checks.entities import PRODUCE, Rules
from tests.simulation.checks.quota_bounds import QuotaBounds
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.ledger import Entity
from tests.simulation.network import End
from tests.simulation.violation import Violation
from tests.simulation.wire import share_fetch

RATE = 10_000.0
PACED = Settings(shaping="paced")
SAMPLED = Settings()
RULES: list[Mapping[str, object]] = [{"client-id": "etl", "producer_byte_rate": RATE, "consumer_byte_rate": RATE}]
FETCH_BODY = pack(">iiii", -1, 500, 1, 1_000) + bytes(20)


def a_world(settings: Settings) -> StandIn:
    world = StandIn(settings)
    world.watch(QuotaBounds).rules_changed(RULES)
    for connection in range(200):
        world.exchange(18, connection=connection)  # so that the broker is dialled
    return world


def produce(world: StandIn, connection: int = 1) -> None:
    world.exchange(size=1_004, connection=connection)


def fetch(world: StandIn, connection: int = 1) -> None:
    world.exchange(1, api_version=11, response=1_005, connection=connection, body=FETCH_BODY)


def repeat(step: Callable[[int], object], times: int, world: StandIn, *, every_ms: float) -> None:
    for number in range(times):
        step(number)
        world.wait(every_ms)


ROLES = pytest.mark.parametrize("role", [produce, fetch])


@ROLES
@pytest.mark.parametrize("settings", [PACED, SAMPLED])
def test_a_flow_at_the_rate_of_the_quota_passes(role: Callable[[StandIn], None], settings: Settings) -> None:
    world = a_world(settings)

    for _ in range(600):
        role(world)
        world.wait(100)


@ROLES
@pytest.mark.parametrize("settings", [PACED, SAMPLED])
def test_a_flow_of_13_tenths_of_the_quota_is_found_within_a_minute(
    role: Callable[[StandIn], None], settings: Settings
) -> None:
    world = a_world(settings)

    with pytest.raises(Violation, match="over what the quota has given"):
        repeat(lambda _: role(world), 780, world, every_ms=100 / 1.3)


@ROLES
@pytest.mark.parametrize("settings", [PACED, SAMPLED])
def test_many_connections_that_each_pass_once_more_are_found(
    role: Callable[[StandIn, int], None], settings: Settings
) -> None:
    world = a_world(settings)

    with pytest.raises(Violation):
        repeat(lambda connection: role(world, connection), 150, world, every_ms=1)


def test_ten_seconds_worth_may_pass_at_once_in_sampled_windows() -> None:
    world = a_world(SAMPLED)

    for _ in range(10):
        for _ in range(100):
            produce(world)
        world.wait(11_001)


def test_one_large_request_may_go_over_and_is_paid() -> None:
    world = a_world(PACED)

    world.exchange(size=50_004)
    world.wait(4_000)
    world.exchange(size=50_004)
    with pytest.raises(Violation):
        world.exchange(size=104)


def test_requests_in_flight_count_unless_they_are_lost() -> None:
    world = a_world(PACED)
    waiting = world.send(size=50_004, connection=2)
    world.forward(waiting)
    produce(world)  # in debt only if the first is charged

    world.ledger.disconnected("producer-1", 2, by_client=False)

    produce(world)


def test_a_large_request_that_is_never_answered_does_not_block_for_ever() -> None:
    world = a_world(PACED)
    world.forward(world.send(size=1_000_004, connection=2))
    world.wait(25_000)

    produce(world)


@pytest.mark.parametrize("ms", [4_900, 5_000])
def test_a_request_that_stalls_delays_others_for_as_long_as_its_bytes_are_worth(ms: int) -> None:
    world = a_world(PACED)
    stalled = world.send(size=50_004, connection=2)
    world.forward(stalled)
    world.wait(ms)
    repeat(lambda _: produce(world), 20, world, every_ms=0)

    with pytest.raises(Violation) if ms < 5_000 else nullcontext():
        world.give(stalled, world.answer(stalled))


def test_a_request_that_an_earlier_limit_let_through_before_its_dial_delays_nobody() -> None:
    world = a_world(PACED)
    (check,) = world.ledger.checks
    dialled = world.send(size=50_004, connection=300)
    world.wait(100)
    check.rules_changed([{"client-id": "etl", "producer_byte_rate": RATE / 10}])
    world.wait(3_000)
    world.forward(dialled)
    world.wait(1_000)

    produce(world)

    world.give(dialled, world.answer(dialled))


def test_requests_side_by_side_over_the_quota_are_found_when_all_are_answered() -> None:
    world = a_world(PACED)
    crowd = [world.send(size=8_004, connection=connection) for connection in range(20)]
    for exchange in crowd:
        world.forward(exchange)

    with pytest.raises(Violation):
        repeat(lambda number: world.give(crowd[number], world.answer(crowd[number])), 20, world, every_ms=0)


def test_fetches_that_together_ask_for_more_than_the_quota_are_found() -> None:
    world = a_world(PACED)

    body = pack(">iiii", -1, 500, 1, 10_000) + bytes(20)

    def ask(connection: int) -> None:
        world.forward(world.send(1, api_version=11, connection=connection, body=body))

    with pytest.raises(Violation, match="asks for"):
        repeat(ask, 100, world, every_ms=0)


@pytest.mark.parametrize(("fetches", "is_found"), [(115, True), (30, False)])
def test_fetch_that_asks_for_more_than_is_left_is_found(fetches: int, *, is_found: bool) -> None:
    world = a_world(SAMPLED)
    for _ in range(fetches):
        fetch(world)
    asking = world.send(1, api_version=11, body=pack(">iiii", -1, 500, 1, 50_000) + bytes(20))

    with pytest.raises(Violation, match="the quota has no more than") if is_found else nullcontext():
        world.forward(asking)


def test_fetch_at_the_limit_may_ask_for_two_seconds_of_the_quota() -> None:
    world = a_world(PACED)
    world.exchange(1, api_version=11, response=10_000, body=FETCH_BODY)

    world.forward(world.send(1, api_version=11, body=pack(">iiii", -1, 500, 1, 20_000) + bytes(20)))
    world.wait(1_000)


@pytest.mark.parametrize("most_bytes", [0, 10_000])
def test_share_fetch_in_debt_may_ask_for_nothing_only(most_bytes: int) -> None:
    world = a_world(PACED)
    world.exchange(78, api_version=1, response=300_000)

    shared = world.send(78, api_version=1)
    frame = share_fetch.request(shared.correlation_id, 1, "etl", (), max_bytes=most_bytes)
    with pytest.raises(Violation, match="over what the quota has given") if most_bytes else nullcontext():
        world.forward(shared, frame)


def test_a_fetch_in_flight_may_have_asked_for_what_the_limit_of_before_allowed() -> None:
    world = a_world(PACED)
    (check,) = world.ledger.checks

    def ask(connection: int, most_bytes: int) -> None:
        body = pack(">iiii", -1, 500, 1, most_bytes) + bytes(20)
        world.forward(world.send(1, api_version=11, connection=connection, body=body))

    ask(1, 10_000)
    check.rules_changed([{"client-id": "etl", "consumer_byte_rate": RATE / 10}])
    world.wait(2_000)

    ask(2, 1_000)
    with pytest.raises(Violation, match="asks for"):
        repeat(lambda number: ask(3 + number, 1_000), 8, world, every_ms=0)


def test_a_fetch_at_a_broker_that_is_gone_asks_for_nothing() -> None:
    world = a_world(PACED)
    body = pack(">iiii", -1, 500, 1, 20_000) + bytes(20)
    fetches = [world.send(1, api_version=11, connection=connection, body=body) for connection in range(4)]
    gone = SimpleNamespace(is_open=False)

    for fetched in fetches[:2]:
        world.forward(fetched)
        fetched.broker_end = cast(End, gone)

    world.forward(fetches[2])
    with pytest.raises(Violation, match="asks for"):
        world.forward(fetches[3])


def test_a_raised_quota_holds_from_the_change_on() -> None:
    world = a_world(PACED)
    for _ in range(11):
        produce(world)
    (check,) = world.ledger.checks

    check.rules_changed([{"client-id": "etl", "producer_byte_rate": 10 * RATE}])

    for _ in range(100):
        world.wait(10)
        produce(world)


@pytest.mark.parametrize("is_charged", [False, True])
def test_a_raised_quota_gives_all_the_time_since_the_last_charge(*, is_charged: bool) -> None:
    world = a_world(PACED)
    (check,) = world.ledger.checks
    for _ in range(10):
        produce(world)
    world.wait(900)
    lost = world.send(size=104, connection=2)
    world.forward(lost)
    if is_charged:
        world.give(lost, world.answer(lost))
    world.ledger.disconnected("producer-1", 2, by_client=False)
    world.wait(20)

    check.rules_changed([{"client-id": "etl", "producer_byte_rate": 10 * RATE}])

    with pytest.raises(Violation) if is_charged else nullcontext():
        repeat(lambda _: produce(world), 90, world, every_ms=0)


@pytest.mark.parametrize("owed_ms", [500, 5_000])
def test_windows_give_all_at_once_as_soon_as_the_debt_of_before_is_paid(owed_ms: int) -> None:
    world = a_world(PACED)
    (check,) = world.ledger.checks
    world.exchange(size=int(RATE * (1 + owed_ms / 1_000)))

    world.settings = SAMPLED
    check.rules_changed(RULES)
    world.wait(700)
    repeat(lambda _: produce(world), 60, world, every_ms=0)
    world.wait(1_000)

    with pytest.raises(Violation) if owed_ms > 1_000 else nullcontext():
        produce(world)


def test_observed_and_exempt_clients_have_no_bound() -> None:
    world = StandIn(Settings(shaping="paced", exempt=frozenset({"root"})))
    world.watch(QuotaBounds).rules_changed([{**RULES[0], "enforcement": "observe"}, {"user": "root", **RULES[0]}])
    for _ in range(100):
        produce(world)
        world.exchange(size=1_004, entity=Entity("root", "etl", "10.0.2.2"))


EIGHT = [
    ("alice", "etl"), ("alice", "<default>"), ("alice", None), ("<default>", "etl"), ("<default>", "<default>"),
    ("<default>", None), (None, "etl"), (None, "<default>"),
]  # fmt: skip


def rules(entities: list[tuple[str | None, str | None]]) -> Rules:
    quotas: list[Mapping[str, object]] = []
    for rate, (user, client_id) in enumerate(entities, 1):
        quotas.append({"user": user, "client-id": client_id, PRODUCE: rate})
    return Rules(quotas, PRODUCE, SAMPLED)


@pytest.mark.parametrize("first", range(8))
def test_the_first_of_the_eight_levels_wins(first: int) -> None:
    table = rules(EIGHT[first:])

    tags = table.tags(ETL.user, ETL.client_id)
    limit = table.limit(tags)

    assert limit is not None
    assert limit.rate == 1
    assert tags[0] == ("alice" if first < 6 else "")


def test_an_empty_client_id_has_only_the_limits_of_users() -> None:
    assert rules([(None, "<default>")]).limit(("", "")) is None
    table = rules([("<default>", "<default>"), ("<default>", None)])
    limit = table.limit(table.tags("alice", ""))
    assert limit is not None
    assert limit.rate == 2
