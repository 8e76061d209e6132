"""Tests what a probe finds out about a broker, over real sockets: each way in which a broker cannot be reached."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.security import UpstreamTls
from kafka_quota_proxy.proxy.server.brokers import probe as probe_module
from kafka_quota_proxy.proxy.server.brokers.probe import try_broker
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from tests.support.certificates import Authority
from tests.support.stub_broker import deaf_broker, free_port, on_uvloop, stub_broker

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def port_that(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1_000)
    writer.close()


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def alerts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1_000)
    writer.write(b"\x15\x03\x03\0\2\2\x50")
    writer.close()


async def speaks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1_000)
    writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    writer.close()


@pytest.fixture
def broker_tls(tmp_path: Path) -> ssl.SSLContext:
    authority = Authority("brokers")
    authority.save(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker", hosts=["127.0.0.1"]).save(tmp_path, "broker"))
    context.load_verify_locations(tmp_path / "ca.pem")
    return context


async def reason(address: Address, tls: UpstreamTls | None = None) -> str | None:
    peer, fault = await try_broker(address, None, TlsContext(tls) if tls else None)
    assert (peer is None) is (fault is not None)
    return fault and fault.reason


@on_uvloop
async def test_a_broker_that_answers_has_no_fault() -> None:
    async with stub_broker() as broker:
        assert await reason(broker.address) is None


@on_uvloop
async def test_a_broker_with_a_login_behind_tls_has_no_fault(tmp_path: Path, broker_tls: ssl.SSLContext) -> None:
    async with port_that(says_nothing, broker_tls) as address:
        assert await reason(address, UpstreamTls(ca=str(tmp_path / "ca.pem"))) is None


@on_uvloop
async def test_a_port_that_nobody_listens_on_refuses() -> None:
    assert await reason(Address(host="127.0.0.1", port=free_port())) == "refused"


@pytest.mark.parametrize("host", ["kafka..local", "broker.invalid"])
@on_uvloop
async def test_a_name_without_an_address(host: str) -> None:
    assert await reason(Address(host=host, port=9092)) == "unknown_host"


@on_uvloop
async def test_a_broker_that_does_not_answer_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "_TIMEOUT_S", 0.2)
    with deaf_broker() as deaf:
        assert await reason(deaf) == "silent"
    async with port_that(says_nothing) as address:
        assert await reason(address) == "silent"


@pytest.mark.parametrize("serve", [hangs_up, alerts])
@on_uvloop
async def test_what_hangs_up_or_speaks_another_protocol(serve: Serve) -> None:
    async with port_that(serve) as address:
        assert await reason(address) == ("closed" if serve is hangs_up else "tls_expected")
    async with port_that(speaks_http) as address:
        assert await reason(address) == "not_kafka"


@on_uvloop
async def test_plaintext_to_a_port_with_tls(broker_tls: ssl.SSLContext) -> None:
    async with stub_broker(tls=broker_tls) as broker:
        assert await reason(broker.address) in ("closed", "tls_expected")  # some send an alert first


@on_uvloop
async def test_tls_to_a_plaintext_port() -> None:
    async with port_that(speaks_http) as address:
        assert await reason(address, UpstreamTls()) == "not_tls"
    async with port_that(hangs_up) as address:
        assert await reason(address, UpstreamTls()) == "closed"


@on_uvloop
async def test_certificates_that_one_side_refuses(tmp_path: Path, broker_tls: ssl.SSLContext) -> None:
    Authority("another").save(tmp_path, "another")
    async with stub_broker(tls=broker_tls) as broker:
        assert await reason(broker.address, UpstreamTls(ca=str(tmp_path / "another.pem"))) == "tls_untrusted"
        broker_tls.verify_mode = ssl.CERT_REQUIRED
        assert await reason(broker.address, UpstreamTls(ca=str(tmp_path / "ca.pem"))) == "tls_refused"
