"""Consumers below their quota are never told a throttle time, and have each record at once, however many they are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.crowds import CONSUMERS, Crowd, flood, topic_to_read
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import MIB
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quiet_readers import KINDS, MAX_WAIT_S, RawReader, Reader, round_s, running

_QUOTA: Final = 2 * MIB
_SHAPES: Final = ("sampled", "paced")
# By then all have connected and polled more than once.
_QUIET_AFTER_S: Final = 2.5
_AT_ONCE_S: Final = 0.5
# The libraries connect again after pauses of their own.
_AFTER_RESTART_S: Final = 3.0
_MANY: Final = 1_000
_IDLE_S: Final = 15


def _settings(client_ids: dict[str, str], *, other: int) -> dict[str, Any]:
    """Return the rules of these client-ids, which are given with their shapes, and one rule of another client-id."""
    rules = [{"client-id": name, "consumer_byte_rate": _QUOTA, "shaping": shape} for name, shape in client_ids.items()]
    return {"quotas": [*rules, {"client-id": "other", "consumer_byte_rate": other}]}


def _throttled(proxy: Proxy) -> dict[str, float]:
    """Return the throttled fetches and the throttle time of all clients."""
    metrics = proxy.metrics()
    names = ("throttled_requests_total", "throttle_seconds_total")
    return {name: metrics.total(f"kafka_quota_proxy_{name}", kind="fetch") for name in names}


_NONE: Final = {"throttled_requests_total": 0, "throttle_seconds_total": 0}


def _late(waits: dict[Reader, float], *, most_s: float) -> dict[str, float]:
    return {str(reader): round(waited_s, 2) for reader, waited_s in waits.items() if waited_s > most_s}


@pytest.mark.proof
def test_waiting_consumers_have_each_record_at_once(kafka_4: Kafka) -> None:
    counts = {f"{count}-{shape}": (count, shape) for count in (2, 20) for shape in _SHAPES}
    topics = {client_id: create_topic(kafka_4, partitions=count) for client_id, (count, _) in counts.items()}
    shapes = {client_id: shape for client_id, (_, shape) in counts.items()}

    with Proxy(_settings(shapes, other=MIB), kafka_4) as proxy:
        readers: list[Reader] = [
            KINDS[number % len(KINDS)](proxy.port(), client_id, topics[client_id], number)
            for client_id, (count, _) in counts.items()
            for number in range(count)
        ]
        with running(readers):
            time.sleep(_QUIET_AFTER_S)
            first = round_s(kafka_4, topics, readers)
            assert proxy.reload(_settings(shapes, other=2 * MIB))
            reloaded = round_s(kafka_4, topics, readers)
            throttled = _throttled(proxy)
            empty_s = _empty_s(readers)
            proxy.stop()
            proxy.start()
            restarted = round_s(kafka_4, topics, readers)
            later = round_s(kafka_4, topics, readers)
            throttled_after = _throttled(proxy)

    for name, waits in (("first", first), ("reloaded", reloaded), ("restarted", restarted), ("later", later)):
        print(f"{name}: {statistics.median(waits.values()):.3f} s, at most {max(waits.values()):.3f} s")  # noqa: T201
    print(f"answers without records took {min(empty_s):.3f} to {max(empty_s):.3f} s")  # noqa: T201
    assert _late(first, most_s=_AT_ONCE_S) == {}
    assert _late(reloaded, most_s=_AT_ONCE_S) == {}
    assert _late(later, most_s=_AT_ONCE_S) == {}
    assert _late({one: s for one, s in restarted.items() if isinstance(one, RawReader)}, most_s=1.0) == {}
    assert _late(restarted, most_s=_AFTER_RESTART_S) == {}
    # The broker answers after max_wait. An earlier answer would be the proxy's, and a later one would have waited.
    assert min(empty_s) >= MAX_WAIT_S - 0.01
    assert max(empty_s) <= MAX_WAIT_S + _AT_ONCE_S
    assert [one.told_ms for one in readers if isinstance(one, RawReader) and one.told_ms] == []
    assert throttled == throttled_after == _NONE


def _empty_s(readers: Sequence[Reader]) -> list[float]:
    return [took_s for one in readers if isinstance(one, RawReader) for took_s in one.empty_s]


@pytest.mark.parametrize("shape", ["sampled", pytest.param("paced", marks=pytest.mark.long)])
def test_a_thousand_idle_connections_hold_back_no_record(shape: str) -> None:
    with Kafka(KAFKA_4) as kafka, Proxy(_settings({"idle": shape}, other=MIB), kafka) as proxy:
        empty, topics = topic_to_read(kafka, size_bytes=0), {"idle": create_topic(kafka, partitions=len(KINDS))}
        readers: list[Reader] = [
            kind(proxy.port(), "idle", topics["idle"], number) for number, kind in enumerate(KINDS)
        ]
        crowd = Crowd(role=CONSUMERS, port=proxy.port(), topic=empty, client_id="idle", connections=_MANY)
        waits: list[float] = []
        with running(readers), ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(flood, {"idle": crowd}, seconds=_IDLE_S)
            while not flooding.done():
                waits += round_s(kafka, topics, readers).values()
                time.sleep(1)
            outcome = flooding.result()["idle"]
        throttled = _throttled(proxy)

    took_s = [answer.took_s for answer in outcome.answers]
    print(f"records: {statistics.median(waits):.3f} s, at most {max(waits):.3f} s of {len(waits)}")  # noqa: T201
    print(f"{len(took_s)} answers took {min(took_s):.3f} to {max(took_s):.3f} s")  # noqa: T201
    assert max(waits) <= 1.0
    assert min(took_s) >= MAX_WAIT_S - 0.01
    # Two thousand answers a second are all that two cores can carry with a Kafka beside them, so some are late.
    assert statistics.quantiles(took_s, n=4)[-1] <= MAX_WAIT_S + 0.5
    assert outcome.longest_s <= MAX_WAIT_S + 2.5
    assert len({answer.connection for answer in outcome.answers}) == _MANY
    assert {answer.throttle_time_ms for answer in outcome.answers} == {0}
    assert (outcome.errors, outcome.closed) == ({}, 0)
    assert throttled == _NONE
