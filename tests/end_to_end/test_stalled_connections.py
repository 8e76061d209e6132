"""Clients that stop inside a request, or send data that must wait, cost bounded memory.

The broker is a sink, because a real broker reserves memory for the whole of each request.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from contextlib import ExitStack

import pytest

from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, produce_body, request
from tests.end_to_end.support.load import KIB, MIB
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.sink import proxy_to_sink

pytestmark = pytest.mark.proof

_CONNECTIONS = "kafka_quota_proxy_connections"
_DISCONNECTS = "kafka_quota_proxy_disconnects_total"
_FRAME_BYTES = 100_000_000
_COUNT = 500
_MUTING = request(PRODUCE, PRODUCE_VERSION, 1, "hostile", produce_body("t", bytes(400), acks=0))


def _has_arrived(client: socket.socket) -> bool:
    """Return whether the proxy's machine has acknowledged all sent bytes."""
    return fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)) == bytes(4)


def _connect(stack: ExitStack, proxy: Proxy) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port("clients")), timeout=30))


def test_connections_stalled_inside_100_mb_cost_no_more_than_idle_ones() -> None:
    front = struct.pack(">i", _FRAME_BYTES) + request(PRODUCE, PRODUCE_VERSION, 1, "hostile", b"")[4:]
    body = produce_body("t", bytes(100_000), acks=1)
    with proxy_to_sink() as proxy, ExitStack() as stack:
        before = proxy.process.memory_bytes()
        clients = [_connect(stack, proxy) for _ in range(_COUNT)]
        for client in clients:
            client.sendall(front + body[:100])
        wait_until(
            lambda: proxy.metrics().total("kafka_quota_proxy_frames_total", api="Produce") == _COUNT,
            timeout_s=60,
            what="every request has begun",
        )
        for client in clients:
            client.sendall(body[100:])
        wait_until(lambda: all(map(_has_arrived, clients)), timeout_s=60, what="all that was sent has arrived")
        for _ in range(2):
            assert proxy.admin("/livez")  # by then the event loop has read what has arrived
        after = proxy.process.memory_bytes()

    assert after < before + 18 * KIB * _COUNT


def test_pipelined_bytes_of_muted_clients_are_bounded_in_total() -> None:
    """Each client is muted for 25 s, and sends a quarter of a MiB meanwhile."""
    rule = {"client-id": "hostile", "producer_byte_rate": 1}
    with proxy_to_sink(quotas=[rule], max_buffered="16MiB") as proxy, ExitStack() as stack:
        before = most_seen = proxy.process.memory_bytes()
        ahead = struct.pack(">i", _FRAME_BYTES) + request(PRODUCE, PRODUCE_VERSION, 1, "hostile", bytes(256 * KIB))[4:]
        for _ in range(_COUNT):
            client = _connect(stack, proxy)
            client.setblocking(False)
            client.send(_MUTING + ahead)  # at once, or the proxy may have stopped to read before the second part comes
            most_seen = max(most_seen, proxy.process.memory_bytes())
        wait_until(
            lambda: proxy.metrics().total(_DISCONNECTS, cause="max_buffered") > 0,
            timeout_s=10,
            what="those who hold the most are closed",
        )

        # Data that arrives within a second is not counted in the limit.
        assert most_seen < before + 1_024 * MIB
        assert proxy.metrics().total(_CONNECTIONS) > 0
