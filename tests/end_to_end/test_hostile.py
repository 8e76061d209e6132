"""An invalid frame closes at most its own connection. The reason is counted, and nothing else is affected."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import (
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    produce_body,
    raw_client,
    record_batch,
    request,
)
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

pytestmark = pytest.mark.proof

_ERRORS = "kafka_quota_proxy_protocol_errors_total"
_UNKNOWN = "kafka_quota_proxy_unknown_api_total"
_CONNECTIONS = "kafka_quota_proxy_connections"
# A TLS 1.3 client's first bytes: record type 22, version 3.1, 512 bytes, ClientHello.
_TLS_HELLO = bytes.fromhex("16030102000100") + bytes(510)

_CLOSED = {
    "a negative size": struct.pack(">i", -1),
    "the least size": struct.pack(">i", -(2**31)),
    "the greatest size": struct.pack(">i", 2**31 - 1) + bytes(64),
    "a size over the limit": struct.pack(">i", 104_857_601) + bytes(64),
    "an empty frame": struct.pack(">i", 0),
    "a frame shorter than its header": struct.pack(">ihh", 4, 0, 7),
    "a client-id longer than its frame": struct.pack(">ihhih", 10, 0, 7, 1, 500),
    "a client-id of negative length": struct.pack(">ihhih", 10, 0, 7, 1, -2),
    "a Produce request without a body": request(0, 7, 1, "hostile", b""),
    "a TLS hello": _TLS_HELLO,
}


@pytest.fixture(scope="module")
def proxy(kafka_4: Kafka) -> Iterator[Proxy]:
    with Proxy({}, kafka_4) as running:
        yield running


@pytest.fixture
def bystander(kafka_4: Kafka, proxy: Proxy) -> Iterator[None]:
    """Runs another client, which must not be affected."""
    topic = create_topic(kafka_4)
    with raw_client(proxy.port(), client_id="bystander") as client:
        before = client.produce(topic, record_batch([b"before"]))
        yield
        after = client.produce(topic, record_batch([b"after"]))
    assert (before.base_offset, after.base_offset) == (0, 1)


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("name", _CLOSED)
def test_broken_frame_closes_its_connection_and_is_counted(name: str, proxy: Proxy) -> None:
    before = proxy.metrics().total(_ERRORS)

    with raw_client(proxy.port(), timeout_s=5) as client:
        client.send_bytes(_CLOSED[name])
        assert client.is_closed_by_peer()

    wait_until(lambda: proxy.metrics().total(_ERRORS) == before + 1, timeout_s=3, what="the reason is counted")
    assert "Traceback" not in proxy.log


@pytest.mark.usefixtures("bystander")
def test_client_that_leaves_inside_a_frame_is_closed(proxy: Proxy) -> None:
    connections = proxy.metrics().total(_CONNECTIONS)
    whole = request(PRODUCE, PRODUCE_VERSION, 1, "hostile", produce_body("t", bytes(20_000), acks=1))
    for cut in (2, 4, 9, 13, 20, 60, 10_000):
        client = RawClient(proxy.port())
        client.send_bytes(whole[:cut])
        client.close()

    wait_until(lambda: proxy.metrics().total(_CONNECTIONS) == connections, timeout_s=5, what="all of them are gone")


@pytest.mark.usefixtures("bystander")
def test_unknown_api_is_forwarded_and_counted(proxy: Proxy) -> None:
    """The broker closes the connection."""
    with raw_client(proxy.port(), timeout_s=10) as client:
        client.send_bytes(request(999, 0, 1, "hostile", b"anything"))
        assert client.is_closed_by_peer()

    assert proxy.metrics().total(_UNKNOWN, api_key="999") == 1


@pytest.mark.usefixtures("bystander")
def test_client_that_sends_single_bytes_is_answered(kafka_4: Kafka, proxy: Proxy) -> None:
    topic = create_topic(kafka_4)
    frame = request(PRODUCE, PRODUCE_VERSION, 5, "drip", produce_body(topic, record_batch([b"drop by drop"]), acks=1))
    with raw_client(proxy.port(), timeout_s=10) as client:
        for at in range(len(frame)):
            client.send_bytes(frame[at : at + 1])
            time.sleep(0.02)
        answer = client.receive()

    assert answer.correlation_id == 5


@pytest.mark.usefixtures("bystander")
def test_huge_frame_passes_in_bounded_memory(kafka_4: Kafka, proxy: Proxy) -> None:
    """The broker reads 64 MiB for one partition, and then refuses them."""
    topic = create_topic(kafka_4)
    body = produce_body(topic, bytes(64 * KIB * KIB), acks=1)
    before = proxy.process.memory_bytes()
    with raw_client(proxy.port()) as client:
        client.send(PRODUCE, PRODUCE_VERSION, body)
        most = proxy.process.memory_bytes()
        client.receive()

    assert most - before < 8 * KIB * KIB


def test_floods_of_tiny_requests_stop_nobody(kafka_4: Kafka, proxy: Proxy) -> None:
    topic = create_topic(kafka_4)
    body = struct.pack(">hhi", -1, 0, 30_000)
    requests = [request(PRODUCE, 3, 1, client_id, body) for client_id in ("a", "b")]
    flood = b"".join(requests) * 4_000
    took_s: dict[RawClient, list[float]] = {}
    with (
        raw_client(proxy.port(), client_id="bystander") as client,
        raw_client(kafka_4.listener(DIRECT).port, client_id="direct") as direct,
        ExitStack() as flooders,
    ):
        for number in range(60):
            if number % 3 == 0:  # the broker of each is only dialled when its first bytes have been read
                flooders.enter_context(raw_client(proxy.port())).socket.sendall(flood)
            for one in (client, direct):
                began_s = time.monotonic()
                assert one.produce(topic, record_batch([b"among them"])).error_code == 0
                took_s.setdefault(one, []).append(time.monotonic() - began_s)

    assert max(took_s[client]) <= 0.5 + 2 * max(took_s[direct])
