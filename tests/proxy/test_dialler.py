"""Dials to brokers that answer, refuse, or do neither, over real sockets."""

import asyncio
from dataclasses import replace
from time import monotonic

import pytest

from config.model import Address, ProxyConfig
from proxy import dialler as dialler_module
from proxy.server import Server
from tests.support.frames import other_request, other_response
from tests.support.stub_broker import (
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    free_port,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
    upstream_of,
)

NEVER_S = 3_600.0


@pytest.fixture(autouse=True)
def probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialler_module, "_PROBE_EVERY_S", NEVER_S)


def answers(frame: bytes) -> bytes:
    return other_response(correlation_id(frame))


def _config(broker: StubBroker) -> ProxyConfig:
    return ProxyConfig(listeners=(listener_to(broker.address),))


def _disconnects(server: Server) -> dict[str, int]:
    return server.ports[0].counters.disconnects


@on_uvloop
async def test_an_upstream_that_refuses_closes_the_client_and_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nobody = Address(host="127.0.0.1", port=free_port())
    async with running(ProxyConfig(listeners=(listener_to(nobody),))) as server:
        async with client_of(server) as client:
            assert await client.ask(other_request()) == b""

        assert _disconnects(server) == {"upstream_refused": 1}
        assert [f"cannot reach upstream {nobody}" in record.message for record in caplog.records] == [True]


@on_uvloop
async def test_many_refused_clients_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    nobody = Address(host="127.0.0.1", port=free_port())
    async with running(ProxyConfig(listeners=(listener_to(nobody),))) as server:
        for _ in range(5):
            async with client_of(server) as client:
                await client.ask(other_request())

        assert _disconnects(server) == {"upstream_refused": 5}
        assert len(caplog.records) == 1


@on_uvloop
async def test_an_upstream_that_is_no_name_in_dns_is_one_that_cannot_be_reached() -> None:
    async with running(ProxyConfig(listeners=(listener_to(Address(host="kafka..local", port=9092)),))) as server:
        for number in (1, 2):
            async with client_of(server) as client:
                assert await client.ask(other_request()) == b""

            assert _disconnects(server) == {"upstream_refused": number}


@on_uvloop
async def test_a_client_waits_no_longer_for_its_turn_to_dial_than_for_the_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(dialler_module, "_MAX_DIALS", 1)
    monkeypatch.setattr(dialler_module, "_DIAL_TIMEOUT_S", 0.5)
    async with stub_broker(answers) as broker, running(_config(broker)) as server:
        async with client_of(server) as one, client_of(server) as other, client_of(server) as third:
            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never, raising=False)
            for client in (one, other, third):
                await client.send(other_request())
            started_s = monotonic()
            assert [await client.answer() for client in (one, other, third)] == [b"", b"", b""]

        assert monotonic() - started_s < 0.95
        assert _disconnects(server) == {"upstream_timeout": 3}


@on_uvloop
async def test_a_client_that_gets_through_makes_the_upstream_reachable_before_the_next_probe() -> None:
    broker = StubBroker(answers)
    async with running(_config(broker)) as server:
        upstream = upstream_of(server, broker.address)
        async with client_of(server) as client:
            await client.ask(other_request())
        assert not upstream.is_reachable
        await broker.start()

        async with client_of(server) as client:
            await client.ask(other_request())

        assert upstream.is_reachable
    await broker.stop()


@on_uvloop
async def test_stop_does_not_wait_for_a_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    dialling = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        dialling.set()
        await asyncio.Event().wait()

    async with stub_broker(answers) as broker:
        async with running(_config(broker)) as server, client_of(server) as client:
            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never, raising=False)
            await client.send(other_request())
            await dialling.wait()
            stopped = monotonic()

        assert monotonic() - stopped < 2  # it would be given up after 10


@on_uvloop
async def test_brokers_see_the_address_that_the_file_names() -> None:
    async with (
        stub_broker(answers) as broker,
        running(replace(_config(broker), upstream_bind="127.0.0.9")) as server,
        client_of(server) as client,
    ):
        await client.ask(other_request())
        await eventually(lambda: len(broker.connections) == 2)  # the client's and a probe's

        peers = {connection.transport.get_extra_info("peername")[0] for connection in broker.connections}
        assert peers == {"127.0.0.9"}


@on_uvloop
async def test_a_probe_says_whether_the_broker_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialler_module, "_PROBE_EVERY_S", 0.01)
    broker = StubBroker(answers)
    async with running(_config(broker)) as server:
        upstream = upstream_of(server, broker.address)
        await broker.start()
        await eventually(lambda: upstream.is_reachable)
        await broker.stop()
        await eventually(lambda: not upstream.is_reachable)
