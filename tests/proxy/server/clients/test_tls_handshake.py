"""Tests TLS clients of a proxy, the users that their certificates give, and refused handshakes."""

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import ProxyConfig, ProxyProtocol, QuotaRule
from kafka_quota_proxy.config.principal_mapping import parse_rules
from kafka_quota_proxy.config.security import ClientAuth, ClientTls
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.server.tls import contexts as tls_module
from kafka_quota_proxy.proxy.server.tls import transport as tls_transport
from tests.support.certificates import Authority, Issued
from tests.support.frames import other_request, other_response, produce_response
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

AUTHORITY = Authority("clients")


def answers(frame: bytes) -> bytes:
    if int.from_bytes(frame[4:6]) == 0:
        return produce_response(correlation_id(frame))
    return other_response(correlation_id(frame))


@dataclass
class Files:
    directory: Path
    client_tls: ClientTls

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def context(self, issued: Issued | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if issued is not None:
            context.load_cert_chain(*issued.save(self.directory, "client"))
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    ca = AUTHORITY.save(tmp_path, "ca")
    certificate, key = AUTHORITY.issue("proxy", hosts=["127.0.0.1"]).save(tmp_path, "proxy")
    tls = ClientTls(
        certificate=certificate,
        key=key,
        client_ca=ca,
        client_auth=ClientAuth.REQUESTED,
        principal_mapping_rules=parse_rules("RULE:^CN=app-(.*)$/$1/U,RULE:^CN=du.*$/&/,RULE:^CN=q(.*)$/$1/"),
    )
    return Files(tmp_path, tls)


def config_of(broker: StubBroker, files: Files, *quotas: QuotaRule, **tls: object) -> ProxyConfig:
    listener = replace(listener_to(broker.address), client_tls=replace(files.client_tls, **tls))  # type: ignore[arg-type]
    return ProxyConfig(listeners=(listener,), quotas=quotas)


def disconnects(server: Server) -> dict[str, int]:
    return server.listeners[0].counters.disconnects


def user_of(server: Server) -> str:
    (connection,) = server.listeners[0].connections
    return connection.session.account.principal


@pytest.mark.parametrize(("common_name", "user"), [("app-orders", "ORDERS"), ("duke", "&"), (None, "ANONYMOUS")])
@on_uvloop
async def test_the_certificate_names_the_user(files: Files, common_name: str | None, user: str) -> None:
    issued = AUTHORITY.issue(common_name) if common_name else None
    async with (
        stub_broker(answers) as broker,
        running(config_of(broker, files)) as server,
        client_of(server, tls=files.context(issued)) as client,
    ):
        assert await client.ask(other_request(3)) == other_response(3)
        assert user_of(server) == user


@on_uvloop
async def test_plaintext_is_closed_counted_and_logged_once(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with stub_broker(answers) as broker, running(config_of(broker, files)) as server:
        bind = server.config.listeners[0].bind
        for _ in range(5):
            reader, writer = await asyncio.open_connection(bind.host, bind.port)
            writer.write(other_request())
            assert (await reader.read())[:1] in (b"", b"\x15")  # the proxy may send a TLS alert
            writer.close()

        assert disconnects(server) == {"tls_plaintext": 5}
        assert [record.levelno for record in caplog.records if "tls_plaintext" in record.message] == [logging.WARNING]
        assert broker.connections == [] or not broker.in_use


@on_uvloop
async def test_a_client_that_does_not_trust_us(files: Files) -> None:
    async with stub_broker(answers) as broker, running(config_of(broker, files)) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with client_of(server, tls=ssl.create_default_context()):
                pass

        # The client of uvloop may not send its TLS alert.
        await eventually(lambda: sum(disconnects(server).values()) == 1)
        assert set(disconnects(server)) <= {"tls_refused", "tls_client_lost"}


@on_uvloop
async def test_a_handshake_that_is_left(files: Files) -> None:
    async with stub_broker(answers) as broker, running(config_of(broker, files)) as server:
        bind = server.config.listeners[0].bind
        _, writer = await asyncio.open_connection(bind.host, bind.port)
        writer.write(b"\x16\x03\x01")
        writer.close()

        await eventually(lambda: disconnects(server) == {"tls_client_lost": 1})


@on_uvloop
async def test_a_health_check_is_no_news(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with stub_broker(answers) as broker, running(config_of(broker, files)) as server:
        bind = server.config.listeners[0].bind
        _, writer = await asyncio.open_connection(bind.host, bind.port)
        writer.close()

        await eventually(lambda: disconnects(server) == {"client_closed": 1})
        assert caplog.text == ""


@on_uvloop
async def test_stop_ends_handshakes(files: Files) -> None:
    async with stub_broker(answers) as broker:
        async with running(config_of(broker, files)) as server:
            bind = server.config.listeners[0].bind
            reader, writer = await asyncio.open_connection(bind.host, bind.port)
            (entrance,) = server.handshakes
            await eventually(lambda: entrance.pending)
        async with asyncio.timeout(tls_transport.HANDSHAKE_TIMEOUT_S / 2):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert not entrance.pending


def _limited(config: ProxyConfig, **limits: object) -> ProxyConfig:
    return replace(config, listeners=(replace(config.listeners[0], **limits),))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_uvloop
async def test_a_proxy_header_stands_before_the_handshake(files: Files, version: ssl.TLSVersion) -> None:
    context = files.context(AUTHORITY.issue("app-orders"))
    context.minimum_version = context.maximum_version = version
    header = b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 9092\r\n"
    async with stub_broker(answers) as broker:
        config = _limited(config_of(broker, files), proxy_protocol=ProxyProtocol())
        async with running(config) as server:
            ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(theirs, ours, server_hostname="127.0.0.1")
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            bind = server.config.listeners[0].bind
            reader, writer = await asyncio.open_connection(bind.host, bind.port)
            writer.write(header + ours.read())  # the system delivers both in one piece
            async with asyncio.timeout(10):
                while not tls.version() or not server.listeners[0].connections:
                    theirs.write(await reader.read(65_536))
                    with suppress(ssl.SSLWantReadError):
                        tls.do_handshake()
                    writer.write(ours.read())
            (connection,) = server.listeners[0].connections
            assert connection.peer == "203.0.113.7:56324"
            assert user_of(server) == "ORDERS"
            writer.close()


@on_uvloop
async def test_a_pending_handshake_counts_as_a_connection(files: Files) -> None:
    async with stub_broker(answers) as broker:
        async with running(_limited(config_of(broker, files), max_connections=1)) as server:
            bind = server.config.listeners[0].bind
            _, first = await asyncio.open_connection(bind.host, bind.port)
            await eventually(lambda: server.listeners[0].open_count.total == 1)
            reader, second = await asyncio.open_connection(bind.host, bind.port)
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            second.close()
            first.write(b"GET / HTTP/1.1\r\n\r\n")
            await eventually(lambda: not server.listeners[0].open_count.total)
            first.close()

            async with client_of(server, tls=files.context()) as client:
                assert await client.ask(other_request(3)) == other_response(3)
        assert disconnects(server)["max_connections"] == 1


@on_uvloop
async def test_draining_over_tls_sends_close_notify_after_the_last_response(files: Files) -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_of(broker, files)) as server,
        client_of(server, tls=files.context()) as client,
    ):
        assert await client.ask(other_request(3)) == other_response(3)
        (connection,) = server.listeners[0].connections
        await client.send(other_request(4))
        await eventually(lambda: len(broker.in_use[0].requests) == 2)
        connection.drain("max_connection_age")

        assert await client.answer() == other_response(4)
        assert await client.answer() == b""
        await eventually(lambda: not server.listeners[0].open_count.total)
        assert disconnects(server) == {"max_connection_age": 1}


@on_uvloop
async def test_a_certificate_that_is_replaced_is_shown_to_the_next_client(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "_POLL_S", 0.01)
    new = AUTHORITY.issue("renewed", hosts=["127.0.0.1"])

    async def is_new() -> bool:
        async with client_of(server, tls=files.context()) as client:
            shown = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return bool(shown == new.der)

    async with (
        stub_broker(answers) as broker,
        running(config_of(broker, files)) as server,
        client_of(server, tls=files.context()) as kept,
    ):
        assert not await is_new()
        new.save(files.directory, "proxy")
        async with asyncio.timeout(10):
            while not await is_new():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)

        assert await kept.ask(other_request(9)) == other_response(9)
