"""Producers and consumers get their quota and no more, sampled and paced, on one connection and on many.

A busy machine makes clients late, so rates prove little there. At any time, no more may have passed than the quota of
the time until then and of what passes at once. And the client is told to wait no longer than its bytes take.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from math import inf
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, MIB, Answer, batch_of, fetch_flood, produce_flood, throttled_s
from tests.end_to_end.support.processes import allow_open_files
from tests.end_to_end.support.proxy import Proxy

_SECONDS: Final = 21
# With three windows, a short run has several cycles of burst and silence.
_WINDOWS: Final = 3
_KAFKAS_WINDOWS: Final = 11
_KINDS: Final = ("produce", "fetch")
_LIMIT: Final = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
_SHAPES: Final = ("sampled", "paced")
_RATES: Final = ((MIB, 64 * KIB), (100 * KIB, 8 * KIB))  # quota, size of a request or of a response
# Of the quota, in the minute after the first window and its silence.
_OF_A_MINUTE: Final = {"sampled": (0.85, 1.12), "paced": (0.9, 1.05)}


class Crowd(NamedTuple):
    """Connections of one client-id. Paced producers ignore throttle times."""

    kind: str
    shape: str
    quota: int
    size_bytes: int
    connections: int = 1

    def __str__(self) -> str:
        return f"{self.kind}-{self.shape}-{self.quota}-{self.connections}"

    @property
    def rule(self) -> dict[str, object]:
        return {"client-id": str(self), _LIMIT[self.kind]: self.quota, "shaping": self.shape}

    def flood(self, port: int, topics: dict[str, str], seconds: float) -> list[Answer]:
        """Send requests on one connection without a pause, and return the answers."""
        if self.kind == "fetch":
            return fetch_flood(port, topics["fetch"], client_id=str(self), max_bytes=self.size_bytes, seconds=seconds)
        return produce_flood(
            port, topics["produce"], client_id=str(self), request_bytes=self.size_bytes, seconds=seconds,
            obeys=self.shape == "sampled",
        )  # fmt: skip


_ONE: Final = [Crowd(kind, shape, *rate) for kind in _KINDS for shape in _SHAPES for rate in _RATES]
_MANY: Final = [Crowd(kind, shape, 256 * KIB, 8 * KIB, 30) for kind in _KINDS for shape in _SHAPES]


class Flow(NamedTuple):
    """The answers of a crowd in the order of their times, and the time of its start."""

    begin_s: float
    answers: list[Answer]

    def of(self, begin_s: float = 0.0, end_s: float = inf) -> int:
        """Return the bytes that passed between two times, in seconds since the start."""
        return sum(one.size_bytes for one in self.answers if begin_s <= one.at_s - self.begin_s < end_s)

    def ahead_s(self, quota: int) -> float:
        """Return how many seconds' worth of the quota more than its time allows has passed, at the most."""
        passed = accumulate(one.size_bytes for one in self.answers)
        return max(size / quota - (one.at_s - self.begin_s) for one, size in zip(self.answers, passed, strict=True))


def _flooded(kafka: Kafka, crowds: Collection[Crowd], *, seconds: float, windows: int = _WINDOWS) -> dict[Crowd, Flow]:
    """Let all crowds flood one proxy at the same time."""
    topics = {kind: create_topic(kafka) for kind in _KINDS}
    batch = batch_of(4 * KIB)
    with raw_client(kafka.listener(DIRECT).port) as client:
        for _ in range(MIB // len(batch)):
            assert client.produce(topics["fetch"], batch).error_code == 0
    settings = {"quotas": [crowd.rule for crowd in crowds], "kafka": {"quota.window.num": windows}}
    count = sum(crowd.connections for crowd in crowds)
    with Proxy(settings, kafka) as proxy, ThreadPoolExecutor(count) as pool:
        begin_s = time.monotonic()
        running = {
            crowd: [pool.submit(crowd.flood, proxy.port(), topics, seconds) for _ in range(crowd.connections)]
            for crowd in crowds
        }
        return {
            crowd: Flow(begin_s, sorted(answer for one in of_crowd for answer in one.result()))
            for crowd, of_crowd in running.items()
        }


@pytest.fixture(scope="module")
def flows(kafka_4: Kafka) -> dict[Crowd, Flow]:
    """Floods of all kinds, shapes and rates at the same time."""
    return _flooded(kafka_4, _ONE + _MANY, seconds=_SECONDS)


def _most_ahead_s(crowd: Crowd) -> float:
    """Return what may pass at once, in seconds of the quota: all windows, or the burst of a second; and a request."""
    at_once_s = _WINDOWS if crowd.shape == "sampled" else 1
    return at_once_s + (1 + crowd.connections) * crowd.size_bytes / crowd.quota


@pytest.mark.proof
@pytest.mark.parametrize("crowd", _ONE, ids=str)
def test_client_gets_its_quota_and_no_more(flows: dict[Crowd, Flow], crowd: Crowd) -> None:
    flow = flows[crowd]

    assert flow.ahead_s(crowd.quota) <= _most_ahead_s(crowd)
    assert 0 < throttled_s(flow.answers) <= flow.of() / crowd.quota


@pytest.mark.proof
@pytest.mark.parametrize("crowd", _MANY, ids=str)
def test_thirty_connections_share_one_quota(flows: dict[Crowd, Flow], crowd: Crowd) -> None:
    flow = flows[crowd]

    assert flow.ahead_s(crowd.quota) <= _most_ahead_s(crowd)
    assert flow.of() > 0.8 * crowd.quota * _SECONDS


@pytest.mark.long
@pytest.mark.parametrize("kind", _KINDS)
def test_thousand_connections_share_one_quota(kafka_4: Kafka, kind: str) -> None:
    crowds = [Crowd(kind, shape, 256 * KIB, 16 * KIB, 1_000) for shape in _SHAPES]
    allow_open_files(10_000)  # those of the clients here, and those of the proxy on both sides
    begin_s = _KAFKAS_WINDOWS + 4

    for crowd, flow in _flooded(kafka_4, crowds, seconds=begin_s + 60, windows=_KAFKAS_WINDOWS).items():
        least, most = _OF_A_MINUTE[crowd.shape]
        assert least <= flow.of(begin_s, begin_s + 60) / crowd.quota / 60 <= most
