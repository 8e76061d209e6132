"""``bytes_total`` equals the counters of the client and of the broker, to the byte.

Kafka charges a frame without its size field, and a Fetch v12 response without the tags of its header.
"""

import socket
import struct
from collections.abc import Iterator
from functools import cache

import pytest

from kafka_quota_proxy.proxy.server.brokers.probe import GREETING
from tests.end_to_end.support import tools
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import (
    FETCH,
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    produce_body,
    raw_client,
    record_batch,
)
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.load import MIB
from tests.end_to_end.support.proxy import Metrics, Proxy

_BYTES = "kafka_quota_proxy_bytes_total"
_REQUESTS = "kafka_quota_proxy_requests_total"
_SIZE_FIELD = 4
_IN, _OUT, _CREATED = "incoming-byte-total", "outgoing-byte-total", "connection-creation-total"
_SIZES = (1, 100, 1_000, 10_000, 100_000, 500_000)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker with a JMX port."""
    with Kafka(KAFKA_4, jmx=True) as running:
        _answer_bytes(running.listener(DIRECT).port)  # asked before all counters
        yield running


@cache
def _answer_bytes(port: int) -> int:
    """Return the size of the response to a probe."""
    with socket.create_connection(("127.0.0.1", port)) as probe:
        probe.sendall(GREETING)
        size_bytes: int = struct.unpack(">i", probe.recv(_SIZE_FIELD, socket.MSG_WAITALL))[0]
    return _SIZE_FIELD + size_bytes


@pytest.fixture
def proxy(kafka: Kafka) -> Iterator[Proxy]:
    """A proxy with quotas that throttle no client."""
    rules = [{"client-id": "<default>", "producer_byte_rate": 10**12, "consumer_byte_rate": 10**12}]
    with Proxy({"quotas": rules}, kafka) as running:
        yield running


class _Counters:
    """The bytes that the broker has counted on its proxied listener since this object was made.

    Those of the proxy's probes are left out. Each of them has a connection of its own.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._answer_bytes = _answer_bytes(kafka.listener(DIRECT).port)
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        sockets = f"kafka.server:type=socket-server-metrics,listener={PROXIED},networkProcessor=*"
        found: dict[str, float] = {}
        for name, value in tools.jmx(self._kafka, sockets, f"{_IN},{_OUT},{_CREATED}").items():
            way = name.rpartition(":")[2]
            found[way] = found.get(way, 0) + value
        return found

    def since(self, connections: int = 1) -> tuple[int, int]:
        """Return the bytes to and from the broker. ``connections`` is how many clients have made."""
        now = self._read()
        into, out_of, created = (int(now[one] - self._before[one]) for one in (_IN, _OUT, _CREATED))
        probes = created - connections
        return into - probes * len(GREETING), out_of - probes * self._answer_bytes


def _charged(metrics: Metrics, kind: str, client_id: str) -> tuple[int, int]:
    labels = {"kind": kind, "client_id": client_id}
    return int(metrics.total(_BYTES, **labels)), int(metrics.total(_REQUESTS, **labels))


@pytest.mark.proof
def test_produce_bytes_equal_those_of_client_and_broker(kafka: Kafka, proxy: Proxy) -> None:
    topic, broker = create_topic(kafka), _Counters(kafka)
    with raw_client(proxy.port(), client_id="counts") as client:
        for size in _SIZES:
            for acks in (1, -1):
                assert client.produce(topic, record_batch([bytes(size)]), acks=acks).error_code == 0
            client.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, record_batch([bytes(size)]), acks=0))
        # Its response shows that the requests without acks have arrived.
        assert client.produce(topic, record_batch([b"last"])).error_code == 0
    into, _ = broker.since()

    size_bytes, requests = _charged(proxy.metrics(), "produce", "counts")

    assert requests == 3 * len(_SIZES) + 1
    assert size_bytes == client.sent_bytes - _SIZE_FIELD * requests
    assert size_bytes == into - _SIZE_FIELD * requests


@pytest.mark.proof
def test_fetch_bytes_equal_those_of_client_and_broker(kafka: Kafka, proxy: Proxy) -> None:
    topic = _filled(kafka)
    broker = _Counters(kafka)
    with raw_client(proxy.port(), client_id="counts") as client:
        for offset in range(len(_SIZES) + 1):  # the last one finds nothing
            assert client.fetch(topic, offset=offset, max_bytes=MIB, max_wait_ms=50).error_code == 0
    _, out_of = broker.since()

    size_bytes, requests = _charged(proxy.metrics(), "fetch", "counts")

    assert requests == len(_SIZES) + 1
    assert size_bytes == client.received_bytes - _SIZE_FIELD * requests
    assert size_bytes == out_of - _SIZE_FIELD * requests
    assert size_bytes > sum(_SIZES)


@pytest.mark.proof
def test_flexible_fetch_response_is_charged_one_byte_less_than_its_frame(kafka: Kafka, proxy: Proxy) -> None:
    topic = _filled(kafka)
    broker = _Counters(kafka)
    with raw_client(proxy.port(), client_id="counts") as client:
        for offset in range(len(_SIZES) + 1):
            _fetch_v12(client, topic, offset=offset)
    _, out_of = broker.since()

    size_bytes, requests = _charged(proxy.metrics(), "fetch", "counts")

    assert requests == len(_SIZES) + 1
    assert size_bytes == client.received_bytes - (_SIZE_FIELD + 1) * requests
    assert size_bytes == out_of - (_SIZE_FIELD + 1) * requests
    assert size_bytes > sum(_SIZES)


def _filled(kafka: Kafka) -> str:
    """Create a topic with one batch of each size."""
    topic = create_topic(kafka)
    with raw_client(kafka.listener(DIRECT).port) as client:
        for size in _SIZES:
            assert client.produce(topic, record_batch([bytes(size)])).error_code == 0
    return topic


def _fetch_v12(client: RawClient, topic: str, *, offset: int) -> None:
    """Fetch from partition 0 with the first flexible version."""
    name = topic.encode()
    empty_tags = b"\0"
    body = (
        empty_tags  # of the request header
        + struct.pack(">iiiibii", -1, 50, 1, MIB, 0, 0, -1)  # replica_id … isolation_level, session_id, session_epoch
        + bytes((2, len(name) + 1))  # compact: one topic, its name's length
        + name
        + bytes((2,))
        + struct.pack(">iiqiqi", 0, -1, offset, -1, -1, MIB)  # partition, epoch, offset, epoch, log start, max_bytes
        + empty_tags * 2
        + bytes((1, 1))  # no forgotten topics, an empty rack_id
        + empty_tags
    )
    frame = client.ask(FETCH, 12, body)
    (error_code,) = struct.unpack_from(">h", frame.body, 1 + 4)  # tags of the response header, throttle_time_ms
    assert error_code == 0
