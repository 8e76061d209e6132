"""A quota holds for any number of connections that send without a pause, sampled and paced, as in Kafka.

A share is the bytes that passed over those that the quota allows, without the initial burst.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.crowds import (
    BATCH_BYTES,
    CONSUMERS,
    KIB,
    MIB,
    MOST_BYTES,
    PRODUCERS,
    Crowd,
    Outcome,
    Topic,
    flood,
    topic_to_read,
    topic_to_write,
)
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.shares import Fairness, Shares, fairness, shares

_QUOTA: Final = 256 * KIB
_KEYS: Final = {CONSUMERS: "consumer_byte_rate", PRODUCERS: "producer_byte_rate"}
_SHAPES: Final = ("sampled", "paced")
_KAFKAS_OWN: Final = "Kafka's own"
_ROWS: Final = (*_SHAPES, _KAFKAS_OWN)
_FIRST_WINDOW_S: Final = 15
# The shortest default timeout of clients, Kafka's request.timeout.ms.
_MOST_WAIT_S: Final = 30.0
# With that many producers, a request waits for 7.5 s, because each of the others has a request in flight.
_MOST_PRODUCERS_IN_TIME: Final = 120


class Cell(NamedTuple):
    """The results of one flood."""

    outcome: Outcome
    shares: Shares
    fairness: Fairness | None

    def __str__(self) -> str:
        seen, fair = self.outcome, self.fairness
        least = "each had too few turns" if fair is None else f"least/mean {fair.least:.2f}, most/mean {fair.most:.2f}"
        return (
            f"share {self.shares}; {least}; {len(seen.answers)} answers, {seen.empty} of them empty; "
            f"longest wait {seen.longest_s:.1f} s; errors {dict(seen.errors)}, closed {seen.closed}"
        )


class Bounds(NamedTuple):
    """The highest and the lowest allowed share of a window, and the allowed excess over Kafka's own.

    ``highest`` is by role and shape. ``least`` is the lowest allowed share of a connection, relative to the mean.
    """

    highest: dict[tuple[str, str], float]
    lowest: float
    over_kafkas_own: float
    least: float


_OF_ANY_MINUTE: Final = Bounds(
    highest={(CONSUMERS, "sampled"): 1.12, (CONSUMERS, "paced"): 1.05, (PRODUCERS, "paced"): 1.02},
    lowest=0.9,
    # In a minute at 256 KiB/s, two batches are a share of 0.002. Two floods in bursts differ by more.
    over_kafkas_own=0.03,
    least=0.5,
)
# In two cycles of 11 s, a burst just inside or outside the window weighs more than in a minute.
_OF_TWO_CYCLES: Final = Bounds(
    highest={(CONSUMERS, "sampled"): 1.25, (CONSUMERS, "paced"): 1.10, (PRODUCERS, "paced"): 1.05},
    lowest=0.8,
    over_kafkas_own=0.06,
    least=0.0,  # two bursts are too few for the share of a connection
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker with a proxied listener for each shape."""
    with Kafka(KAFKA_4, proxied=_SHAPES) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> dict[str, Topic]:
    return {CONSUMERS: topic_to_read(kafka), PRODUCERS: topic_to_write(kafka)}


def _run(
    kafka: Kafka,
    topic: Topic,
    role: str,
    connections: int,
    *,
    quota: int = _QUOTA,
    seconds: float = _FIRST_WINDOW_S + 75,
    obeys: bool = True,
    fetch_bytes: int = MOST_BYTES,
) -> dict[str, Cell]:
    """Flood a sampled proxy, a paced proxy and the broker at the same time. Return the results by row."""
    with ExitStack() as stack:
        stack.enter_context(BrokerQuotas(kafka)).replace({Entity(None, "theirs"): {_KEYS[role]: quota}})
        ports = {_KAFKAS_OWN: kafka.listener(DIRECT).port}
        for shape in _SHAPES:
            endpoint = kafka.listener(shape)
            listener = {"name": shape, "bind": endpoint.advertised_address, "upstream": endpoint.address}
            settings: dict[str, Any] = {"listeners": [listener], "quotas": [{"client-id": "ours", _KEYS[role]: quota}]}
            if shape == "paced":
                settings["shaping"] = shape
            ports[shape] = stack.enter_context(Proxy(settings)).port(shape)
        crowds = {
            row: Crowd(
                role=role,
                port=port,
                topic=topic,
                client_id="theirs" if row == _KAFKAS_OWN else "ours",
                connections=connections,
                obeys=obeys,
                fetch_bytes=fetch_bytes,
            )
            for row, port in ports.items()
        }
        outcomes = flood(crowds, seconds=seconds)
    window_s = min(60.0, seconds - _FIRST_WINDOW_S)
    return {row: _cell(outcome, quota=quota, window_s=window_s) for row, outcome in outcomes.items()}


def _cell(outcome: Outcome, *, quota: int, window_s: float) -> Cell:
    return Cell(
        outcome,
        shares(outcome, quota=quota, after_s=_FIRST_WINDOW_S, window_s=window_s),
        fairness(outcome, after_s=_FIRST_WINDOW_S),
    )


def _show(role: str, connections: int, cells: dict[str, Cell]) -> None:
    for row in _ROWS:
        if row in cells:
            print(f"{connections} {role}, {row}: {cells[row]}")  # noqa: T201


def _faults(role: str, shape: str, cell: Cell, kafkas_own: Cell, bounds: Bounds) -> list[str]:
    """Return a sentence for each violated bound."""
    seen = cell.outcome
    highest = bounds.highest.get((role, shape), kafkas_own.shares.highest + bounds.over_kafkas_own)
    held = {
        f"{cell.shares.highest:.3f} of the quota, above {highest:.3f}": cell.shares.highest <= highest,
        f"{cell.shares.lowest:.3f} of the quota, below {bounds.lowest}": cell.shares.lowest >= bounds.lowest,
        f"errors {seen.errors}": not seen.errors,
        f"{seen.closed} connections were closed": not seen.closed,
        f"a connection had {cell.fairness}": cell.fairness is None or cell.fairness.least >= bounds.least,
    }
    if role == CONSUMERS or seen.connections <= _MOST_PRODUCERS_IN_TIME:
        held[f"a request had no answer for {seen.longest_s:.1f} s"] = seen.longest_s < _MOST_WAIT_S
    return [f"{role}, {shape}: {fault}" for fault, holds in held.items() if not holds]


def _faults_of_shapes(role: str, cells: dict[str, Cell], bounds: Bounds = _OF_ANY_MINUTE) -> list[str]:
    own = cells[_KAFKAS_OWN]
    return [fault for shape in _SHAPES for fault in _faults(role, shape, cells[shape], own, bounds)]


def test_thirty_connections_share_one_quota(kafka_4: Kafka) -> None:
    topics = {CONSUMERS: topic_to_read(kafka_4), PRODUCERS: topic_to_write(kafka_4)}
    rules = [
        {"client-id": f"{role}-{shape}", _KEYS[role]: _QUOTA, "shaping": shape} for role in topics for shape in _SHAPES
    ]
    own = {Entity(None, f"{role}-theirs"): {_KEYS[role]: _QUOTA} for role in topics}
    with Proxy({"quotas": rules}, kafka_4) as proxy, BrokerQuotas(kafka_4) as quotas:
        quotas.replace(own)
        crowds = {
            f"{role} {row}": Crowd(
                role=role,
                port=kafka_4.listener(DIRECT).port if row == _KAFKAS_OWN else proxy.port(),
                topic=topic,
                client_id=f"{role}-{'theirs' if row == _KAFKAS_OWN else row}",
                connections=30,
            )
            for role, topic in topics.items()
            for row in _ROWS
        }
        outcomes = flood(crowds, seconds=_FIRST_WINDOW_S + 22)

    faults = []
    for role in topics:
        cells = {row: _cell(outcomes[f"{role} {row}"], quota=_QUOTA, window_s=22) for row in _ROWS}
        _show(role, 30, cells)
        faults += _faults_of_shapes(role, cells, _OF_TWO_CYCLES)
    assert faults == []


@pytest.mark.long
@pytest.mark.parametrize("role", [CONSUMERS, PRODUCERS])
@pytest.mark.parametrize("connections", [1, 5, 30, 120, 1_000])
def test_any_number_of_connections_share_one_quota(
    kafka: Kafka, topics: dict[str, Topic], connections: int, role: str
) -> None:
    cells = _run(kafka, topics[role], role, connections)

    _show(role, connections, cells)
    assert _faults_of_shapes(role, cells) == []


@pytest.mark.long
@pytest.mark.parametrize("role", [CONSUMERS, PRODUCERS])
def test_connections_that_ignore_throttle_times_get_no_more(kafka: Kafka, topics: dict[str, Topic], role: str) -> None:
    cells = _run(kafka, topics[role], role, 120, obeys=False)

    _show(role, 120, cells)
    assert _faults_of_shapes(role, cells) == []


@pytest.mark.long
@pytest.mark.parametrize("role", [CONSUMERS, PRODUCERS])
@pytest.mark.parametrize("connections", [30, 1_000])
def test_connections_share_a_quota_evenly(kafka: Kafka, topics: dict[str, Topic], connections: int, role: str) -> None:
    """Each request is one batch. The quota allows ten requests of each of a thousand connections."""
    cells = _run(
        kafka, topics[role], role, connections, quota=4 * MIB, seconds=_FIRST_WINDOW_S + 60, fetch_bytes=BATCH_BYTES
    )

    _show(role, connections, cells)
    assert all(cells[shape].fairness is not None for shape in _SHAPES)
    assert _faults_of_shapes(role, cells) == []
