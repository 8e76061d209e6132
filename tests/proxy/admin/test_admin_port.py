"""Tests that the admin port answers probes, whatever other clients do at its sockets."""

import asyncio
import errno
import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kafka_quota_proxy.proxy.admin.admin_port import MAX_WAITING
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.admin.test_http_server import CONFIG, admin_of, ask, fill, ready_server, scrape, scraper
from tests.support.stub_broker import eventually

PROBE_LIMIT_S = 0.100  # includes two switches of threads
IDLE = 1_000


class Peer:
    """Opens sockets to the admin port, and reads from them only when a test asks for it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sockets: list[socket.socket] = []

    def connect(self, count: int, data: bytes = b"") -> None:
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", self._port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            self.sockets.append(client)
            if data:
                client.sendall(data)

    def closed(self) -> int:
        return sum(_is_closed(client) for client in self.sockets)


def _is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@asynccontextmanager
async def peer_of(admin: AdminServer) -> AsyncIterator[Peer]:
    peer = Peer(admin.port)
    try:
        yield peer
    finally:
        for client in peer.sockets:
            client.close()


async def probe_times_s(port: int, count: int = 10) -> list[float]:
    """Return how long each of ``count`` probes takes. They ask for /livez and /readyz in turn."""
    times: list[float] = []
    for number in range(count):
        begun_s = time.perf_counter()
        answer = await asyncio.to_thread(ask, port, ("/livez", "/readyz")[number % 2])
        times.append(time.perf_counter() - begun_s)
        assert answer.status == 200
    return times


async def test_probes_are_answered_despite_a_thousand_idle_sockets_of_which_the_oldest_are_closed() -> None:
    async with admin_of(ready_server()) as admin, peer_of(admin) as peer:
        await asyncio.to_thread(peer.connect, IDLE, b"GET /metrics HTTP/1.1\r\nHost: ")

        times_s = await probe_times_s(admin.port)
        threads = threading.active_count()

        assert min(times_s) < PROBE_LIMIT_S, times_s
        assert sorted(times_s)[len(times_s) // 2] < PROBE_LIMIT_S, times_s
        assert threads < 20  # the threads of pytest, and those that sent the requests
        closed = [_is_closed(client) for client in peer.sockets]
        assert closed == sorted(closed, reverse=True)
        assert MAX_WAITING - len(times_s) <= closed.count(False) <= MAX_WAITING


async def test_probes_are_answered_while_a_large_scrape_is_rendered() -> None:
    server = ready_server()
    fill(server, 1_000)  # for each of two kinds of quotas
    times_s: list[float] = []
    async with admin_of(server) as admin:
        scraping = asyncio.ensure_future(scrape(await scraper(), f"http://127.0.0.1:{admin.port}/metrics"))
        while not scraping.done():
            times_s += await probe_times_s(admin.port, 2)

    assert scraping.result() == 2_000
    assert len(times_s) >= 10
    assert sorted(times_s)[len(times_s) // 2] < PROBE_LIMIT_S, times_s


async def test_a_long_response_to_a_probe_arrives_complete_and_one_that_is_not_read_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka_quota_proxy.proxy.admin.admin_port._WAIT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(
        "kafka_quota_proxy.proxy.admin.http_server.Health.readiness",
        lambda _: {"state": "ready", "padding": "x" * 8_000_000},
    )
    async with admin_of(ready_server()) as admin, peer_of(admin) as peer:
        answer = await asyncio.to_thread(ask, admin.port, "/readyz")
        assert len(json.loads(answer.body)["padding"]) == 8_000_000
        await asyncio.to_thread(peer.connect, 1, b"GET /readyz HTTP/1.0\r\n\r\n")

        await eventually(lambda: bool(admin._ports[0]._waiting))
        await eventually(lambda: not admin._ports[0]._waiting)


async def test_idle_sockets_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_quota_proxy.proxy.admin.admin_port._WAIT_TIMEOUT_S", 0.2)
    async with admin_of(ready_server()) as admin, peer_of(admin) as peer:
        await asyncio.to_thread(peer.connect, 10, b"GET /")

        await eventually(lambda: peer.closed() == 10)


async def test_a_request_may_arrive_byte_by_byte_up_to_a_maximum() -> None:
    async with admin_of(Server(CONFIG)) as admin:
        answer = await asyncio.to_thread(send, admin.port, b"GET /livez HTTP/1.0\r\nX: y\r\n\r\n", 1)
        refused = await asyncio.to_thread(send, admin.port, b"GET /livez HTTP/1.0\r\n" + b"x" * 16_400, 20_000)

    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nalive\n")
    assert refused.startswith(b"HTTP/1.0 431 ")


def send(port: int, data: bytes, piece_bytes: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), piece_bytes):
            client.sendall(data[start : start + piece_bytes])
        return b"".join(iter(lambda: client.recv(4_096), b""))


@pytest.mark.usefixtures("has_faults")
async def test_a_fault_in_a_probe_ends_only_that_probe(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = ready_server()
    async with admin_of(server) as admin:
        with monkeypatch.context() as broken:
            broken.setattr("kafka_quota_proxy.proxy.admin.admin_port._Request.handle", None)
            with pytest.raises(http.client.HTTPException):
                await asyncio.to_thread(ask, admin.port, "/readyz")
        answer = await asyncio.to_thread(ask, admin.port, "/readyz")

    assert "internal error in admin.admin_port" in caplog.text
    assert answer.status == 200


async def test_accepting_resumes_after_a_lack_of_file_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin_of(ready_server()) as admin:
        port = admin._ports[0]
        listener, port._listener = port._listener, OutOfFiles(port._listener)  # type: ignore[assignment]
        answer = await asyncio.to_thread(ask, admin.port, "/livez")
        port._listener = listener

    assert answer.status == 200
    assert caplog.text.count("accepts no connections for now") == 2


class OutOfFiles:
    """A bound socket. Its first two calls of ``accept`` fail for lack of file descriptors."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self._left = 2

    def fileno(self) -> int:
        return self._bound.fileno()

    def accept(self) -> tuple[socket.socket, object]:
        if self._left:
            self._left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._bound.accept()
