"""Tests that a batch that is lost, doubled, moved or skipped is found."""

from types import SimpleNamespace

import pytest

from tests.simulation.checks.durability import Durability
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation

NAME = "producer-1"


def topic(*tokens: str) -> SimpleNamespace:
    batches = [SimpleNamespace(token=token, base_offset=at) for at, token in enumerate(tokens)]
    return SimpleNamespace(name="t", partitions=[SimpleNamespace(index=0, log=SimpleNamespace(batches=batches))])


def producer(*acknowledged: tuple[int, str], is_idempotent: bool = True) -> SimpleNamespace:
    records = [("t", 0, offset, token) for offset, token in acknowledged]
    return SimpleNamespace(acknowledged=records, is_idempotent=is_idempotent, may_repeat=set(), failed=[])


def consumer(*read: tuple[int, str]) -> SimpleNamespace:
    return SimpleNamespace(read=[("t", 0, offset, token) for offset, token in read], positions={})


def judge(log: SimpleNamespace, **actors: SimpleNamespace) -> StandIn:
    world = StandIn()
    world.cluster.topics = {"t": log}
    world.scenario.actors = {NAME: actors["actor"]}
    world.watch(Durability).end()
    return world


def test_what_is_acknowledged_and_read_is_there() -> None:
    judge(topic("producer-1-1", "producer-1-2"), actor=producer((0, "producer-1-1"), (1, "producer-1-2")))
    judge(topic("producer-1-1", "producer-1-2"), actor=consumer((0, "producer-1-1"), (1, "producer-1-2")))


@pytest.mark.parametrize(
    ("log", "actor", "what"),
    [
        (topic("producer-1-1"), producer((1, "producer-1-2")), "not in t-0"),
        (topic("producer-1-1"), producer((1, "producer-1-1")), "was acknowledged at"),
        (topic("producer-1-1", "producer-1-1"), producer((0, "producer-1-1")), "twice"),
        (topic("producer-1-2", "producer-1-1"), producer((0, "producer-1-2")), "is behind"),
        (topic("producer-1-1"), consumer((0, "producer-1-2")), "where there is"),
        (topic("a-1", "a-2", "a-3"), consumer((0, "a-1"), (2, "a-3")), "right after 0"),
        (topic("a-1", "a-2"), consumer((1, "a-2"), (0, "a-1")), "right after 1"),
    ],
)
def test_what_differs_is_found(log: SimpleNamespace, actor: SimpleNamespace, what: str) -> None:
    with pytest.raises(Violation, match=what):
        judge(log, actor=actor)


def test_what_a_crash_has_lost_is_excused() -> None:
    world = StandIn()
    world.cluster.topics = {"t": topic()}
    world.cluster.lost = [SimpleNamespace(topic="t", partition=0, token="producer-1-1")]  # noqa: S106
    world.scenario.actors = {NAME: producer((0, "producer-1-1"))}
    world.watch(Durability).end()


def test_only_an_idempotent_producer_may_not_repeat() -> None:
    log = topic("producer-1-1", "producer-1-1")
    judge(log, actor=producer((1, "producer-1-1"), is_idempotent=False))
