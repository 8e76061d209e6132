"""Nothing acknowledged is lost, changed or doubled, and its order is kept.

The producers' own records are compared with the logs of the brokers, and so is what consumers have read. What a crash
of a broker, a new leader or the deletion of a topic has taken away is excused by the cluster's own record.
"""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tests.simulation.checks.check import Check

if TYPE_CHECKING:
    from tests.simulation.world import World

Place = tuple[str, int]


class _Known(NamedTuple):
    """What all logs of one partition hold, also those of deleted topics of its name."""

    tokens: list[str]
    places: dict[str, int]
    by_offset: dict[int, set[str]]
    is_whole: bool


class Durability(Check):
    """Compares everything at the end."""

    name: ClassVar[str] = "durability"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._logs: dict[Place, _Known] = {}
        self._lost: set[tuple[str, int, str]] = set()

    def end(self) -> None:
        """Compare producers, logs and consumers."""
        cluster = self.world.scenario.cluster
        self._lost = {(lost.topic, lost.partition, lost.token) for lost in cluster.lost}
        self._logs = _logs_of(cluster)
        for name, actor in self.world.scenario.actors.items():
            if hasattr(actor, "acknowledged"):
                self._judge_producer(name, actor)
            elif hasattr(actor, "positions") and hasattr(actor, "read"):
                self._judge_consumer(name, actor)

    def _judge_producer(self, name: str, producer: Any) -> None:
        for topic, partition, offset, token in producer.acknowledged:
            where = (topic, partition)
            if (*where, token) in self._lost:
                continue
            known = self._logs.get(where)
            if known is None or token not in known.places:
                if known is None or known.is_whole:
                    self.world.fail(self.name, f"{token} of {name} is acknowledged, and not in {topic}-{partition}")
                continue
            if offset >= 0 and token not in known.by_offset.get(offset, ()):
                text = f"{token} of {name} was acknowledged at {topic}-{partition}@{offset}, where there is "
                self.world.fail(self.name, text + f"{sorted(known.by_offset.get(offset, ()))}")
        if producer.is_idempotent:
            for (topic, partition), known in self._logs.items():
                self._judge_order(name, producer, f"{topic}-{partition}", known)

    def _judge_order(self, name: str, producer: Any, where: str, known: _Known) -> None:
        """An idempotent producer's batches are there once and in the order in which it made them."""
        if not known.is_whole:
            return
        own = [token for token in known.tokens if token.rpartition("-")[0] == name]
        once = [token for token in own if token not in producer.may_repeat]
        if len(set(once)) != len(once):
            twice = next(token for token in once if once.count(token) > 1)
            self.world.fail(self.name, f"{twice} is in {where} twice, and its producer is idempotent")
        if producer.may_repeat or producer.failed:
            return
        numbers = [int(token.rpartition("-")[2]) for token in own]
        for before, after in itertools.pairwise(numbers):
            if after <= before:
                self.world.fail(self.name, f"{name}-{after} is behind {name}-{before} in {where}")

    def _judge_consumer(self, name: str, consumer: Any) -> None:
        last: dict[Place, int] = {}
        for topic, partition, offset, token in consumer.read:
            where = (topic, partition)
            known = self._logs.get(where)
            is_lost = (*where, token) in self._lost
            if not is_lost and (known is None or token not in known.by_offset.get(offset, ())):
                there = sorted(known.by_offset.get(offset, ())) if known is not None else []
                if known is None or known.is_whole:
                    text = f"{name} has read {token} at {topic}-{partition}@{offset}, where there is {there}"
                    self.world.fail(self.name, text)
            if known is None or not known.is_whole or any(where == (topic, index) for topic, index, _ in self._lost):
                continue
            if where in last:
                between = [at for at in known.by_offset if last[where] < at < offset]
                if offset <= last[where] or between:
                    text = f"{name} has read {topic}-{partition}@{offset} right after {last[where]}"
                    self.world.fail(self.name, text)
            last[where] = offset


def _logs_of(cluster: Any) -> dict[Place, _Known]:
    """Return what the partitions of each name hold. If a topic was deleted, there is more than one log of it."""
    found: dict[Place, _Known] = {}
    for topic, is_whole in _topics(cluster):
        for partition in topic.partitions:
            where = (topic.name, partition.index)
            known = found.get(where)
            if known is None:
                known = found[where] = _Known([], {}, {}, is_whole)
            elif known.is_whole:
                known = found[where] = known._replace(is_whole=False)
            for batch in partition.log.batches:
                known.tokens.append(batch.token)
                known.places[batch.token] = batch.base_offset
                known.by_offset.setdefault(batch.base_offset, set()).add(batch.token)
    return found


def _topics(cluster: Any) -> Iterator[tuple[Any, bool]]:
    for topic in cluster.topics.values():
        yield topic, True
    for topic in cluster.deleted:
        yield topic, False
