"""A user with a hundred producers and ten with one request at a time: the queue keeps the hundred from being felt.

What a polite user waits is compared with what he waits without the other, and with what he waits where there is no
queue. A busy machine spoils a measurement now and then, never makes one better than it is: one good one will do.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.closed_loop import Writes
from tests.end_to_end.support.greedy import Outcome, meet
from tests.end_to_end.support.kafka import Kafka

_QUEUES: Final[dict[str, dict[str, Any]]] = {"four at a time": {"max_in_flight": 4}, "adaptive": {}}
_MOST_OF_ALONE: Final = 2.0
_LEAST_OF_WITHOUT: Final = 5.0
_LEAST_THROUGHPUT: Final = 0.95
_TRIES: Final = 3


def _one_is_good(kafka: Kafka, *, seconds: float, kind: Writes) -> None:
    """Let them meet until each queue was good once."""
    topic = create_topic(kafka)
    meet(kafka, topic, None, seconds=3, kind=kind)  # until the broker's Java code is compiled
    left, seen = dict(_QUEUES), []
    for _ in range(_TRIES):
        alone = meet(kafka, topic, None, seconds=seconds, kind=kind, is_greedy_there=False)
        without = meet(kafka, topic, None, seconds=seconds, kind=kind)
        seen += [f"alone: {alone}", f"without: {without}"]
        for name, queue in tuple(left.items()):
            having = meet(kafka, topic, queue, seconds=seconds, kind=kind)
            seen.append(f"{name}: {having}")
            if _is_good(having, alone, without):
                del left[name]
        if not left:
            return
    raise AssertionError("\n".join(seen))


def _is_good(having: Outcome, alone: Outcome, without: Outcome) -> bool:
    return (
        having.p99_ms <= _MOST_OF_ALONE * alone.p99_ms
        and having.p99_ms * _LEAST_OF_WITHOUT <= without.p99_ms
        and having.per_second >= _LEAST_THROUGHPUT * without.per_second
    )


@pytest.mark.parametrize("seconds", [6, pytest.param(30, marks=pytest.mark.long)])
def test_polite_users_hardly_feel_a_greedy_one(slow_kafka: Kafka, seconds: float) -> None:
    _one_is_good(slow_kafka, seconds=seconds, kind=Writes())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nor_where_it_is_work_that_the_broker_is_busy_with() -> None:
    with Kafka(KAFKA_4, config={"num.io.threads": 1}) as kafka:
        _one_is_good(kafka, seconds=30, kind=Writes(record_bytes=5_000_000))
