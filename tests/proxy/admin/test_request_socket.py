"""Tests how the socket of a request reads, writes, and counts the time for which its client lets it wait."""

import io
import socket
from typing import cast

from kafka_quota_proxy.proxy.admin.request_socket import RequestSocket


class SlowClient:
    """A connection on which each read and each write takes 50 ms. It takes at most three bytes at a time."""

    def __init__(self) -> None:
        self.now_s = 7.0
        self.taken = b""
        self.waited_s: list[float] = []
        self.request: RequestSocket | None = None

    def recv_into(self, buffer: bytearray) -> int:
        self._wait()
        buffer[:2] = b"ab"
        return 2

    def send(self, data: bytes) -> int:
        self._wait()
        self.taken += bytes(data[:3])
        return min(len(data), 3)

    def _wait(self) -> None:
        assert self.request is not None
        self.now_s += 0.05
        self.waited_s.append(round(self.request.waiting_s(), 3))


def test_the_time_of_waits_adds_up_and_counts_only_during_a_wait() -> None:
    client = SlowClient()
    request = client.request = RequestSocket(b"GET /\r\n", cast("socket.socket", client), lambda: client.now_s)
    incoming, outgoing = io.BufferedReader(request), io.BufferedWriter(request)

    assert incoming.readline() == b"GET /\r\n"
    assert client.waited_s == []  # the event loop had received it
    assert incoming.read(4) == b"abab"
    outgoing.write(b"response")
    outgoing.flush()

    assert client.taken == b"response"
    assert client.waited_s == [0.05, 0.1, 0.15, 0.2, 0.25]
    client.now_s += 9
    assert request.waiting_s() == 0.0
