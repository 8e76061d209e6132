"""Tests that requests and topic changes are judged by their quotas."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.simulation.checks.check import Check
from tests.simulation.checks.request_rates import RequestRates
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.checks.topic_changes import TopicChanges
from tests.simulation.ledger import Exchange
from tests.simulation.violation import Violation
from tests.simulation.wire import create_partitions, create_topics

HEARTBEAT = 12
CREATE_TOPICS = 19
CREATE_PARTITIONS = 37
EXISTS = 36
INVALID_PARTITIONS = 37
SHAPINGS = pytest.mark.parametrize("shaping", ["paced", "sampled"])


def a_world(check: type[Check], shaping: str = "paced") -> StandIn:
    world = StandIn(Settings(shaping=shaping))
    world.watch(check).rules_changed([{"client-id": "etl", "request_rate": 10, "controller_mutation_rate": 2}])
    return world


def ask(world: StandIn) -> None:
    world.exchange(3)


def create(world: StandIn, *, is_done: bool = True) -> None:
    name = f"topic-{len(world.cluster.topics)}"
    change = world.send(CREATE_TOPICS, detail=SimpleNamespace(topic=name, partitions=1))
    world.forward(change)
    if is_done:
        world.cluster.topics[name] = SimpleNamespace(partitions=[0])
    rows = [create_topics.CreatedTopic(name, 0 if is_done else EXISTS)]
    frame = create_topics.response(change.correlation_id, change.api_version, rows)
    world.give(change, world.answer(change, frame=frame))


ROLES = [(RequestRates, ask, 100.0), (TopicChanges, create, 500.0)]


@SHAPINGS
@pytest.mark.parametrize(("check", "step", "every_ms"), ROLES)
def test_requests_at_the_rate_of_their_quota_pass(
    check: type[Check], step: Callable[[StandIn], None], every_ms: float, shaping: str
) -> None:
    world = a_world(check, shaping)

    for _ in range(300):
        step(world)
        world.wait(every_ms)


@SHAPINGS
@pytest.mark.parametrize(("check", "step", "every_ms"), ROLES)
def test_requests_at_13_tenths_of_their_quota_are_found(
    check: type[Check], step: Callable[[StandIn], None], every_ms: float, shaping: str
) -> None:
    world = a_world(check, shaping)

    def run() -> None:
        for _ in range(1_000):
            step(world)
            world.wait(every_ms / 1.3)

    with pytest.raises(Violation, match="begins"):
        run()


def with_connections(number: int) -> StandIn:
    """Return a world whose connections have each had a request, for which the broker was dialled."""
    world = a_world(RequestRates)
    for connection in range(number):
        world.exchange(3, connection=connection)
        world.wait(100)
    world.wait(5_000)
    return world


def test_all_connections_share_the_rate() -> None:
    world = with_connections(20)
    for connection in range(12):  # a burst of 10, and what rounding may be worth
        world.exchange(3, connection=connection)

    world.exchange(3, connection=12)
    with pytest.raises(Violation, match="requests over"):
        world.exchange(3, connection=13)


def test_requests_that_waited_for_a_dial_are_worth_that_time_once() -> None:
    world = with_connections(1)
    waiting = [world.send(3, connection=connection) for connection in range(100, 140)]
    world.wait(2_000)
    for request in waiting:  # 20 for the two seconds, and 10 for the burst
        world.forward(request)
        world.give(request, world.answer(request))

    world.wait(700)
    with pytest.raises(Violation, match=r"requests over"):
        world.exchange(3, connection=0)


@pytest.mark.parametrize(("fault", "owes"), [("file broken", True), ("broker crash", False)])
def test_requests_of_clients_that_have_left_count_if_no_fault_keeps_them_back(fault: str, owes: bool) -> None:
    world = with_connections(20)
    world.scenario.fired[fault] = 1
    for connection in range(12):
        world.forward(world.send(3, connection=connection))
        world.ledger.disconnected("producer-1", connection, by_client=True)
    world.exchange(3, connection=13)

    if owes:
        with pytest.raises(Violation, match="requests over"):
            world.exchange(3, connection=14)
    else:
        world.exchange(3, connection=14)


@pytest.mark.parametrize(("waited_ms", "may_pass"), [(5_000, True), (200, False)])
def test_members_of_groups_wait_for_five_seconds_at_most(waited_ms: float, may_pass: bool) -> None:
    world = with_connections(20)
    for connection in range(13):
        world.exchange(3, connection=connection)
    heartbeat = world.send(HEARTBEAT, connection=13)
    for _ in range(round(waited_ms / 100)):
        world.wait(100)
        world.exchange(3, connection=14)

    if may_pass:
        world.forward(heartbeat)
    else:
        with pytest.raises(Violation, match="requests over"):
            world.forward(heartbeat)


def test_rules_of_others_forgive_nothing() -> None:
    world = with_connections(20)
    for connection in range(13):
        world.exchange(3, connection=connection)
    check = world.ledger.checks[-1]
    check.rules_changed([{"client-id": "etl", "request_rate": 10}, {"client-id": "web", "request_rate": 1}])
    for connection in range(30):
        world.exchange(3, connection=connection % 20)  # nobody knows yet under which rules
    world.wait(1_000)
    for connection in range(10):
        world.exchange(3, connection=connection)

    with pytest.raises(Violation, match="requests over"):
        world.exchange(3, connection=11)


def test_changes_that_the_broker_refused_are_free() -> None:
    world = a_world(TopicChanges)

    for _ in range(1_000):
        create(world, is_done=False)


def grow(world: StandIn, partitions: int, *, version: int = 3, connection: int = 1) -> Exchange:
    detail = SimpleNamespace(topic="topic", partitions=partitions)
    return world.send(CREATE_PARTITIONS, api_version=version, connection=connection, detail=detail)


def grow_twice(world: StandIn, partitions: int, second_error: int) -> None:
    """Let two connections send the same request at once, as a client does that has given up the first."""
    world.cluster.topics["topic"] = topic = SimpleNamespace(partitions=[0])
    both = [grow(world, partitions, connection=connection) for connection in (1, 2)]
    for change in both:
        world.forward(change)
    topic.partitions = [*range(partitions)]
    for change, error in zip(both, (0, second_error), strict=True):
        frame = create_partitions.response(
            change.correlation_id, change.api_version, [create_partitions.Result("topic", error)]
        )
        world.give(change, world.answer(change, frame=frame))


def test_partitions_that_two_requests_want_to_add_count_once() -> None:
    world = a_world(TopicChanges)

    grow_twice(world, 23, INVALID_PARTITIONS)
    create(world)


def test_partitions_that_two_requests_have_added_count_twice() -> None:
    world = a_world(TopicChanges)

    grow_twice(world, 23, 0)
    with pytest.raises(Violation, match="partitions over"):
        create(world)


@pytest.mark.parametrize(("version", "wants"), [(3, 24), (2, 23)])
def test_a_change_that_changes_something_or_that_cannot_be_refused_waits_for_the_debt(version: int, wants: int) -> None:
    world = a_world(TopicChanges)
    grow_twice(world, 23, 0)

    with pytest.raises(Violation, match="partitions over"):
        world.forward(grow(world, wants, version=version))


def test_a_change_that_changes_nothing_does_not_wait_for_the_debt() -> None:
    world = a_world(TopicChanges)
    grow_twice(world, 23, 0)

    world.forward(grow(world, 23))
