"""Tests that what waits without a reason is found: for the proxy, for a bucket, for a dial, and in the queue."""

from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.dials import Dials
from tests.simulation.checks.held_back import HeldBack
from tests.simulation.checks.levels import Levels
from tests.simulation.checks.liveness import Liveness
from tests.simulation.checks.slots import Slots
from tests.simulation.checks.support import ETL, StandIn, found
from tests.simulation.ledger import Exchange

RULES = [{"client-id": "etl", "producer_byte_rate": 10_000, "consumer_byte_rate": 10_000}]
FETCH: dict[str, Any] = {"api_version": 11, "body": pack(">iiii", -1, 60_000, 1, 1_000) + bytes(19)}
FREE = "is not forwarded"


# -- liveness --


def disturbed(kind: str, ms: float, *, is_new: bool = False) -> StandIn:
    """Return a world some time after a fault, perhaps with a connection of after it."""
    world = StandIn(Liveness)
    world.scenario.fired[kind] = 1
    world.wait(1_000)  # so that the fault is noticed
    world.wait(ms)
    if is_new:
        world.ledger.connected("producer-1", 1, ETL)
    return world


@pytest.mark.parametrize(
    "world",
    [
        StandIn(Liveness),
        StandIn(Liveness, has_queue=True),
        disturbed("broker crash", 71_000),
        disturbed("connection cut", 1, is_new=True),
    ],
)
def test_a_request_that_is_never_forwarded_is_found(world: StandIn) -> None:
    world.send()
    world.wait(14_000)
    with found(FREE):
        world.wait(2_000)


def test_a_response_that_is_never_passed_is_found() -> None:
    world = StandIn(Liveness)
    exchange = world.send()
    world.forward(exchange)
    world.wait(20_000)
    world.answer(exchange)
    with found("answered by its broker"):
        world.wait(1_000)


def test_a_request_is_judged_soon_after_the_last_fault_of_a_world() -> None:
    world = StandIn(Liveness)
    world.scenario.fired["tiny windows"] = 1
    world.send()
    world.wait(200_000)
    world.check.faults_ended()
    world.wait(70_000)
    with found(FREE):
        world.wait(2_000)


# -- held back --


def served(rules: Any = RULES, *connections: int) -> StandIn:
    """Return a world in which some connections had a request forwarded, so that their broker is dialled."""
    world = StandIn(HeldBack, rules)
    for connection in connections or (1,):
        world.exchange(18, connection=connection)
    return world


@pytest.mark.parametrize("rules", [RULES, []])
def test_a_request_whose_bucket_is_free_is_found(rules: Any) -> None:
    world = served(rules)
    world.send()
    with found(FREE):
        world.wait(7_500)


def test_a_response_that_has_arrived_is_found() -> None:
    world = served()
    exchange = world.send()
    world.forward(exchange)
    world.answer(exchange)
    with found("is answered by its broker, and not here"):
        world.wait(7_500)


@pytest.mark.parametrize(("throttle_ms", "waits_ms"), [(10_000, 13_000), (None, 28_000)])
def test_a_request_waits_for_the_throttle_time_or_the_broker_of_another(throttle_ms: int, waits_ms: float) -> None:
    world = served()
    other = world.send(connection=2)
    world.forward(other)
    if throttle_ms:
        world.give(other, world.answer(other), throttle_ms=throttle_ms)
    world.send()
    world.wait(waits_ms)
    with found(FREE):
        world.wait(2_000)


def test_a_request_waits_for_none_whose_client_sends_nothing() -> None:
    world = served(RULES, 1, 3)
    begun = world.send(size=200_000)
    world.begin(begun)
    begun.sent_bytes = begun.forwarded_bytes = 40
    world.send(connection=3)
    with found(FREE):
        world.wait(7_500)


def test_a_request_waits_for_the_rest_of_one_whose_client_has_gone() -> None:
    world = served(RULES, 1, 3)
    begun = world.send(size=200_000)
    world.begin(begun)
    world.leave()
    world.send(connection=3)
    world.wait(60_000)
    begun.client_end.peer.is_open = False  # type: ignore[union-attr]
    world.wait(20_000)  # the proxy has charged it
    with found(FREE):
        world.wait(10_000)


@pytest.mark.parametrize(("is_shared", "waits_ms"), [(True, 8_000), (False, 3_500)])
def test_consumers_who_share_a_limit_wait_until_half_a_window_is_paid(is_shared: bool, waits_ms: float) -> None:
    world = served()
    if is_shared:
        world.exchange(1, connection=2, **FETCH)
    # It owes ten seconds, and half a window has five.
    world.exchange(1, response=100_000, throttle_ms=500, **FETCH)
    world.send(1, **FETCH)
    world.wait(waits_ms)
    with found(FREE):
        world.wait(1_500)


@pytest.mark.parametrize(("rate", "waits_ms"), [(2_500, 395_000), (10_000, 118_000)])
def test_a_debt_is_paid_at_the_rate_of_a_later_limit(rate: int, waits_ms: float) -> None:
    world = served()
    # The client owes 100 s, and no response has told it so.
    world.forward(world.send(connection=2, size=1_000_000, expects_response=False))
    world.rules_changed([{**RULES[0], "producer_byte_rate": rate}])
    world.send()
    world.wait(waits_ms)
    with found(FREE):
        world.wait(10_000)


def overtake(world: StandIn, connection: int) -> None:
    for _ in range(3):
        world.forward(world.send(connection=connection))
        world.wait(2)


def test_a_connection_that_is_served_again_and_again_is_found() -> None:
    world = served(RULES, 1, 3)
    world.forward(world.send(connection=2))  # so that the bucket is busy
    world.send()
    world.wait(1_000)
    with found("number 3 of its connection while"):
        overtake(world, 3)


@pytest.mark.parametrize("has_left", [False, True])
def test_a_client_that_gets_no_response_is_muted_for_its_debt_and_the_line(has_left: bool) -> None:
    world = served()
    world.send(connection=2)
    if has_left:
        world.leave(2)
    # It owes 2 s, and 2 s for the other connection.
    world.forward(world.send(size=20_000, expects_response=False))
    world.send()
    other = 3 if has_left else 2
    world.wait(3_500)
    overtake(world, other)
    world.wait(1_000)
    with found("number 3 of its connection while"):
        overtake(world, other)


# -- dials --


def dialling(*, is_cluster: bool = False) -> StandIn:
    world = StandIn(Dials)
    broker = SimpleNamespace(is_up=True, is_stalled=False, host="10.0.1.1", hosts=("10.0.1.1", "10.0.4.1"))
    world.cluster.brokers = {1: broker}
    world.scenario.setup.is_cluster = is_cluster
    world.scenario.proxy.process.has_no_descriptor = lambda: False
    world.scenario.proxy.server = SimpleNamespace(is_listening=True)
    world.wait(12_000)
    return world


@pytest.mark.parametrize(
    ("lost_host", "is_cluster", "waits_ms"),
    [("10.0.1.1", False, 15_500), ("10.0.4.1", False, 15_500), ("10.0.1.2", False, 6_000), ("10.0.1.2", True, 15_500)],
)
def test_a_request_whose_broker_is_not_dialled_is_found(lost_host: str, is_cluster: bool, waits_ms: float) -> None:
    world = dialling(is_cluster=is_cluster)
    world.send(18)
    world.network.lost_dials.append((world.clock.now_ms, lost_host))
    world.wait(waits_ms)
    with found("broker 1 could be dialled"):
        world.wait(2_000)


def test_a_wait_counts_from_when_the_broker_is_there() -> None:
    world = dialling()
    world.network.unreachable["10.0.1.1"] = None
    world.send(18)
    world.wait(20_000)
    world.network.unreachable.clear()
    world.wait(6_000)
    with found("broker 1 could be dialled"):
        world.wait(1_000)


# -- the fair call queue --


def queued(most: int = 1, **names: bool) -> StandIn:
    world = StandIn(Slots, has_queue=True, max_in_flight=most, hides_addresses=False)
    world.scenario.setup.has_second_names = bool(names)
    world.scenario.broker_names = SimpleNamespace(**names, look=lambda: None)
    for connection in (1, 2):
        world.exchange(connection=connection)
    return world


@pytest.mark.parametrize(
    ("world", "most"), [(queued(), 1), (queued(2), 2), (queued(may_be_two=False), 1), (queued(may_be_two=True), 2)]
)
def test_one_request_more_than_may_be_at_the_broker_is_found(world: StandIn, most: int) -> None:
    world.forward(world.send(connection=1))
    for connection in range(1, most + 1):
        world.forward(world.send(connection=connection))
    with found(f"{most + 1} connections have requests"):
        world.forward(world.send(connection=most + 1))


@pytest.mark.parametrize("has_fetch", [False, True])
def test_a_request_that_waits_beside_a_free_slot_is_found(has_fetch: bool) -> None:
    world = queued()
    if has_fetch:  # it waits for data, and uses no slot
        world.forward(world.send(1, connection=2))
    world.send()
    with found("has a free slot"):
        world.wait(3_000)


def test_a_request_that_all_others_overtake_is_found() -> None:
    world = queued()
    other = world.send(connection=2)
    world.forward(other)
    world.send()
    world.wait(30_000)  # all slots are used

    def take_turns(other: Exchange) -> None:
        for number in range(100):
            world.give(other, world.answer(other))
            other = world.send(connection=3 + number, entity=ETL._replace(user="bob"))
            world.forward(other)
            world.wait(300)

    with found("that came later"):
        take_turns(other)


def pass_through(world: StandIn, user: str, *, waits_ms: float = 0) -> None:
    exchange = world.send(connection=len(user), entity=ETL._replace(user=user))
    world.wait(waits_ms)
    world.forward(exchange)
    world.wait(50)
    world.give(exchange, world.answer(exchange))


@pytest.mark.parametrize(("of_alice", "of_bob"), [(30, 5), (20, 20)])
def test_the_heaviest_user_with_too_many_turns_is_found(of_alice: int, of_bob: int) -> None:
    """Nobody is the heaviest if two have had as many requests before their costs were halved."""
    world = StandIn(Levels, has_queue=True, max_in_flight=1, queues_users=True, hides_addresses=False)
    world.ledger.proxy_started(1)
    for user in ["alice"] * of_alice + ["bob"] * of_bob:
        pass_through(world, user)
    world.wait(6_500 - 50 * (of_alice + of_bob))

    def let_alice_pass() -> None:
        world.send(connection=3, entity=ETL._replace(user="bob"))
        for _ in range(8):
            pass_through(world, "alice", waits_ms=50)

    if of_alice == of_bob:
        let_alice_pass()
        return
    for _ in range(20):
        pass_through(world, "alice")  # alone
    with found("alice, who has most of the costs, is forwarded while others wait"):
        let_alice_pass()
