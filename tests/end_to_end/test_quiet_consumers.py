"""Consumers below their quota are never told a throttle time, and have each record at once, however many they are."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import MIB
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quiet_readers import KINDS, MAX_WAIT_S, RawReader, Reader, round_s, running

_QUOTA: Final = 2 * MIB
_DIRECT: Final = "direct"
_SHAPES: Final = ("sampled", "paced")
# By then all have connected and polled more than once.
_QUIET_AFTER_S: Final = 2.5
_AT_ONCE_S: Final = 0.5
# The libraries connect again after pauses of their own.
_AFTER_RESTART_S: Final = 3.0


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


def _late(waits: dict[Reader, float], direct: Collection[Reader], most_s: float = _AT_ONCE_S) -> dict[str, float]:
    """Return the readers that waited for longer than this, beyond what those without a proxy waited for at the most."""
    most_s += max(waits[reader] for reader in direct)
    return {str(reader): round(waited_s, 2) for reader, waited_s in waits.items() if waited_s > most_s}


@pytest.mark.proof
def test_waiting_consumers_have_each_record_at_once(kafka_4: Kafka) -> None:
    counts = {f"{count}-{shape}": (count, shape) for count in (2, 20) for shape in _SHAPES}
    shapes = {client_id: shape for client_id, (_, shape) in counts.items()}
    topics = {client_id: create_topic(kafka_4, partitions=count) for client_id, (count, _) in counts.items()}
    topics[_DIRECT] = create_topic(kafka_4, partitions=len(KINDS))

    with Proxy(_settings(shapes, other=MIB), kafka_4) as proxy:
        readers: list[Reader] = [
            KINDS[number % len(KINDS)](proxy.port(), client_id, topics[client_id], number)
            for client_id, (count, _) in counts.items()
            for number in range(count)
        ]
        raw = [one for one in readers if isinstance(one, RawReader)]
        direct = [
            kind(kafka_4.listener(DIRECT).port, _DIRECT, topics[_DIRECT], number) for number, kind in enumerate(KINDS)
        ]
        with running([*readers, *direct]):
            time.sleep(_QUIET_AFTER_S)
            first = round_s(kafka_4, topics, [*readers, *direct])
            assert proxy.reload(_settings(shapes, other=2 * MIB))
            reloaded = round_s(kafka_4, topics, [*readers, *direct])
            throttled = _throttled(proxy)
            empty_s = [took_s for one in raw for took_s in one.empty_s]
            proxy.stop()
            proxy.start()
            restarted = round_s(kafka_4, topics, [*readers, *direct])
            later = round_s(kafka_4, topics, [*readers, *direct])
            throttled_after = _throttled(proxy)

    assert _late(first, direct) == _late(reloaded, direct) == _late(later, direct) == {}
    assert _late(restarted, direct, most_s=_AFTER_RESTART_S) == {}
    # The broker answers after max_wait. An earlier answer would be the proxy's.
    assert min(empty_s) >= MAX_WAIT_S - 0.01
    assert [one.told_ms for one in raw if one.told_ms] == []
    assert throttled == throttled_after == _NONE
