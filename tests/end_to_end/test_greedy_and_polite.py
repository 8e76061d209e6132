"""A user with a hundred producers and ten with one request at a time: the queue keeps the hundred from being felt.

What a polite user waits is compared with what he waits without the other, and with what he waits where there is no
queue. A busy machine spoils a measurement now and then, never makes one better than it is: one good one will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.greedy import Outcome, meet, slow_kafka
from tests.end_to_end.support.kafka import Kafka

_QUEUES: Final[dict[str, dict[str, Any]]] = {"four at a time": {"max_in_flight": 4}, "adaptive": {}}
_MOST_OF_ALONE: Final = 2.0
_LEAST_OF_WITHOUT: Final = 5.0
_LEAST_THROUGHPUT: Final = 0.95
_TRIES: Final = 3


class Verdict(NamedTuple):
    """How a queue did: polite latencies with it, as parts of others; and what all together got done."""

    of_alone: float
    better_than_without: float
    throughput: float

    @property
    def is_good(self) -> bool:
        return (
            self.of_alone <= _MOST_OF_ALONE
            and self.better_than_without >= _LEAST_OF_WITHOUT
            and self.throughput >= _LEAST_THROUGHPUT
        )


@pytest.fixture(scope="module")
def slow() -> Iterator[Kafka]:
    with slow_kafka() as kafka:
        yield kafka


def _compare(kafka: Kafka, topic: str, *, seconds: float, record_bytes: int = 100) -> dict[str, Verdict]:
    def at(queue: dict[str, Any] | None, **others: Any) -> Outcome:
        outcome = meet(kafka, topic, queue, seconds=seconds, record_bytes=record_bytes, **others)
        print(queue, others, outcome)
        return outcome

    alone, without = at(None, is_greedy_there=False), at(None)
    return {
        name: Verdict(
            having.p99_ms / alone.p99_ms, without.p99_ms / having.p99_ms, having.per_second / without.per_second
        )
        for name, having in ((name, at(queue)) for name, queue in _QUEUES.items())
    }


def _one_is_good(kafka: Kafka, *, seconds: float, record_bytes: int = 100) -> None:
    topic = create_topic(kafka)
    meet(kafka, topic, None, seconds=3, record_bytes=record_bytes)  # until the broker's Java code is compiled
    left, seen = set(_QUEUES), []
    for _ in range(_TRIES):
        verdicts = _compare(kafka, topic, seconds=seconds, record_bytes=record_bytes)
        left -= {name for name, verdict in verdicts.items() if verdict.is_good}
        if not left:
            return
        seen.append(verdicts)
    raise AssertionError(f"{left}: {seen}")


@pytest.mark.parametrize("seconds", [7, pytest.param(30, marks=pytest.mark.long)])
def test_polite_users_hardly_feel_a_greedy_one(slow: Kafka, seconds: float) -> None:
    _one_is_good(slow, seconds=seconds)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nor_where_it_is_work_that_the_broker_is_busy_with() -> None:
    with Kafka(KAFKA_4, config={"num.io.threads": 1}) as kafka:
        _one_is_good(kafka, seconds=30, record_bytes=5_000_000)
