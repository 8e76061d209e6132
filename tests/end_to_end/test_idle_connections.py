"""Idle connections cost next to nothing, even after ApiVersions, which every real client sends."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import PROXIED, Kafka
from tests.end_to_end.support.load import KIB, MIB
from tests.end_to_end.support.processes import HarnessError, allow_open_files, wait_until
from tests.end_to_end.support.proxy import Proxy

_CONNECTIONS = "kafka_quota_proxy_connections"
_SPARE_FILES = 500
_ENVOY_KIB = 18  # per connection of Envoy 1.40's tcp_proxy, on the same kind of machine


def _with_broker(count: int) -> int:
    """Return how many of these connections the proxy can connect to the broker with the open files allowed."""
    limit = allow_open_files(2 * count + _SPARE_FILES)
    served = min(count, limit - _SPARE_FILES - count)
    if served < count // 2:
        raise HarnessError(f"{count} connections take {2 * count + _SPARE_FILES} open files, the limit is {limit}")
    return served


def _idle(kafka: Kafka, *, count: int) -> tuple[int, int]:
    """Hold this many connections, serve another client, and return the proxy's memory before and after that."""
    topic = create_topic(kafka)
    served = _with_broker(count)
    endpoint = kafka.listener()
    listener = {"name": PROXIED, "bind": endpoint.advertised_address, "upstream": endpoint.address}
    with Proxy({"listeners": [{**listener, "max_connections": None}]}) as proxy, ExitStack() as stack:
        with raw_client(proxy.port()) as first:
            first.api_versions()
        before = proxy.process.memory_bytes()
        for number in range(count):
            client = stack.enter_context(raw_client(proxy.port()))
            assert number >= served or client.api_versions()
        wait_until(lambda: proxy.metrics().total(_CONNECTIONS) == count, timeout_s=10, what="all are connected")
        with raw_client(proxy.port()) as client:
            assert client.produce(topic, record_batch([b"served"])).error_code == 0
        return before, proxy.process.memory_bytes()


@pytest.mark.long
def test_idle_connection_costs_less_memory_than_envoys(mortal_kafka: Kafka) -> None:
    count = 2_000

    before, after = _idle(mortal_kafka, count=count)

    assert (after - before) / count < _ENVOY_KIB * KIB


@pytest.mark.long
def test_ten_thousand_idle_connections_stay_under_250_mb() -> None:
    count = 10_000
    with Kafka(KAFKA_4) as kafka:
        before, after = _idle(kafka, count=count)

    assert after < 250 * MIB
    assert (after - before) / count < _ENVOY_KIB * KIB
