"""Connections: order, acks=0, and clients that half close, vanish or do not read."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import (
    API_VERSIONS,
    FETCH,
    FETCH_VERSION,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    fetch_body,
    produce_body,
    raw_client,
    record_batch,
)
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, MIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

pytestmark = pytest.mark.proof

_CONNECTIONS = "kafka_quota_proxy_connections"
_MUTED = "kafka_quota_proxy_muted_connections"
_RULES = [{"client-id": "slow", "producer_byte_rate": 10_000}]


@pytest.fixture
def proxy(kafka_4: Kafka) -> Iterator[Proxy]:
    with Proxy({"quotas": _RULES}, kafka_4) as running:
        yield running


def test_pipelined_requests_of_any_api_are_answered_in_order(kafka_4: Kafka, proxy: Proxy) -> None:
    topic = create_topic(kafka_4)
    with raw_client(proxy.port()) as client:
        sent = []
        for number in range(50):
            sent.append(
                client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, record_batch([b"x" * number]), acks=1))
            )
            sent.append(client.send(API_VERSIONS, 0, b""))
            sent.append(client.send(METADATA, 1, struct.pack(">i", 0)))
            sent.append(client.send(FETCH, FETCH_VERSION, fetch_body(topic, offset=number, max_bytes=MIB)))
        received = [client.receive().correlation_id for _ in sent]

    assert received == sent


def test_produce_without_acks_does_not_shift_other_responses(kafka_4: Kafka, proxy: Proxy) -> None:
    topic, batch = create_topic(kafka_4), record_batch([b"unanswered"])
    with raw_client(proxy.port()) as client:
        for number in range(20):
            client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch, acks=0))
            client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch, acks=0))
            produced = client.produce(topic, record_batch([b"answered"]))
            assert produced.base_offset == 3 * number + 2
        fetched = client.fetch(topic, offset=0, max_bytes=MIB)

    assert fetched.high_watermark == 60


def test_produce_without_acks_is_throttled(kafka_4: Kafka, proxy: Proxy) -> None:
    topic = create_topic(kafka_4)
    with raw_client(proxy.port(), client_id="slow", timeout_s=2) as client:
        client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch_of(256 * KIB), acks=0))
        client.send(API_VERSIONS, 0, b"")

        # 262 kB at 10 kB/s: the connection is not read for 16 s.
        with pytest.raises(TimeoutError):
            client.receive()

    assert proxy.metrics().total("kafka_quota_proxy_bytes_total", kind="produce", client_id="slow") > 256 * KIB


def test_muted_client_that_vanishes_is_closed_within_seconds(kafka_4: Kafka, proxy: Proxy) -> None:
    topic = create_topic(kafka_4)
    client = RawClient(proxy.port(), client_id="slow")
    answer = client.produce(topic, batch_of(256 * KIB))
    assert answer.throttle_time_ms > 10_000
    assert proxy.metrics().total(_MUTED) == 1

    client.close()

    wait_until(
        lambda: (proxy.metrics().total(_MUTED), proxy.metrics().total(_CONNECTIONS)) == (0, 0),
        timeout_s=5,
        what="a muted connection whose client left is gone",
    )


def test_client_that_does_not_read_slows_the_broker_and_costs_no_memory(kafka_4: Kafka, proxy: Proxy) -> None:
    topic = create_topic(kafka_4)
    with raw_client(proxy.port()) as client:
        for _ in range(16):
            assert client.produce(topic, batch_of(512 * KIB)).error_code == 0
        before = proxy.process.memory_bytes()
        wanted = [client.send(FETCH, FETCH_VERSION, fetch_body(topic, offset=0, max_bytes=8 * MIB)) for _ in range(20)]
        wait_until(
            lambda: proxy.metrics().total("kafka_quota_proxy_bytes_total", kind="fetch") > 0,
            timeout_s=10,
            what="the first of the fetches is on its way",
        )
        grown = proxy.process.memory_bytes() - before

        received = [client.receive() for _ in wanted]

    assert grown < 8 * MIB
    assert [frame.correlation_id for frame in received] == wanted
    assert min(len(frame.body) for frame in received) > 7 * MIB
