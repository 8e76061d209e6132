"""Tests the Metadata request that the proxy itself sends, and how its response is read."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.metadata.v2.request import MetadataRequest
from kio.serial import entity_reader

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.security import UpstreamTls
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.server.brokers import cluster_query as cluster_query
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from tests.support.certificates import Authority
from tests.support.frames import framed, metadata_response
from tests.support.stub_broker import free_port, on_uvloop, stub_broker

BROKERS = {0: ("one.example", 9092), 7: ("2001:db8::7", 19092)}


def test_metadata_request_names_no_topic() -> None:
    frame = cluster_query.request()
    header, header_bytes = entity_reader(MetadataRequest.__header_schema__)(frame, 4)
    message, body_bytes = entity_reader(MetadataRequest)(frame, 4 + header_bytes)

    assert (header.client_id, header.request_api_version) == ("kafka-quota-proxy", 2)
    assert message.topics == ()
    assert int.from_bytes(frame[:4], "big") == header_bytes + body_bytes == len(frame) - 4


def test_an_answer_has_the_brokers() -> None:
    found = cluster_query.read(metadata_response(BROKERS, api_version=2, cluster_id="abc"))

    assert found.cluster_id == "abc"
    assert found.brokers == {node_id: Address(host=host, port=port) for node_id, (host, port) in BROKERS.items()}


@given(st.binary(max_size=200))
def test_any_answer_has_brokers_or_is_a_protocol_error(body: bytes) -> None:
    try:
        found = cluster_query.read(framed(body)).brokers
    except ProtocolError:
        return
    assert len(found) <= len(body)


@on_uvloop
async def test_a_broker_describes_its_cluster() -> None:
    async with stub_broker(lambda _: metadata_response(BROKERS, api_version=2)) as broker:
        assert set((await cluster_query.describe_cluster(broker.address, None)).brokers) == {0, 7}
        (connection,) = broker.connections
        assert [bytes(request) for request in connection.requests] == [cluster_query.request()]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _: b"\0\0\0\0", "a response has 0 bytes"),
        (lambda _: b"HTTP/1.1 400 Bad Request", "a response has 1213486160 bytes"),
        (lambda _: framed(b"\0\0\0\1\0\0\0\5"), "the data ends at byte 12"),
    ],
)
@on_uvloop
async def test_an_answer_of_something_else_is_a_protocol_error(answer: Callable[[bytes], bytes], error: str) -> None:
    async with stub_broker(answer) as broker:
        with pytest.raises(ProtocolError, match=error):
            await cluster_query.describe_cluster(broker.address, None)


@on_uvloop
async def test_a_broker_that_hangs_up_may_require_tls_or_a_login() -> None:
    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        with pytest.raises(OSError, match="does it require TLS or a login"):
            await cluster_query.describe_cluster(
                Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1]), None
            )


@on_uvloop
async def test_silent_broker_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_query, "_TIMEOUT_S", 0.05)
    async with stub_broker() as broker:
        with pytest.raises(TimeoutError, match="no answer in"):
            await cluster_query.describe_cluster(broker.address, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "kafka..local"])
@on_uvloop
async def test_missing_broker_raises_os_error(host: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - whichever the system has
        await cluster_query.describe_cluster(Address(host=host, port=free_port()), None)


@on_uvloop
async def test_a_broker_describes_its_cluster_over_tls(tmp_path: Path) -> None:
    authority = Authority("brokers")
    ca = authority.save(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker", hosts=["127.0.0.1"]).save(tmp_path, "broker"))
    async with stub_broker(lambda _: metadata_response(BROKERS, api_version=2), tls=context) as broker:
        assert set(
            (await cluster_query.describe_cluster(broker.address, None, TlsContext(UpstreamTls(ca=ca)))).brokers
        ) == {0, 7}

        with pytest.raises(OSError, match="is not signed by any certificate in the system's certificates"):
            await cluster_query.describe_cluster(broker.address, None, TlsContext(UpstreamTls()))
        with pytest.raises(OSError, match=r"does it require TLS|no answer|a response has"):
            await cluster_query.describe_cluster(broker.address, None)
