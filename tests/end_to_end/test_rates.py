"""Producers and consumers get their quota and no more, sampled and paced, from 100 KiB/s to 20 MB/s."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import (
    KIB,
    MIB,
    Answer,
    batch_of,
    fetch_flood,
    flow_of,
    per_second,
    produce_flood,
    rate_over_whole_cycles,
    steady_rate,
)
from tests.end_to_end.support.proxy import Proxy

_SECONDS = 21
# With three windows, a short run has several cycles of burst and silence. With Kafka's default of eleven, which the
# long tests and test_same_as_kafka.py use, a cycle takes eleven seconds.
_WINDOWS = 3
_LEAST, _MOST = 0.985, 1.01
_RATES = {"1MiB": (MIB, 64 * KIB), "100KiB": (100 * KIB, 8 * KIB)}  # quota, size of a request or of a response

Flows = dict[str, list[Answer]]


def _preloaded_topic(kafka: Kafka, *, size_bytes: int, batch_bytes: int) -> str:
    topic = create_topic(kafka)
    batch = batch_of(batch_bytes)
    with raw_client(kafka.listener(DIRECT).port) as client:
        for _ in range(size_bytes // batch_bytes + 1):
            assert client.produce(topic, batch).error_code == 0
    return topic


@pytest.fixture(scope="module")
def flows(kafka_4: Kafka) -> Flows:
    """Floods of all kinds, shapes and rates at the same time, by client-id, such as ``produce-sampled-1MiB``."""
    read, written = _preloaded_topic(kafka_4, size_bytes=MIB, batch_bytes=4 * KIB), create_topic(kafka_4)
    names = [(kind, shape, rate) for kind in ("produce", "fetch") for shape in ("sampled", "paced") for rate in _RATES]
    limit = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
    rules = [
        {"client-id": f"{kind}-{shape}-{rate}", limit[kind]: _RATES[rate][0], "shaping": shape}
        for kind, shape, rate in names
    ]
    settings = {"quotas": rules, "kafka": {"quota.window.num": _WINDOWS}}
    with Proxy(settings, kafka_4) as proxy, ThreadPoolExecutor(len(names)) as pool:
        running = {}
        for kind, shape, rate in names:
            client_id, size = f"{kind}-{shape}-{rate}", _RATES[rate][1]
            if kind == "produce":
                running[client_id] = pool.submit(
                    produce_flood,
                    proxy.port(),
                    written,
                    client_id=client_id,
                    request_bytes=size,
                    seconds=_SECONDS,
                    obeys=shape == "sampled",
                )
            else:
                running[client_id] = pool.submit(
                    fetch_flood, proxy.port(), read, client_id=client_id, max_bytes=size, seconds=_SECONDS
                )
        return {client_id: flow.result() for client_id, flow in running.items()}


@pytest.mark.proof
@pytest.mark.parametrize("rate", _RATES)
@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_sampled_windows_keep_the_quota_over_whole_cycles(flows: Flows, kind: str, rate: str) -> None:
    quota = _RATES[rate][0]

    measured = rate_over_whole_cycles(flow_of(flows[f"{kind}-sampled-{rate}"]), quota=quota)

    assert 0.97 <= measured / quota <= 1.02


@pytest.mark.proof
@pytest.mark.parametrize("rate", _RATES)
@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_paced_flow_keeps_the_quota(flows: Flows, kind: str, rate: str) -> None:
    """The producer ignores throttle times."""
    quota, size_bytes = _RATES[rate]
    flow = flows[f"{kind}-paced-{rate}"]

    assert 0.99 <= steady_rate(flow, after_s=1) / quota <= 1.01
    assert max(per_second(flow)[1:]) <= 1.1 * quota + size_bytes
