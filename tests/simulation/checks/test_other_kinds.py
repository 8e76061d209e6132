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


def test_each_connection_may_begin_one_request_before_it_is_told_to_wait() -> None:
    world = a_world(RequestRates)

    for connection in range(100):
        world.exchange(3, connection=connection)


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
