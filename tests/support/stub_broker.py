"""Runs a broker that answers from a script, and a proxy in front of the broker.

They use real sockets on the loopback interface, and one event loop.
"""

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import wraps
from ipaddress import ip_address
from struct import unpack_from
from typing import Any, ParamSpec, cast

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig
from kafka_quota_proxy.proxy.rules.keeper import wall_ms
from kafka_quota_proxy.proxy.server.brokers.broker import Upstream
from kafka_quota_proxy.proxy.server.brokers.probe import GREETING
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.server.serving_loop import ServingLoop

# Takes a request with its size prefix, and returns the bytes to send back.
Script = Callable[[bytes], bytes]
_P = ParamSpec("_P")
_POLL_S = 0.002
_TIMEOUT_S = 10.0
_TEST_TIMEOUT_S = 60.0


def on_uvloop(test: Callable[_P, Coroutine[None, None, None]]) -> Callable[_P, None]:
    """Run a test on uvloop, as the proxy runs, because the transports of uvloop differ from those of asyncio."""

    @wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with asyncio.Runner(loop_factory=ServingLoop) as runner:
            # The alarm of pytest-timeout does not interrupt uvloop.
            runner.run(asyncio.wait_for(test(*args, **kwargs), _TEST_TIMEOUT_S))

    return run


async def eventually(is_so: Callable[[], object], *, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until ``is_so`` returns true. Raises TimeoutError after ``timeout_s``."""
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 - counters have nobody to tell us
            await asyncio.sleep(_POLL_S)


def correlation_id(frame: bytes) -> int:
    """Return the correlation id of a request."""
    found: int = unpack_from(">i", frame, 8)[0]
    return found


class StubConnection(asyncio.Protocol):
    """A connection from the proxy to the broker, for a client or as a probe."""

    def __init__(self, broker: "StubBroker") -> None:
        self._broker = broker
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.requests: list[bytes] = []
        self.has_ended = False
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._broker.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            end = 4 + unpack_from(">i", self.received)[0]
            if len(self.received) < end:
                break
            request = bytes(self.received[:end])
            del self.received[:end]
            if request == GREETING:
                self.transport.write(bytes((0, 0, 0, 4)) + request[8:12])
                continue
            self.requests.append(request)
            self.transport.write(self._broker.script(request))

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class StubBroker:
    """A scripted broker on its own port, which can be stopped and restarted."""

    def __init__(self, script: Script = lambda _: b"", *, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.tls = tls
        self.connections: list[StubConnection] = []
        self.address = Address(host="127.0.0.1", port=free_port())
        self._server: asyncio.Server | None = None

    @property
    def in_use(self) -> list[StubConnection]:
        """Returns the connections that have received requests of clients, and not only those of a probe."""
        return [one for one in self.connections if one.requests or one.received]

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: StubConnection(self), self.address.host, self.address.port, ssl=self.tls
        )

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self.connections:
            connection.transport.close()
        await eventually(lambda: all(connection.is_lost for connection in self.connections))


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def free_ports(count: int) -> int:
    """Return the first of several unused ports in a row, below the ephemeral ports."""
    while True:
        first = random.randrange(12_000, 32_000 - count)  # noqa: S311 - two runs side by side should rarely meet
        with suppress(OSError):
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first


@asynccontextmanager
async def stub_broker(
    script: Script = lambda _: b"", *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[StubBroker]:
    """Run a broker that answers from a script."""
    broker = StubBroker(script, tls=tls)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextmanager
def deaf_broker(host: str = "127.0.0.1", port: int = 0) -> Iterator[Address]:
    """Yield the address of a broker that does not answer new connections.

    Its backlog is full, so the operating system ignores them.
    """
    with ExitStack() as stack:
        broker = stack.enter_context(socket.socket())
        broker.bind((host, port))
        broker.listen(0)
        while True:
            knock = stack.enter_context(socket.socket())
            knock.settimeout(0.2)
            try:
                knock.connect(broker.getsockname())
            except TimeoutError:
                break
        yield Address(host=host, port=broker.getsockname()[1])


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let each host name have these IP addresses, in this order. Return the list of the names that are resolved."""
    loop = asyncio.get_running_loop()
    resolve, names = loop.getaddrinfo, list[str]()

    async def found(host: str, port: int, **more: int) -> list[Any]:
        with suppress(ValueError):
            return await resolve(str(ip_address(host)), port, **more)  # uvloop resolves IP addresses, too
        names.append(host)
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in addresses]
        return [
            (family, socket.SOCK_STREAM, 6, "", (each, port)) for family, each in zip(families, addresses, strict=True)
        ]

    monkeypatch.setattr(loop, "getaddrinfo", found, raising=False)
    return names


def listener_to(upstream: Address, *, name: str = "clients") -> Listener:
    """Return a listener on a free port in front of a broker."""
    return Listener(name=name, bind=Address(host="127.0.0.1", port=free_port()), upstream=upstream)


def upstream_of(server: Server, address: Address) -> Upstream:
    """Return the proxy's record of the broker at an address."""
    (upstream,) = (upstream for upstream in server.brokers.upstreams if upstream.address == address)
    return upstream


@asynccontextmanager
async def running(
    config: ProxyConfig, *, wall_ms: Callable[[], int] = wall_ms, timeout_s: float = _TIMEOUT_S
) -> AsyncIterator[Server]:
    """Run a proxy, wait until its listeners are bound, and stop the proxy afterwards.

    ``wall_ms`` returns the Unix time in milliseconds.
    """
    server = Server(config, wall_ms=wall_ms)
    serving = asyncio.ensure_future(server.run())
    try:
        await eventually(lambda: server.is_listening or serving.done(), timeout_s=timeout_s)
        yield server
    finally:
        server.stop()
        server.stop()  # a second call, so that the proxy does not wait for clients
        stopped, _ = await asyncio.wait({serving}, timeout=_TIMEOUT_S)
        assert stopped, "the proxy does not stop"
        await serving


class Client:
    """A client of the proxy, which sends and receives whole frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *frames: bytes) -> None:
        """Send without waiting for an answer."""
        self.writer.writelines(frames)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """Return the next frame with its size prefix, or b"" if the proxy has closed the connection."""
        async with asyncio.timeout(_TIMEOUT_S):
            try:
                size = await self.reader.readexactly(4)
                return size + await self.reader.readexactly(unpack_from(">i", size)[0])
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""

    async def ask(self, frame: bytes) -> bytes:
        """Send a request, and return the response."""
        await self.send(frame)
        return await self.answer()

    def reset(self) -> None:
        """Reset the connection, as the system does for a killed process that has unread data."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


@asynccontextmanager
async def client_of(server: Server, *, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """Yield a client that is connected to a listener of the proxy. ``port`` is the index of the listener."""
    bind = server.config.listeners[port].bind
    reader, writer = await asyncio.open_connection(bind.host, bind.port, ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(OSError):  # the proxy may have reset the connection
            await asyncio.wait_for(writer.wait_closed(), _TIMEOUT_S)
