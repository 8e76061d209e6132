"""Tests connections to brokers that answer, refuse, or do neither, over real sockets."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest

from kafka_quota_proxy.config.model import Address, ProxyConfig
from kafka_quota_proxy.config.security import UpstreamTls
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.server import sweeps
from kafka_quota_proxy.proxy.server.brokers import dialer as dialer_module
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.dialer import BrokerConnection, Prober
from kafka_quota_proxy.proxy.server.brokers.known_brokers import KnownBrokers
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.certificates import Authority
from tests.support.frames import other_request, other_response, produce_request
from tests.support.stub_broker import (
    StubBroker,
    client_of,
    correlation_id,
    deaf_broker,
    eventually,
    free_port,
    listener_to,
    on_uvloop,
    resolve_to,
    running,
    stub_broker,
    upstream_of,
)

NEVER_S = 3_600.0


@pytest.fixture(autouse=True)
def probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer_module, "_PROBE_EVERY_S", NEVER_S)


def answers(frame: bytes) -> bytes:
    return other_response(correlation_id(frame))


def _config(broker: StubBroker) -> ProxyConfig:
    return ProxyConfig(listeners=(listener_to(broker.address),))


def _disconnects(server: Server) -> dict[str, int]:
    return server.listeners[0].counters.disconnects


@on_uvloop
async def test_an_upstream_that_refuses_closes_the_client_and_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unused = Address(host="127.0.0.1", port=free_port())
    async with running(ProxyConfig(listeners=(listener_to(unused),))) as server:
        async with client_of(server) as client:
            assert await client.ask(other_request()) == b""

        assert _disconnects(server) == {"upstream_refused": 1}
        assert [f"cannot reach upstream {unused}" in record.message for record in caplog.records] == [True]
        fields = vars(caplog.records[0])
        assert [fields[key] for key in ("event", "upstream", "failures")] == ["upstream_unreachable", str(unused), 1]


@on_uvloop
async def test_client_that_comes_at_the_end_of_a_drain_is_closed_at_once() -> None:
    """A dial would let the process live on for as long as its broker is silent."""
    with deaf_broker() as deaf:
        async with running(ProxyConfig(listeners=(listener_to(deaf),))) as server:
            server._dialer.cancel()
            async with client_of(server) as client:
                assert await asyncio.wait_for(client.ask(other_request()), 2) == b""

            assert _disconnects(server) == {"shutdown": 1}


@on_uvloop
async def test_a_fault_is_one_line_in_the_log_until_it_ends_and_a_dial_does_not_hide_what_a_probe_knows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Plaintext to a port that expects TLS: each client connects, and is then disconnected."""

    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"\x15\x03\x03\0\2\2\x50")
        writer.close()

    caplog.set_level("INFO", "kafka_quota_proxy.proxy.server.brokers.broker")
    monkeypatch.setattr(dialer_module, "_PROBE_EVERY_S", 0.01)
    port = await asyncio.start_server(hangs_up, "127.0.0.1", 0)
    broker = StubBroker(answers)
    broker.address = Address(host="127.0.0.1", port=port.sockets[0].getsockname()[1])
    async with port, running(_config(broker)) as server:
        upstream = upstream_of(server, broker.address)
        await eventually(lambda: upstream.failures > 2)
        for _ in range(3):
            async with client_of(server) as client:
                await client.ask(other_request())
            assert not server.brokers.is_reachable()
        port.close()
        await port.wait_closed()
        await broker.start()
        await eventually(server.brokers.is_reachable)
        await broker.stop()

    lines = [record.message for record in caplog.records if record.name.endswith("server.brokers.broker")]
    assert lines == [
        f"cannot reach upstream {broker.address}: it expects TLS there; give upstream_tls, or use its plaintext port",
        f"upstream {broker.address} can be reached again",
    ]


@on_uvloop
async def test_a_prober_tries_new_brokers_at_once_and_takes_its_connections_along() -> None:
    connections: list[asyncio.Protocol] = []

    class Silent(asyncio.Protocol):
        def connection_made(self, _: asyncio.BaseTransport) -> None:
            connections.append(self)

        def connection_lost(self, _: Exception | None) -> None:
            connections.remove(self)

    async with await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0) as port:
        address = Address(host="127.0.0.1", port=port.sockets[0].getsockname()[1])
        known, new = (Upstream(address, lambda: Broker(BrokerQuotas(ProxyConfig(listeners=())))) for _ in range(2))
        prober = Prober(lambda: [known], None)
        prober.add(new)
        for _ in range(2):  # it is begun again after a fault
            before = asyncio.all_tasks()
            probing = asyncio.ensure_future(prober.run())
            await eventually(lambda: len(connections) == 1)
            prober.add(new)
            await eventually(lambda: len(connections) == 2)

            probing.cancel()
            await asyncio.wait([probing], timeout=3)
            assert asyncio.all_tasks() <= before
            await eventually(lambda: not connections)
            prober.add(new)  # which begins no attempt
            assert asyncio.all_tasks() <= before


async def _never(*_: object, **__: object) -> None:
    """Stand in for ``create_connection`` to a broker that does not answer."""
    await asyncio.Event().wait()


@on_uvloop
async def test_the_time_out_of_a_dial_begins_with_the_dial_and_not_with_the_wait_for_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialer_module, "_MAX_DIALS", 1)
    monkeypatch.setattr(dialer_module, "_DIAL_TIMEOUT_S", 0.3)
    async with stub_broker(answers) as broker, running(_config(broker)) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(server)) for _ in range(3)]
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", _never, raising=False)
        started_s = monotonic()
        for client in clients:
            await client.send(other_request())
        for number, client in enumerate(clients, start=1):
            assert await client.answer() == b""
            assert monotonic() - started_s >= 0.29 * number

        assert _disconnects(server) == {"upstream_timeout": 3}


@on_uvloop
async def test_dials_to_a_silent_broker_do_not_delay_dials_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownBrokers, "is_introduced", lambda *_: True)  # the broker was not always silent
    async with stub_broker(answers) as broker, AsyncExitStack() as stack:
        deaf = stack.enter_context(deaf_broker())
        config = ProxyConfig(listeners=(listener_to(deaf, name="deaf"), listener_to(broker.address)))
        server = await stack.enter_async_context(running(config))
        waiting = [await stack.enter_async_context(client_of(server)) for _ in range(80)]
        for client in waiting:
            await client.send(other_request())
        await eventually(lambda: all(connection.is_past_login for connection in server.listeners[0].connections))

        for _ in range(5):
            async with client_of(server, port=1) as client:
                started_s = monotonic()
                assert await client.ask(other_request(5)) == other_response(5)
                assert monotonic() - started_s < 1.0
        assert len(server.listeners[0].connections) == 80


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.usefixtures("authority")
@on_uvloop
async def test_a_dial_that_completes_as_its_time_out_fires_ends_one_client_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tls: bool
) -> None:
    connection_made = BrokerConnection.connection_made

    def late(self: BrokerConnection, transport: asyncio.BaseTransport) -> None:
        monkeypatch.undo()
        connection_made(self, transport)
        sleep(0.4)  # when the event loop continues, the dial is done and its timeout has passed

    async with (
        stub_broker(answers, tls=_brokers_tls(tmp_path) if has_tls else None) as broker,
        running(
            _tls_config(broker, UpstreamTls(ca=str(tmp_path / "ca.pem"))) if has_tls else _config(broker)
        ) as server,
    ):
        await eventually(lambda: upstream_of(server, broker.address).is_reachable)
        monkeypatch.setattr(dialer_module, "_DIAL_TIMEOUT_S", 0.3)
        monkeypatch.setattr(BrokerConnection, "connection_made", late)
        async with client_of(server) as client, client_of(server) as other:
            assert await client.ask(other_request()) == b""
            assert await other.ask(other_request(7)) == other_response(7)

            assert _disconnects(server) == {"upstream_timeout": 1}
            assert server.listeners[0].broker_count == 1
            await eventually(lambda: sum(not one.is_lost for one in broker.connections) == 1)


@on_uvloop
async def test_a_dial_that_waits_for_its_turn_is_given_up_when_its_client_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialer_module, "_MAX_DIALS", 1)
    monkeypatch.setattr(sweeps, "_SWEEP_EVERY_S", 0.05)
    async with stub_broker(answers) as broker, running(_config(broker)) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(server)) for _ in range(4)]
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "create_connection", _never, raising=False)
            for client in clients:
                await client.send(other_request())
            await eventually(lambda: all(connection.is_past_login for connection in server.listeners[0].connections))
            clients[1].writer.close()
            clients[2].reset()
            async with asyncio.timeout(3):
                await eventually(lambda: len(server.listeners[0].connections) == 2)
        clients[0].reset()  # the client of the current dial leaves, so that the next client is dialled for

        assert await clients[3].answer() == other_response()
        assert sum(_disconnects(server).values()) == 3
        assert len(broker.in_use) == 1
        assert not server._dialer._dials


@on_uvloop
async def test_queued_dial_continues_for_acks_0_after_its_client_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialer_module, "_MAX_DIALS", 1)
    monkeypatch.setattr(sweeps, "_SWEEP_EVERY_S", 0.05)
    async with (
        stub_broker() as broker,
        running(_config(broker)) as server,
        client_of(server) as first,
        client_of(server) as client,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "create_connection", _never, raising=False)
            await first.send(other_request())
            await eventually(lambda: any(connection.is_past_login for connection in server.listeners[0].connections))
            await client.send(produce_request(acks=0))
            await eventually(lambda: all(connection.is_past_login for connection in server.listeners[0].connections))
            client.writer.close()
            await asyncio.sleep(0.3)  # meanwhile the proxy polls the socket of the client several times
        first.reset()

        await eventually(lambda: broker.in_use)
        assert broker.in_use[0].requests == [produce_request(acks=0)]


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

        assert monotonic() - stopped < 2  # the timeout of a dial is 10 s


@on_uvloop
async def test_brokers_see_the_address_that_the_file_names() -> None:
    async with (
        stub_broker(answers) as broker,
        running(replace(_config(broker), upstream_bind="127.0.0.9")) as server,
        client_of(server) as client,
    ):
        await client.ask(other_request())
        await eventually(lambda: len(broker.connections) == 2)  # one for the client and one of a probe

        peers = {connection.transport.get_extra_info("peername")[0] for connection in broker.connections}
        assert peers == {"127.0.0.9"}


# -- TLS --


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority("brokers")
    authority.save(tmp_path, "ca")
    authority.issue("broker", hosts=["127.0.0.1"]).save(tmp_path, "broker")
    authority.issue("proxy").save(tmp_path, "proxy")
    return authority


def _brokers_tls(directory: Path, *, name: str = "broker", asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    context.load_verify_locations(directory / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    return context


def _tls_config(broker: StubBroker, tls: UpstreamTls) -> ProxyConfig:
    return ProxyConfig(listeners=(replace(listener_to(broker.address), upstream_tls=tls),))


@on_uvloop
async def test_a_brokers_certificate_is_checked(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue("elsewhere", hosts=["broker.example"]).save(tmp_path, "elsewhere")
    tls = UpstreamTls(ca=str(tmp_path / "ca.pem"))
    async with stub_broker(answers, tls=_brokers_tls(tmp_path, name="elsewhere")) as broker:
        async with running(_tls_config(broker, tls)) as server, client_of(server) as client:
            assert await client.ask(other_request()) == b""

            assert _disconnects(server) == {"upstream_tls": 1}
            assert "the broker's certificate is not for 127.0.0.1" in caplog.text
            assert not upstream_of(server, broker.address).is_reachable

        lax = replace(tls, check_hostname=False)
        async with running(_tls_config(broker, lax)) as server, client_of(server) as client:
            assert await client.ask(other_request(5)) == other_response(5)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])
@on_uvloop
async def test_a_name_with_a_final_dot_is_resolved_as_written_and_checked_without_it(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    names = resolve_to(monkeypatch, *addresses)
    authority.issue("broker", hosts=["kafka.example"]).save(tmp_path, "broker")
    tls = UpstreamTls(ca=str(tmp_path / "ca.pem"))
    async with stub_broker(answers, tls=_brokers_tls(tmp_path)) as broker:
        name = replace(broker.address, host="kafka.example.")
        async with running(ProxyConfig(listeners=(replace(listener_to(name), upstream_tls=tls),))) as server:
            await eventually(lambda: upstream_of(server, name).is_reachable)
            async with client_of(server) as client:
                assert await client.ask(other_request(5)) == other_response(5)
    assert set(names) == {"kafka.example."}


@pytest.mark.parametrize(
    ("answer", "cause", "message"),
    [
        (bytes(8), "upstream_tls", "does not speak TLS there; use its TLS port, or remove upstream_tls"),
        (
            b"",
            "upstream_refused",
            "it closed the connection during the TLS handshake; is the broker running, and is this its TLS",
        ),
    ],
)
@on_uvloop
async def test_a_broker_that_speaks_no_tls(
    answer: bytes, cause: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(answer)
        writer.close()

    broker = await asyncio.start_server(answer_and_leave, "127.0.0.1", 0)
    address = Address(host="127.0.0.1", port=broker.sockets[0].getsockname()[1])
    config = ProxyConfig(listeners=(replace(listener_to(address), upstream_tls=UpstreamTls()),))
    async with broker, running(config) as server, client_of(server) as client:
        assert await client.ask(other_request()) == b""

        assert _disconnects(server) == {cause: 1}
        assert message in caplog.text


@pytest.mark.usefixtures("authority")
@on_uvloop
async def test_a_probe_hears_a_refusal_behind_the_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In TLS 1.3 the proxy's handshake ends before the broker refuses a missing certificate."""
    monkeypatch.setattr(dialer_module, "_PROBE_EVERY_S", 0.01)
    tls = UpstreamTls(ca=str(tmp_path / "ca.pem"))
    context = _brokers_tls(tmp_path, asks=True)
    async with stub_broker(answers, tls=context) as broker, running(_tls_config(broker, tls)) as server:
        upstream = upstream_of(server, broker.address)
        upstream.fault = None
        await eventually(lambda: not upstream.is_reachable)
        # The broker does not become reachable again.
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert not upstream.is_reachable
