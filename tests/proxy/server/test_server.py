"""Tests the listeners, dials and periodic checks of a proxy in front of a stub broker, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from struct import unpack_from
from typing import NoReturn

import pytest

from kafka_quota_proxy.config.model import (
    DEFAULT,
    AdminClient,
    ProxyConfig,
    QuotaRule,
    Replication,
)
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.replication import config_watcher as watcher_module
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView
from kafka_quota_proxy.proxy.server import sweeps as sweeps_module
from kafka_quota_proxy.proxy.server.brokers import dialer as dialer_module
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.reloads import Reloads
from tests.support.stub_broker import (
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
)

LIMITED = QuotaRule(client_id="etl", producer_byte_rate=1_000.0)
NEVER_S = 3_600.0


@pytest.fixture(autouse=True)
def probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer_module, "_PROBE_EVERY_S", NEVER_S)


def answers(frame: bytes) -> bytes:
    """Return the response to a Produce request or any other request."""
    if unpack_from(">h", frame, 4)[0] == 0:
        return produce_response(correlation_id(frame))
    return other_response(correlation_id(frame))


def config_to(*brokers: StubBroker, quotas: tuple[QuotaRule, ...] = ()) -> ProxyConfig:
    listeners = tuple(listener_to(broker.address, name=f"listener-{n}") for n, broker in enumerate(brokers))
    return ProxyConfig(listeners=listeners, quotas=quotas)


def away(*_: object) -> NoReturn:
    """Fail as a connection to a cluster that does not answer."""
    raise OSError("away")


def one_of(server: Server) -> ClientConnection:
    (connection,) = server.listeners[0].connections
    return connection


@asynccontextmanager
async def serving(config: ProxyConfig) -> AsyncIterator[tuple[Server, asyncio.Future[None]]]:
    """Run a proxy. Yield the proxy and a future that is done when the proxy has stopped."""
    server = Server(config)
    end = asyncio.ensure_future(server.run())
    await eventually(lambda: server.is_listening or end.done())
    try:
        yield server, end
    finally:
        server.stop()
        server.stop()
        await end


def disconnects(server: Server, port: int = 0) -> dict[str, int]:
    return server.listeners[port].counters.disconnects


@on_uvloop
async def test_each_listener_has_its_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    async with stub_broker() as broker:
        config = config_to(broker, broker)
        async with running(config):
            pass

    assert capsys.readouterr().out.splitlines() == [
        f"listening on {listener.bind} ({listener.name}) -> {broker.address}" for listener in config.listeners
    ]


@on_uvloop
async def test_readiness_follows_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer_module, "_PROBE_EVERY_S", 0.01)
    broker = StubBroker()
    config = config_to(broker)
    health = Health(Server(config), Reloads())
    assert health.readiness()["state"] == "starting"

    async with running(config) as server:
        health = Health(server, Reloads())
        await eventually(lambda: health.readiness()["state"] == "degraded")
        await broker.start()
        await eventually(lambda: health.readiness()["state"] == "ready")
        await broker.stop()
        await eventually(lambda: health.readiness()["state"] == "degraded")
        await broker.start()
        await eventually(lambda: health.readiness()["state"] == "ready")
    await broker.stop()


@on_uvloop
async def test_the_view_of_the_cluster_is_dropped_with_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watcher_module, "_connect", away)
    async with stub_broker(answers) as broker:
        listener = replace(listener_to(broker.address), inter_broker=True)
        config = ProxyConfig(listeners=(listener,), replication=Replication(from_cluster=True))
        async with serving(config) as (server, _):
            server.replication.see(ClusterView(leader_rates={1: 5.0}))
            server.apply(replace(config, replication=None))
            server.apply(config)

            assert server.replication.throttle.leader_rate(1) is None


@on_uvloop
async def test_a_reload_with_bootstrap_servers_starts_the_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_connect", away)
    async with stub_broker(answers) as broker:
        unlimited = replace(config_to(broker), replication=Replication(leader_rate=1.0))
        settings = AdminClient(bootstrap_servers=(broker.address,))
        limited = replace(unlimited, replication=Replication(leader_rate=1.0, admin_client=settings))
        async with serving(unlimited) as (server, _):
            assert server.replication.watcher is None
            server.apply(limited)
            assert server.replication.watcher is not None
            assert server.replication.throttle.ask == server.replication.watcher.request
            followed = server.replication.watcher
            server.apply(replace(unlimited, replication=Replication(leader_rate=2.0, admin_client=settings)))
            assert server.replication.watcher is followed
            server.apply(unlimited)
            assert server.replication.watcher is None


# -- buffered bytes --


@on_uvloop
async def test_max_buffered_closes_the_largest_holder(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sweeps_module, "resident_bytes", lambda: 1 << 40)
    monkeypatch.setattr(sweeps_module, "_SWEEP_EVERY_S", 0.1)
    each_alone = QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0)
    async with (
        stub_broker(answers) as broker,
        serving(replace(config_to(broker, quotas=(each_alone,)), max_buffered_bytes=200_000)) as (server, _),
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(client_of(server)) for _ in range(4)]
        for client, size_bytes in zip(clients, (60_000, 90_000, 30_000, 100_000), strict=True):
            name = f"etl-{size_bytes}"
            # The throttle time for this request is half a minute.
            await client.ask(produce_request(0, client_id=name, size_bytes=40_000))
            await client.send(produce_request(1, client_id=name, size_bytes=size_bytes))

        assert await clients[3].answer() == b""
        await eventually(lambda: disconnects(server) == {"max_buffered": 1})
        assert [vars(one)["cause"] for one in caplog.records if "held more than" in one.message] == ["max_buffered"]
        await asyncio.sleep(0.3)  # meanwhile the next checks run

        assert disconnects(server) == {"max_buffered": 1}
        assert sum(connection.held_bytes() or 0 for connection in server.listeners[0].connections) == 180_000 + 3 * 4


@on_uvloop
async def test_unread_responses_count_as_held_by_their_client() -> None:
    response = fetch_response(size_bytes=20 * 1024 * 1024)
    async with (
        stub_broker(lambda _: response) as broker,
        serving(config_to(broker)) as (server, _),
        client_of(server) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(fetch_request())
        await eventually(lambda: server.listeners[0].connections and (one_of(server).held_bytes() or 0) > 64 * 1024)

        one_of(server).abort("max_buffered")

        await eventually(lambda: not server.listeners[0].open_count.total and not server.listeners[0].broker_count)
        assert disconnects(server) == {"max_buffered": 1}


# -- the stop of the proxy --


@on_uvloop
async def test_a_stop_closes_every_connection_in_order_and_counts_it() -> None:
    async with stub_broker(answers) as broker, serving(config_to(broker)) as (server, end), client_of(server) as client:
        await client.ask(other_request())
        server.stop()
        assert await client.answer() == b""
        client.writer.close()
        await end

        assert disconnects(server) == {"shutdown": 1}
        await eventually(lambda: all(one.is_lost for one in broker.in_use))


@on_uvloop
async def test_stop_accepts_no_more_connections_and_is_logged() -> None:
    async with stub_broker() as broker, serving(config_to(broker)) as (server, end), client_of(server) as client:
        await client.send(other_request())
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        health = Health(server, Reloads())
        server.stop()
        await eventually(lambda: server.is_draining)
        assert health.readiness()["state"] == "draining"
        await asyncio.sleep(0)

        with pytest.raises(ConnectionRefusedError):
            async with client_of(server):
                pass
        assert not end.done()
        broker.in_use[0].transport.write(other_response())
        assert await client.answer() == other_response()
        client.writer.close()
        await end


@on_uvloop
async def test_connections_that_outlast_the_drain_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with (
        stub_broker() as broker,
        serving(replace(config_to(broker), drain_timeout_ms=100)) as (server, end),
        client_of(server) as client,
    ):
        await client.send(other_request())
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        server.stop()
        await end

        assert await client.answer() == b""
        assert disconnects(server) == {"shutdown": 1}
    assert "stopping: waiting at most 100 ms for 1 connections to end" in caplog.messages
    assert "stopping: 1 connections did not end in time and were closed" in caplog.messages


@on_uvloop
async def test_a_second_stop_ends_the_drain() -> None:
    async with stub_broker() as broker, serving(config_to(broker)) as (server, end), client_of(server) as client:
        await client.send(other_request())
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        server.stop()
        await asyncio.sleep(0.05)
        assert not end.done()
        async with asyncio.timeout(2):
            server.stop()
            await end

        assert await client.answer() == b""


@on_uvloop
async def test_acks_0_requests_are_sent_before_a_stop_ends() -> None:
    async with stub_broker() as broker, serving(config_to(broker)) as (server, end), client_of(server) as client:
        await client.send(produce_request(0, acks=0))
        await eventually(lambda: broker.in_use and server.listeners[0].broker_count)
        broker.in_use[0].transport.pause_reading()
        connection, count = one_of(server), 1
        while not connection.transports.broker or not connection.transports.broker.get_write_buffer_size():
            await client.send(produce_request(count, acks=0, size_bytes=60_000))
            count += 1
            await asyncio.sleep(0.001)
        client.writer.close()
        server.stop()
        await eventually(lambda: not server.listeners[0].open_count.total)
        await asyncio.sleep(0.1)
        assert not end.done()

        broker.in_use[0].transport.resume_reading()
        await end

        assert len(broker.in_use[0].requests) == count


# -- periodic checks --


@on_uvloop
async def test_a_muted_client_that_sent_ahead_and_was_reset_is_noticed_within_2_s() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker, quotas=(LIMITED,))) as server:
        async with client_of(server) as client:
            await client.ask(produce_request(1, size_bytes=40_000))
            await client.send(produce_request(2, size_bytes=400))
            (connection,) = server.listeners[0].connections
            await eventually(lambda: connection.paused_socket() is not None)
            client.reset()

            async with asyncio.timeout(2):
                await eventually(lambda: disconnects(server))

        assert list(disconnects(server).values()) == [1]
        assert not server.listeners[0].connections
