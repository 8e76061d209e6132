"""Listeners, dials and sweeps, over real sockets in front of a stub broker."""

import asyncio
import logging
import socket
from dataclasses import replace
from struct import unpack_from

import pytest

from config.model import Address, ProxyConfig, QuotaRule, Sasl
from proxy import dialler as dialler_module
from proxy.admin import Health
from proxy.server import Server
from tests.support.frames import other_request, other_response, produce_request, produce_response
from tests.support.logins import authenticate_request, authenticate_response, handshake_request, handshake_response
from tests.support.stub_broker import (
    StubBroker,
    client_of,
    correlation_id,
    eventually,
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
async def test_a_login_that_does_not_tell_who_it_is_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    def accepts(frame: bytes) -> bytes:
        is_handshake = unpack_from(">h", frame, 4)[0] == 17
        answer = handshake_response if is_handshake else authenticate_response
        return answer(correlation_id=correlation_id(frame))

    async with stub_broker(accepts) as broker, running(config_to(broker)) as server:
        for _ in range(2):
            async with client_of(server) as client:
                await client.ask(handshake_request("GSSAPI"))
                await client.ask(authenticate_request(b"\x60ticket"))
        async with asyncio.timeout(2):
            await eventually(lambda: caplog.records)

    assert server.ports[0].counters.logins == {("GSSAPI", "unknown"): 2}
    (record,) = caplog.records
    assert "logged in by SASL mechanism GSSAPI" in record.message
    assert "charged as user UNKNOWN" in record.message
    assert "ticket" not in caplog.text


@on_uvloop
async def test_a_claim_that_a_reload_names_holds_for_the_next_login() -> None:
    async with stub_broker(answers) as broker:
        config = config_to(broker)
        server = Server(config)
        listeners = tuple(replace(one, sasl=Sasl(oauthbearer_claim="azp")) for one in config.listeners)

        server.apply(replace(config, listeners=listeners))

        assert [door.policy.oauthbearer_claim for door in server._doors] == ["azp"]


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
