"""Tests a listener in front of a cluster, which has a port for each broker, over real sockets."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from struct import unpack_from

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import (
    DEFAULT,
    Address,
    Cluster,
    Enforcement,
    IpRule,
    Listener,
    ProxyConfig,
    QuotaRule,
)
from kafka_quota_proxy.config.security import ClientTls, UpstreamTls
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.server.brokers import cluster_listeners as cluster_listeners_module
from kafka_quota_proxy.proxy.server.brokers import cluster_members as cluster_module
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.certificates import Authority
from tests.support.frames import (
    METADATA,
    brokers_in,
    metadata_request,
    metadata_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    free_ports,
    on_uvloop,
    running,
    stub_broker,
)

PORTS = 10
OTHER_API = 11


class StubCluster:
    """A cluster that lists the brokers in ``alive``. It answers the proxy itself if ``answers_strangers``."""

    def __init__(self) -> None:
        self.alive: dict[int, StubBroker] = {}
        self.answers_strangers = True

    def script(self, frame: bytes) -> bytes:
        api_key = unpack_from(">h", frame, 4)[0]
        if api_key == 0:
            return produce_response(correlation_id(frame))
        if api_key != METADATA:
            return other_response(correlation_id(frame))
        if b"kafka-quota-proxy" in frame and not self.answers_strangers:
            return b"\0\0\0\0"
        hosts = {node_id: (broker.address.host, broker.address.port) for node_id, broker in self.alive.items()}
        return metadata_response(hosts, correlation_id(frame), api_version=unpack_from(">h", frame, 6)[0])


@asynccontextmanager
async def cluster_of(*node_ids: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[StubCluster]:
    cluster = StubCluster()
    brokers = [StubBroker(cluster.script, tls=tls) for _ in node_ids]
    cluster.alive = dict(zip(node_ids, brokers, strict=True))
    for broker in brokers:
        await broker.start()
    try:
        yield cluster
    finally:
        for broker in {*brokers, *cluster.alive.values()}:
            await broker.stop()


def front_of(cluster: StubCluster, *, name: str = "clients", host: str = "127.0.0.1", ports: int = PORTS) -> Listener:
    first = free_ports(ports + 1)
    servers = tuple(broker.address for broker in cluster.alive.values())
    settings = Cluster(
        bootstrap_servers=servers, advertised_host="proxy.example", first_port=first + 1, last_port=first + ports
    )
    return Listener(name=name, bind=Address(host=host, port=first), cluster=settings)


def port_of(listener: Listener, node_id: int) -> int:
    assert listener.cluster
    return listener.cluster.first_port + node_id


@asynccontextmanager
async def client_at(port: int, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def asks(monkeypatch: pytest.MonkeyPatch, *, every_s: float) -> None:
    monkeypatch.setattr(cluster_listeners_module, "_QUERY_EVERY_S", every_s)
    monkeypatch.setattr(cluster_listeners_module, "_RETRY_S", every_s)


def reached(cluster: StubCluster, node_id: int) -> bool:
    """Return whether a broker got a request of a client."""
    requests = (request for connection in cluster.alive[node_id].connections for request in connection.requests)
    return any(unpack_from(">h", request, 4)[0] == OTHER_API for request in requests)


async def known(server: Server, listener: Listener, *node_ids: int) -> None:
    await eventually(lambda: all(is_open(port_of(listener, node_id)) for node_id in node_ids))


@on_uvloop
async def test_each_broker_has_a_port_and_clients_hear_of_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_of(0, 3) as cluster:
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 0, 3)
            async with client_of(server) as client:
                brokers = brokers_in(await client.ask(metadata_request()))
            assert brokers == {node_id: ("proxy.example", port_of(listener, node_id)) for node_id in (0, 3)}
            for node_id in (0, 3):
                async with client_at(port_of(listener, node_id)) as client:
                    await client.ask(other_request(api_key=OTHER_API))
                assert [reached(cluster, one) for one in (0, 3)] == [True, node_id == 3]
            assert not is_open(port_of(listener, 1))
            await eventually(server.brokers.is_reachable)
            assert {leader.node_id for leader in server.replication.throttle.leaders} == {0, 3}
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_uvloop
async def test_every_port_of_a_listener_speaks_tls_and_so_do_its_brokers(tmp_path: Path) -> None:
    authority = Authority("all")
    ca = authority.save(tmp_path, "ca")
    certificate, key = authority.issue("both", hosts=["127.0.0.1"]).save(tmp_path, "both")
    brokers_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    brokers_tls.load_cert_chain(certificate, key)
    client_tls = ssl.create_default_context(cafile=ca)
    async with cluster_of(0, 3, tls=brokers_tls) as cluster:
        listener = replace(
            front_of(cluster),
            client_tls=ClientTls(certificate=certificate, key=key),
            upstream_tls=UpstreamTls(ca=ca),
        )
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 0, 3)
            async with client_of(server, tls=client_tls) as client:
                brokers = brokers_in(await client.ask(metadata_request()))
            assert brokers == {node_id: ("proxy.example", port_of(listener, node_id)) for node_id in (0, 3)}
            async with client_at(port_of(listener, 3), tls=client_tls) as client:
                assert await client.ask(other_request(api_key=OTHER_API)) == other_response()
            assert reached(cluster, 3)


@on_uvloop
async def test_broker_that_left_during_a_handshake_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, every_s=0.01)
    monkeypatch.setattr(cluster_module, "LEAVES_AFTER_MS", 50)
    authority = Authority("all")
    certificate, key = authority.issue("proxy", hosts=["127.0.0.1"]).save(tmp_path, "proxy")
    client_tls = ssl.create_default_context(cafile=authority.save(tmp_path, "ca"))
    async with cluster_of(0, 1) as cluster:
        listener = replace(front_of(cluster), client_tls=ClientTls(certificate=certificate, key=key))
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 0, 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener, 1))
            await eventually(lambda: server.handshakes[0].pending)
            await cluster.alive.pop(1).stop()
            await eventually(lambda: not is_open(port_of(listener, 1)))

            transport = await asyncio.get_running_loop().start_tls(
                writer.transport, asyncio.StreamReaderProtocol(reader), client_tls, server_hostname="127.0.0.1"
            )
            assert transport is not None
            transport.write(other_request(api_key=OTHER_API))
            await eventually(lambda: reached(cluster, 0))
            transport.abort()


@on_uvloop
async def test_during_a_stop_no_port_is_opened_and_clients_go_on_hearing_of_those_there_were() -> None:
    async with cluster_of(0, 3) as cluster:
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server, AsyncExitStack() as stack:
            await known(server, listener, 0, 3)
            client = await stack.enter_async_context(client_of(server))
            await client.ask(other_request(api_key=OTHER_API))
            (known_cluster,) = server.brokers.clusters.values()
            known_cluster.close()

            known_cluster.see({1: Address(host="127.0.0.1", port=1)}, True)

            assert not any(is_open(port_of(listener, node_id)) for node_id in (0, 1, 3))
            brokers = brokers_in(await client.ask(metadata_request()))
            assert brokers == {node_id: ("proxy.example", port_of(listener, node_id)) for node_id in (0, 3)}


@on_uvloop
async def test_joining_broker_has_its_port_before_clients_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, every_s=3_600)
    async with cluster_of(0) as cluster, stub_broker(cluster.script) as newcomer:
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 0)
            async with client_of(server) as client:
                cluster.alive[5] = newcomer
                brokers = brokers_in(await client.ask(metadata_request()))
            assert brokers[5] == ("proxy.example", port_of(listener, 5))
            async with client_at(port_of(listener, 5)) as client:
                assert await client.ask(other_request(api_key=OTHER_API)) == other_response()
            assert reached(cluster, 5)


@on_uvloop
async def test_broker_that_leaves_loses_its_port_and_gets_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, every_s=0.01)
    monkeypatch.setattr(cluster_module, "LEAVES_AFTER_MS", 50)
    async with cluster_of(0, 1) as cluster:
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 0, 1)
            gone = cluster.alive.pop(1)
            await gone.stop()
            await eventually(lambda: not is_open(port_of(listener, 1)))
            async with client_of(server) as client:
                assert set(brokers_in(await client.ask(metadata_request()))) == {0}

            await gone.start()
            cluster.alive[1] = gone
            await known(server, listener, 1)


@on_uvloop
async def test_port_in_use_is_logged_once_and_bound_when_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asks(monkeypatch, every_s=0.01)
    async with cluster_of(0, 1) as cluster:
        listener = front_of(cluster)
        with socket.create_server(("127.0.0.1", port_of(listener, 1))):
            server_of = running(ProxyConfig(listeners=(listener,)))
            server = await server_of.__aenter__()
            await known(server, listener, 0)
            async with client_of(server) as client:
                assert set(brokers_in(await client.ask(metadata_request()))) == {0}
            await asyncio.sleep(0.1)
        try:
            (known_cluster,) = server.brokers.clusters.values()
            await eventually(lambda: 1 in known_cluster.brokers)
            async with client_of(server) as client:
                assert set(brokers_in(await client.ask(metadata_request()))) == {0, 1}
        finally:
            await server_of.__aexit__(None, None, None)
    (error,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert "no port for broker 1" in error


@on_uvloop
async def test_a_cluster_that_does_not_answer_is_known_from_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients know a port from before a restart of the proxy."""
    asks(monkeypatch, every_s=0.01)
    async with cluster_of(0, 1, 2) as cluster:
        cluster.answers_strangers = False
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, *range(PORTS))
            async with client_at(port_of(listener, 1)) as one, client_at(port_of(listener, 2)) as two:
                assert await two.ask(other_request(api_key=OTHER_API)) == other_response()
                brokers = brokers_in(await one.ask(metadata_request()))
                assert brokers == {node_id: ("proxy.example", port_of(listener, node_id)) for node_id in (0, 1, 2)}

                # The proxy closes both, because they may be connected to another broker than their port stands for.
                assert [await one.answer(), await two.answer()] == [b"", b""]
            await eventually(lambda: server.listeners[0].counters.disconnects.get("broker_known") == 2)
            assert [is_open(port_of(listener, node_id)) for node_id in range(4)] == [True, True, True, False]
            for broker in cluster.alive.values():
                for connection in broker.connections:
                    connection.requests.clear()
            async with client_at(port_of(listener, 2)) as client:
                await client.ask(other_request(api_key=OTHER_API))
            assert [reached(cluster, node_id) for node_id in (0, 1, 2)] == [False, False, True]


@on_uvloop
async def test_a_broker_takes_over_the_queue_of_its_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks(monkeypatch, every_s=0.01)
    async with cluster_of(0, 1) as cluster:
        cluster.answers_strangers = False
        listener = replace(front_of(cluster), fair_call_queue=FairCallQueue(max_in_flight=3))
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, *range(PORTS))
            before = dict(server.brokers.queues_by_name)
            async with client_at(port_of(listener, 1)) as client:
                await client.ask(metadata_request())
            (known_cluster,) = server.brokers.clusters.values()

            assert {str(one.address): one.broker.queue for one in known_cluster.brokers.values()} == before
            assert len(server.brokers.queues_by_name) == len(before) == 2


@on_uvloop
@pytest.mark.parametrize("away", [0, 1])
async def test_port_of_an_unknown_broker_leads_to_the_bootstrap_server_that_works(
    monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    asks(monkeypatch, every_s=0.01)
    async with cluster_of(0, 1) as cluster:
        cluster.answers_strangers = False
        listener = front_of(cluster)
        await cluster.alive[away].stop()
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, *range(PORTS))
            for node_id in range(4):
                answers = []
                for _ in range(2):
                    async with client_at(port_of(listener, node_id)) as client:
                        answers.append(await client.ask(other_request(api_key=OTHER_API)))

                assert other_response() in answers
            # No client is led to the server that failed, as long as another one works.
            async with client_at(port_of(listener, 0)) as one, client_at(port_of(listener, 0)) as two:
                assert await one.ask(other_request(api_key=OTHER_API)) == other_response()
                assert await two.ask(other_request(api_key=OTHER_API)) == other_response()


@on_uvloop
async def test_a_cluster_with_a_login_is_ready_before_and_after_a_client_has_named_its_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks(monkeypatch, every_s=0.01)
    async with cluster_of(0, 1) as cluster:
        cluster.answers_strangers = False
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, *range(PORTS))
            await eventually(server.brokers.is_reachable)
            async with client_of(server) as client:
                await client.ask(metadata_request())
            await eventually(lambda: not is_open(port_of(listener, 5)))

            await eventually(server.brokers.is_reachable)
            for _ in range(10):  # meanwhile the proxy asks the brokers in vain
                await asyncio.sleep(0.01)
                assert set(server.brokers.faults().values()) == {None}


@on_uvloop
async def test_a_cluster_without_a_broker_for_its_clients_is_not_ready() -> None:
    async with cluster_of(3, 40) as cluster:
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 3)
            await eventually(server.brokers.is_reachable)
            outside = server.brokers.faults()[cluster.alive[40].address]
            assert outside
            assert (outside.reason, "broker 40 has no port" in outside.detail) == ("no_port", True)

        assert listener.cluster
        narrow = replace(listener, cluster=replace(listener.cluster, last_port=listener.cluster.first_port + 1))
        async with running(ProxyConfig(listeners=(narrow,))) as server:
            await eventually(
                lambda: [one and one.reason for one in server.brokers.faults().values()] == ["no_port"] * 2
            )
            assert not server.brokers.is_reachable()


@on_uvloop
async def test_a_reload_holds_at_brokers_that_join_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, every_s=0.01)
    limited = QuotaRule(client_id="etl", producer_byte_rate=1_000.0)
    async with cluster_of(0) as cluster, stub_broker(cluster.script) as newcomer:
        listener = front_of(cluster)
        async with running(ProxyConfig(listeners=(listener,))) as server:
            await known(server, listener, 0)
            server.apply(replace(server.config, quotas=(limited,), enforcement=Enforcement.OBSERVE))
            cluster.alive[1] = newcomer
            await known(server, listener, 1)
            for node_id in (0, 1):
                async with client_at(port_of(listener, node_id)) as client:
                    assert await client.ask(produce_request(size_bytes=40_000)) == produce_response()
                (known_cluster,) = server.brokers.clusters.values()
                (bucket,) = [one for one in known_cluster.brokers[node_id].quotas.produce if one.usage.requests]
                assert bucket.usage.throttling.observed_time_ms > 0


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
@on_uvloop
async def test_ipv6_on_both_sides() -> None:
    async with cluster_of() as cluster:
        broker = StubBroker(cluster.script)
        broker.address = Address(host="::1", port=broker.address.port)
        await broker.start()
        cluster.alive[0] = broker
        listener = front_of(cluster, host="::1")
        async with running(ProxyConfig(listeners=(listener,))) as server:
            (known_cluster,) = server.brokers.clusters.values()
            await eventually(lambda: 0 in known_cluster.brokers)
            async with client_at(port_of(listener, 0), "::1") as client:
                assert set(brokers_in(await client.ask(metadata_request()))) == {0}
                assert await client.ask(other_request(2, api_key=OTHER_API)) == other_response(2)


@on_uvloop
async def test_connections_are_limited_at_each_broker_and_the_bootstrap_port_is_like_one_more() -> None:
    async with cluster_of(0, 3) as cluster:
        listener = front_of(cluster)
        quotas = (IpRule(ip=DEFAULT, connection_creation_rate=1_000.0),)
        async with running(ProxyConfig(listeners=(listener,), ip_quotas=quotas)) as server:
            await known(server, listener, 0, 3)
            ports = {str(cluster.alive[node_id].address): port_of(listener, node_id) for node_id in (0, 3)}
            for turn, (name, port) in enumerate((ports | {"bootstrap": listener.bind.port}).items()):
                source = f"127.0.0.{10 + turn}"
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                await Client(reader, writer).ask(other_request(api_key=OTHER_API))
                writer.transport.abort()

                measured = Tags("", source)
                seen = {one for one, at in server.brokers.quotas_by_name if at.arrivals._addresses.get(measured)}
                assert seen == {name}
