"""Listeners, dials and sweeps, over real sockets in front of a stub broker."""

import asyncio
import logging
import socket
from dataclasses import replace
from struct import unpack_from
from time import monotonic

import pytest

from config.model import Address, ProxyConfig, QuotaRule
from proxy import dialler as dialler_module
from proxy.admin import Health
from proxy.server import Server
from tests.support.frames import other_request, other_response, produce_request, produce_response
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

LIMITED = QuotaRule(client_id="etl", producer_byte_rate=1_000.0)
NEVER_S = 3_600.0


@pytest.fixture(autouse=True)
def probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialler_module, "_PROBE_EVERY_S", NEVER_S)


class Reloads:
    last_reload_successful = True
    last_reload_timestamp_seconds = 0.0
    hash = ""


def answers(frame: bytes) -> bytes:
    """Answer Produce and anything else."""
    if unpack_from(">h", frame, 4)[0] == 0:
        return produce_response(correlation_id(frame))
    return other_response(correlation_id(frame))


def config_to(*brokers: StubBroker, quotas: tuple[QuotaRule, ...] = ()) -> ProxyConfig:
    listeners = tuple(listener_to(broker.address, name=f"listener-{n}") for n, broker in enumerate(brokers))
    return ProxyConfig(listeners=listeners, quotas=quotas)


def disconnects(server: Server, port: int = 0) -> dict[str, int]:
    return server.ports[port].counters.disconnects


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
async def test_a_port_that_the_system_chose_is_the_one_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    async with stub_broker(answers) as broker:
        listener = replace(listener_to(broker.address), bind=Address(host="127.0.0.1", port=0))
        async with running(ProxyConfig(listeners=(listener,))):
            port = int(capsys.readouterr().out.split()[2].rpartition(":")[2])
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()


@on_uvloop
async def test_a_port_in_use_is_an_error() -> None:
    async with stub_broker() as broker:
        config = config_to(broker)
        port = config.listeners[0].bind.port
        with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match=str(port)):
            await Server(config).run()


@on_uvloop
async def test_an_upstream_that_refuses_closes_the_client_and_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nobody = Address(host="127.0.0.1", port=free_port())
    async with running(ProxyConfig(listeners=(listener_to(nobody),))) as server:
        async with client_of(server) as client:
            assert await client.ask(other_request()) == b""

        assert disconnects(server) == {"upstream_refused": 1}
        assert [f"cannot reach upstream {nobody}" in record.message for record in caplog.records] == [True]


@on_uvloop
async def test_many_refused_clients_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    nobody = Address(host="127.0.0.1", port=free_port())
    async with running(ProxyConfig(listeners=(listener_to(nobody),))) as server:
        for _ in range(5):
            async with client_of(server) as client:
                await client.ask(other_request())

        assert disconnects(server) == {"upstream_refused": 5}
        assert len(caplog.records) == 1


@on_uvloop
async def test_an_upstream_that_is_no_name_in_dns_is_one_that_cannot_be_reached() -> None:
    async with running(ProxyConfig(listeners=(listener_to(Address(host="kafka..local", port=9092)),))) as server:
        for number in (1, 2):
            async with client_of(server) as client:
                assert await client.ask(other_request()) == b""

            assert disconnects(server) == {"upstream_refused": number}


@on_uvloop
async def test_a_client_waits_no_longer_for_its_turn_to_dial_than_for_the_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(dialler_module, "_MAX_DIALS", 1)
    monkeypatch.setattr(dialler_module, "_DIAL_TIMEOUT_S", 0.5)
    async with stub_broker(answers) as broker, running(config_to(broker)) as server:
        async with client_of(server) as one, client_of(server) as other, client_of(server) as third:
            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never, raising=False)
            for client in (one, other, third):
                await client.send(other_request())
            started_s = monotonic()
            assert [await client.answer() for client in (one, other, third)] == [b"", b"", b""]

        assert monotonic() - started_s < 0.95
        assert disconnects(server) == {"upstream_timeout": 3}


@on_uvloop
async def test_the_listener_stays_up_while_the_broker_restarts() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server:
        async with client_of(server) as client:
            assert await client.ask(other_request(7)) == other_response(7)
            await broker.stop()
            assert await client.answer() == b""
        async with client_of(server) as client:
            assert await client.ask(other_request(8)) == b""

        await broker.start()

        async with client_of(server) as client:
            assert await client.ask(other_request(9)) == other_response(9)
        assert disconnects(server)["upstream_closed"] == 1
        assert disconnects(server)["upstream_refused"] == 1


@on_uvloop
async def test_readiness_follows_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialler_module, "_PROBE_EVERY_S", 0.01)
    broker = StubBroker()
    config = config_to(broker)
    health = Health(asyncio.get_running_loop(), Server(config), Reloads())
    assert health.readiness()["state"] == "starting"

    async with running(config) as server:
        health = Health(asyncio.get_running_loop(), server, Reloads())
        await eventually(lambda: health.readiness()["state"] == "degraded")
        await broker.start()
        await eventually(lambda: health.readiness()["state"] == "ready")
        await broker.stop()
        await eventually(lambda: health.readiness()["state"] == "degraded")
        await broker.start()
        await eventually(lambda: health.readiness()["state"] == "ready")
    await broker.stop()


@on_uvloop
async def test_a_client_that_gets_through_makes_the_upstream_reachable_before_the_next_probe() -> None:
    broker = StubBroker(answers)
    async with running(config_to(broker)) as server:
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
async def test_listeners_of_one_upstream_share_its_buckets() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker, broker, quotas=(LIMITED,))) as server:
        for port in (0, 1):
            async with client_of(server, port=port) as client:
                await client.ask(produce_request(size_bytes=300))

        (bucket,) = [one for one in upstream_of(server, broker.address).quotas.produce if one.requests]
        assert (bucket.tags.client_id, bucket.amount) == ("etl", 600)


@on_uvloop
async def test_two_upstreams_have_a_quota_each() -> None:
    async with (
        stub_broker(answers) as one,
        stub_broker(answers) as other,
        running(config_to(one, other, quotas=(LIMITED,))) as server,
    ):
        for port in (0, 1):
            async with client_of(server, port=port) as client:
                await client.ask(produce_request(size_bytes=300))

        managers = [upstream.quotas.produce for upstream in server.upstreams]
        assert [bucket.amount for one in managers for bucket in one if bucket.requests] == [300, 300]


@on_uvloop
async def test_a_new_limit_holds_from_the_next_request_of_an_open_connection() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server:
        async with client_of(server) as client:
            assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1)

            server.apply(replace(server.config, quotas=(LIMITED,), max_throttle_time_ms=77))

            # The bucket of an unlimited client is another one, so its 20,000 bytes are sent anew.
            throttled = await client.ask(produce_request(2, size_bytes=20_000))
        assert throttled == produce_response(2, throttle_time_ms=77)
        assert "upstream_closed" not in disconnects(server)


@on_uvloop
async def test_stop_closes_every_connection_and_counts_it() -> None:
    async with stub_broker(answers) as broker:
        async with running(config_to(broker)) as server, client_of(server) as client:
            await client.ask(other_request())
            server.stop()
            assert await client.answer() == b""

        assert disconnects(server) == {"shutdown": 1}
        await eventually(lambda: all(one.is_lost for one in broker.in_use))


@on_uvloop
async def test_stop_does_not_wait_for_a_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    dialling = asyncio.Event()

    async def never(*_: object) -> None:
        dialling.set()
        await asyncio.Event().wait()

    async with stub_broker(answers) as broker:
        async with running(config_to(broker)) as server, client_of(server) as client:
            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never, raising=False)
            await client.send(other_request())
            await dialling.wait()
            stopped = monotonic()

        assert monotonic() - stopped < 2  # it would be given up after 10


@on_uvloop
async def test_a_muted_client_that_leaves_is_noticed_within_2_s() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker, quotas=(LIMITED,))) as server:
        async with client_of(server) as client:
            await client.ask(produce_request(size_bytes=40_000))  # 30 s of silence
            client.writer.close()

            async with asyncio.timeout(2):
                await eventually(lambda: disconnects(server))

        assert disconnects(server) == {"client_closed": 1}


@on_uvloop
async def test_a_muted_client_that_sent_ahead_and_was_reset_is_noticed_within_2_s() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker, quotas=(LIMITED,))) as server:
        async with client_of(server) as client:
            await client.ask(produce_request(1, size_bytes=40_000))
            await client.send(produce_request(2, size_bytes=400))
            (connection,) = server.ports[0].connections
            await eventually(lambda: connection.paused_socket is not None)
            client.reset()

            async with asyncio.timeout(2):
                await eventually(lambda: disconnects(server))

        assert list(disconnects(server).values()) == [1]
        assert not server.ports[0].connections


@on_uvloop
async def test_who_is_throttled_is_logged_within_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, quotas=(LIMITED,))) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(size_bytes=40_000))
        async with asyncio.timeout(2):
            await eventually(lambda: caplog.records)

    assert "client-id='etl'" in caplog.records[0].message
