"""Tests that a change of topics is refused, and its client told to wait, only without room."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.checks.topic_room import TopicRoom
from tests.simulation.ledger import Exchange
from tests.simulation.violation import Violation
from tests.simulation.wire import create_topics

CREATE_TOPICS = 19
VERSION = 7
TOPIC = "topic-1"
REFUSED = 89
EXISTS = 36
BURST = 22


def a_world() -> StandIn:
    world = StandIn(Settings())
    world.watch(TopicRoom).rules_changed([{"client-id": "etl", "controller_mutation_rate": 2}])
    return world


def ask(world: StandIn, partitions: int, connection: int = 1) -> Exchange:
    detail = SimpleNamespace(topic=TOPIC, partitions=partitions)
    return world.send(CREATE_TOPICS, api_version=VERSION, detail=detail, connection=connection)


def answer(world: StandIn, change: Exchange, error: int = 0, *, throttle_ms: int = 0, by_broker: bool = True) -> None:
    rows = [create_topics.CreatedTopic(TOPIC, error)]
    frame = create_topics.response(change.correlation_id, VERSION, rows, throttle_ms=throttle_ms)
    if by_broker:
        world.answer(change, frame=create_topics.response(change.correlation_id, VERSION, rows))
    world.give(change, frame, throttle_ms=throttle_ms)


def create(world: StandIn, partitions: int, error: int = 0, *, throttle_ms: int = 0) -> None:
    change = ask(world, partitions)
    world.forward(change)
    answer(world, change, error, throttle_ms=throttle_ms)


def refuse(world: StandIn) -> None:
    answer(world, ask(world, 1), REFUSED, throttle_ms=500, by_broker=False)


def test_a_change_is_refused_while_those_of_before_are_owed() -> None:
    world = a_world()

    create(world, BURST + 1)
    refuse(world)


def test_a_refusal_with_room_is_found() -> None:
    world = a_world()

    create(world, BURST - 1)

    with pytest.raises(Violation, match="and it is refused"):
        refuse(world)


def test_what_the_broker_has_refused_is_not_owed() -> None:
    world = a_world()

    create(world, BURST + 1, EXISTS)

    with pytest.raises(Violation, match="and it is refused"):
        refuse(world)


def test_what_may_be_on_its_way_is_owed() -> None:
    world = a_world()

    ask(world, BURST + 1, connection=2)
    refuse(world)


def test_what_was_never_sent_is_not_owed_once_its_client_has_gone() -> None:
    world = a_world()

    ask(world, BURST + 1, connection=2)
    world.ledger.disconnected("producer-1", 2, by_client=True)
    world.wait(2_000)

    with pytest.raises(Violation, match="and it is refused"):
        refuse(world)


def test_a_client_waits_for_what_it_owes() -> None:
    world = a_world()

    create(world, BURST + 4, throttle_ms=2_000)


def test_a_client_that_waits_for_more_is_found() -> None:
    world = a_world()

    with pytest.raises(Violation, match="told to wait for 2100 ms"):
        create(world, BURST + 4, throttle_ms=2_100)


def test_a_change_that_is_refused_late_gives_no_room() -> None:
    world = a_world()
    late = ask(world, BURST, connection=2)
    world.forward(late)
    world.wait(11_000)

    create(world, BURST + 1)
    answer(world, late, EXISTS)

    refuse(world)


@pytest.mark.parametrize("has_answer", [False, True])
def test_a_change_of_a_client_that_has_gone_is_owed_until_its_answer(*, has_answer: bool) -> None:
    world = a_world()
    change = ask(world, BURST + 1, connection=2)
    world.forward(change)
    end = SimpleNamespace(is_open=True)
    change.broker_end = end  # type: ignore[assignment] # it stands in for the proxy's end

    world.ledger.disconnected("producer-1", 2, by_client=True)
    world.wait(60_000)
    if has_answer:
        end.is_open = False
        world.wait(500)
        refuse(world)
        world.wait(1_000)
        with pytest.raises(Violation, match="and it is refused"):
            refuse(world)
    else:
        refuse(world)
