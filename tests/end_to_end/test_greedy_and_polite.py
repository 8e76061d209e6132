"""The queue protects ten users with one request at a time from one user with a hundred producers.

Medians are compared, because other load of the machine makes some requests late.
"""

from __future__ import annotations

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.closed_loop import Writes
from tests.end_to_end.support.greedy import meet
from tests.end_to_end.support.kafka import Kafka


def _check(kafka: Kafka, *, seconds: float, kind: Writes, least_throughput: float) -> None:
    topic = create_topic(kafka)
    meet(kafka, topic, None, seconds=3, kind=kind)  # until the broker's Java code is compiled
    alone = meet(kafka, topic, None, seconds=seconds, kind=kind, is_greedy_there=False)
    without = meet(kafka, topic, None, seconds=seconds, kind=kind)
    having = meet(kafka, topic, {}, seconds=seconds, kind=kind)

    seen = f"alone: {alone}, without: {without}, having: {having}"
    assert having.median_ms <= 2 * alone.median_ms, seen
    assert having.median_ms <= without.median_ms / 3, seen
    assert having.per_second >= least_throughput * without.per_second, seen


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_polite_users_are_hardly_slowed_by_a_greedy_one(slow_kafka: Kafka, seconds: float) -> None:
    _check(slow_kafka, seconds=seconds, kind=Writes(), least_throughput=0.8)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_polite_users_are_hardly_slowed_when_the_broker_is_busy_with_work() -> None:
    with Kafka(KAFKA_4, config={"num.io.threads": 1}) as kafka:
        _check(kafka, seconds=30, kind=Writes(record_bytes=5_000_000), least_throughput=0.7)
