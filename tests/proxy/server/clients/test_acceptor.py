"""Tests how new connections are accepted, with limits, rates and PROXY protocol headers, over real sockets."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from struct import pack
from time import monotonic

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    Default,
    Enforcement,
    IpRule,
    KafkaSettings,
    ProxyConfig,
    ProxyProtocol,
)
from kafka_quota_proxy.proxy.server.clients import acceptor as acceptor_module
from kafka_quota_proxy.proxy.server.clients.acceptor import bind
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import other_request, other_response
from tests.support.stub_broker import (
    Client,
    client_of,
    correlation_id,
    eventually,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
)

ANYBODY = ProxyProtocol()
LINE = b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 9092\r\n"
SIGNATURE = bytes.fromhex("0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A")
BINARY = (
    SIGNATURE + b"\x21\x11\x00\x0f" + bytes([203, 0, 113, 7, 198, 51, 100, 1]) + pack(">HH", 56_324, 9_092) + b"\4\0\0"
)
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"


@asynccontextmanager
async def proxy_with(**limits: int | ProxyProtocol | None) -> AsyncIterator[Server]:
    """Run a proxy with one listener that has these limits, in front of a broker that responds."""
    async with stub_broker(lambda frame: other_response(correlation_id(frame))) as broker:
        listener = replace(listener_to(broker.address), **limits)  # type: ignore[arg-type]
        async with running(ProxyConfig(listeners=(listener,))) as server:
            yield server


def disconnects(server: Server) -> dict[str, int]:
    return server.listeners[0].counters.disconnects


async def is_served(client: Client, *before: bytes) -> bool:
    await client.send(*before)
    return await client.ask(other_request(7)) == other_response(7)


# -- limits on the number of connections --


@on_uvloop
async def test_accepting_resumes_after_file_descriptors_ran_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor_module, "_PAUSE_S", 0.01)
    accept, failures = socket.socket.accept, [errno.EMFILE, errno.EMFILE, errno.ECONNABORTED]

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise OSError(failures.pop(0), "no")
        return accept(self)

    async with proxy_with() as server:
        monkeypatch.setattr(socket.socket, "accept", failing)
        async with client_of(server) as client:
            assert await is_served(client)

    assert failures == []
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "listener clients accepts no connections for now: [Errno 24] no"
    ]


# -- PROXY protocol headers --


@pytest.mark.parametrize("header", [LINE, BINARY])
@pytest.mark.parametrize("in_pieces", [False, True])
@on_uvloop
async def test_behind_a_header_the_connection_is_the_clients(header: bytes, in_pieces: bool) -> None:
    async with proxy_with(proxy_protocol=ANYBODY, max_connections_per_ip=1) as server, client_of(server) as client:
        if in_pieces:
            for at in range(len(header)):
                client.writer.write(header[at : at + 1])
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        assert await is_served(client, *([] if in_pieces else [header]))

        (connection,) = server.listeners[0].connections
        assert connection.peer == "203.0.113.7:56324"
        assert server.listeners[0].open_count._by_host == {"203.0.113.7": 1}
        async with client_of(server) as other:
            assert not await is_served(other, header)
        assert disconnects(server) == {"max_connections_per_ip": 1}


@on_uvloop
async def test_the_balancers_own_connections_are_its_own() -> None:
    async with proxy_with(proxy_protocol=ANYBODY) as server, client_of(server) as client:
        assert await is_served(client, LOCAL)

        (connection,) = server.listeners[0].connections
        assert connection.peer.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    "data", [other_request(1), SIGNATURE + b"\x20\x00\xff\xff", b"PROXY TCP4 1 2 3 4\r\n", b"x" * 10_000]
)
@on_uvloop
async def test_a_client_without_the_required_proxy_header_is_closed(data: bytes) -> None:
    async with proxy_with(proxy_protocol=ANYBODY) as server:
        async with client_of(server) as client:
            assert await client.ask(data) == b""

        assert server.listeners[0].counters.protocol_errors == {"proxy_header": 1}
        assert disconnects(server) == {"protocol_error": 1}
        assert server.listeners[0].open_count.total == 0


@pytest.mark.parametrize("header", [LINE, BINARY])
@on_uvloop
async def test_an_unexpected_proxy_header_is_refused(header: bytes) -> None:
    async with proxy_with() as server:
        async with client_of(server) as client:
            assert await client.ask(header + other_request()) == b""

        assert server.listeners[0].counters.protocol_errors == {"unexpected_proxy_protocol": 1}


@on_uvloop
async def test_a_proxy_header_from_an_untrusted_source_is_refused() -> None:
    trusted = ProxyProtocol(sources=(ip_network("10.0.0.0/8"), ip_network("127.0.0.0/31")))
    async with proxy_with(proxy_protocol=trusted) as server:
        bind_to = server.config.listeners[0].bind
        for host, expected in (("127.0.0.1", True), ("127.0.0.2", False)):
            reader, writer = await asyncio.open_connection(bind_to.host, bind_to.port, local_addr=(host, 0))
            try:
                assert await Client(reader, writer).ask(LINE + other_request(7)) == (
                    other_response(7) if expected else b""
                )
            finally:
                writer.transport.abort()

        await eventually(lambda: disconnects(server).get("proxy_source") == 1)


@on_uvloop
async def test_an_unfinished_proxy_header_times_out() -> None:
    async with proxy_with(proxy_protocol=ANYBODY, login_timeout_ms=50) as server:
        async with client_of(server) as client:
            await client.send(LINE[:-1])
            assert await client.answer() == b""

        assert disconnects(server) == {"login_timeout": 1}


@on_uvloop
async def test_a_client_that_leaves_before_its_proxy_header_leaves_nothing_behind() -> None:
    async with proxy_with(proxy_protocol=ANYBODY) as server:
        async with client_of(server) as client:
            await client.send(LINE[:5])
            await eventually(lambda: server.listeners[0].open_count.total == 1)
            client.writer.close()
            await eventually(lambda: disconnects(server) == {"client_closed": 1})
        async with client_of(server) as client:
            await client.send(LINE[:5])
            await eventually(lambda: server.listeners[0].open_count.total == 1)
            client.reset()
            await eventually(lambda: disconnects(server).get("client_lost") == 1)

        assert server.listeners[0].open_count.total == 0


@on_uvloop
async def test_a_pending_proxy_header_does_not_delay_a_stop() -> None:
    async with proxy_with(proxy_protocol=ANYBODY) as server, client_of(server) as client:
        await client.send(LINE[:5])
        await eventually(lambda: server.listeners[0].open_count.total == 1)
        server.stop()

        assert await client.answer() == b""


# -- quotas on the creation of connections --

# The rate is measured over the current window and one window of a second before it.
QUICK = KafkaSettings(quota_window_num=2)


@asynccontextmanager
async def proxy_under(
    ips: dict[str | Default, float] | None = None,
    *,
    broker: int = 2**31 - 1,
    listeners: int = 1,
    enforcement: Enforcement = Enforcement.RESPOND,
    **limits: int | ProxyProtocol | None,
) -> AsyncIterator[Server]:
    """Run a proxy with quotas on new connections: of addresses, of the broker, and of each listener (``limits``)."""
    async with stub_broker(lambda frame: other_response(correlation_id(frame))) as stub:
        config = ProxyConfig(
            listeners=tuple(
                replace(listener_to(stub.address, name=f"listener-{n}"), **limits)  # type: ignore[arg-type]
                for n in range(listeners)
            ),
            kafka=replace(QUICK, max_connection_creation_rate=broker),
            ip_quotas=tuple(IpRule(ip=ip, connection_creation_rate=limit) for ip, limit in (ips or {}).items()),
            enforcement=enforcement,
        )
        async with running(config) as server:
            yield server


async def served_after_s(server: Server, *, port: int = 0, before: bytes = b"") -> float | None:
    """Connect and send a request. Return the time until its response, or None if the proxy closes the connection."""
    started_s = monotonic()
    async with client_of(server, port=port) as client:
        return monotonic() - started_s if await client.ask(before + other_request(7)) else None


@on_uvloop
async def test_an_address_over_its_connection_rate_is_refused_late_and_others_are_served() -> None:
    async with proxy_under({"127.0.0.1": 5.0}, max_connection_creation_rate=50) as server:
        assert None not in [await served_after_s(server) for _ in range(5)]
        started_s = monotonic()
        async with client_of(server) as refused:
            await refused.send(other_request(7))
            await eventually(lambda: len(server.listeners[0].refused_sockets))
            bind_to = server.config.listeners[0].bind
            reader, writer = await asyncio.open_connection(bind_to.host, bind_to.port, local_addr=("127.0.0.2", 0))
            assert await is_served(Client(reader, writer))
            writer.transport.abort()
            assert await refused.answer() == b""
        kept_s = monotonic() - started_s

        assert 0.1 < kept_s < 0.3
        assert disconnects(server)["connection_creation_rate"] == 1
        assert (len(server.listeners[0].refused_sockets), server.listeners[0].open_count.total) == (0, 0)
        assert server.brokers.quotas_by_name[0][1].arrivals.listener("listener-0").rate.total == 6


@on_uvloop
async def test_the_connection_rate_counts_the_address_in_the_proxy_header() -> None:
    async with proxy_under({"203.0.113.7": 1.0}, proxy_protocol=ANYBODY) as server:
        assert await served_after_s(server, before=LINE)
        started_s = monotonic()
        assert await served_after_s(server, before=BINARY) is None
        assert 0.8 < monotonic() - started_s < 1.5
        assert await served_after_s(server, before=LOCAL)

        assert disconnects(server)["connection_creation_rate"] == 1
        await eventually(lambda: not server.listeners[0].open_count.total)
        assert server.brokers.quotas_by_name[0][1].arrivals.rate.total == 2


# -- the addresses of a listener --


def test_host_name_is_bound_at_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)

    bound = bind(Address(host="localhost", port=0))

    assert [one.getsockname()[0] for one in bound] == ["127.0.0.1", "127.0.0.2"]
    for one in bound:
        one.close()


def test_an_address_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            OSError,
            match=f"cannot listen on 127.0.0.1:{port}: Address already in use; stop the process that listens there, or",
        ):
            bind(Address(host="127.0.0.1", port=port))


@on_uvloop
async def test_clients_connections_are_without_delay() -> None:
    """Nagle's algorithm would hold back a small response until the client acknowledges the previous one."""
    async with proxy_with() as server, client_of(server) as client:
        assert await is_served(client)
        (connection,) = server.listeners[0].connections
        transport = connection.transports.client
        assert transport is not None
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
