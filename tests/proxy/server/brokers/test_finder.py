"""Tests that a broker behind several listeners and addresses has each quota once, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from struct import pack, unpack_from
from typing import NoReturn

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import Address, Cluster, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.server.brokers.broker import Broker
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import (
    METADATA,
    framed,
    metadata_response,
    other_response,
    produce_request,
    produce_response,
    request_header,
)
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    free_ports,
    listener_to,
    on_uvloop,
    running,
    upstream_of,
)

ETL = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, connections=100)
PRODUCE, API_VERSIONS = 0, 18


@dataclass
class Node:
    """A port of a broker. Unless ``answers_strangers``, it does not answer Metadata requests of the proxy itself."""

    cluster_id: str | None = "one"
    brokers: dict[int, Address] = field(default_factory=dict)
    answers_strangers: bool = True
    holds: asyncio.Event | None = None

    def script(self, frame: bytes) -> bytes:
        api_key, version = unpack_from(">hh", frame, 4)
        if api_key == PRODUCE:
            return produce_response(correlation_id(frame))
        if api_key != METADATA:
            return other_response(correlation_id(frame))
        if b"kafka-quota-proxy" in frame and not self.answers_strangers:
            # The empty response makes the query of the proxy fail, as at a broker that requires a login.
            return b"\0\0\0\0"
        brokers = {node_id: (address.host, address.port) for node_id, address in self.brokers.items()}
        return metadata_response(brokers, correlation_id(frame), api_version=version, cluster_id=self.cluster_id)


def metadata_request() -> bytes:
    return framed(request_header(METADATA, 2, 1, "etl", is_flexible=False) + pack(">i", 0))


@asynccontextmanager
async def ports(*nodes: Node) -> AsyncIterator[list[StubBroker]]:
    """Run a stub broker for each node. A node without ``brokers`` lists only itself, as node 1."""
    brokers = [StubBroker(node.script) for node in nodes]
    for node, broker in zip(nodes, brokers, strict=True):
        node.brokers = node.brokers or {1: broker.address}
        await broker.start()
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


def config_of(*listeners: Listener, **more: object) -> ProxyConfig:
    return ProxyConfig(listeners=listeners, quotas=(ETL,), max_throttle_time_ms=None, **more)  # type: ignore[arg-type]


def named(address: Address, name: str, **more: object) -> Listener:
    return replace(listener_to(address, name=name), **more)  # type: ignore[arg-type]


def in_front_of(name: str, *servers: Address) -> Listener:
    port = free_ports(4)
    cluster = Cluster(bootstrap_servers=servers, advertised_host="127.0.0.1", first_port=port + 1, last_port=port + 3)
    return Listener(name=name, bind=Address(host="127.0.0.1", port=port), cluster=cluster)


def brokers_of(server: Server) -> set[Broker]:
    return {upstream.broker for upstream in server.brokers.upstreams}


def throttle_ms(answer: bytes) -> int:
    return int(unpack_from(">i", answer, len(answer) - 4)[0])


async def produced(client: Client, size_bytes: int) -> int:
    """Send a Produce request of this size, and return the throttle time of its response in ms."""
    return throttle_ms(await client.ask(produce_request(size_bytes=size_bytes)))


def amounts(server: Server) -> list[int]:
    return sorted(
        bucket.usage.amount for quotas in server.brokers.quotas for bucket in quotas.produce if bucket.usage.requests
    )


@on_uvloop
async def test_a_broker_that_advertises_itself_is_named_once_until_it_advertises_the_proxy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(answers_strangers=False)
    async with ports(node) as (broker,):
        listener = named(broker.address, "one")
        async with running(config_of(listener)) as server:
            for _ in range(2):
                async with client_of(server) as client:
                    await client.ask(metadata_request())
                    await client.ask(metadata_request())
            await eventually(lambda: server.brokers.bypasses() == {broker.address: broker.address})

            node.brokers = {1: listener.bind, 2: Address(host="192.0.2.7", port=broker.address.port)}
            async with client_of(server) as client:
                await client.ask(metadata_request())
            await eventually(lambda: not server.brokers.bypasses())

    (line,) = [record.message for record in caplog.records]
    assert f"the broker at {broker.address} advertises itself, {broker.address}" in line
    assert f"name the proxy ({listener.bind}), or give the listener bootstrap_servers" in line


@pytest.mark.usefixtures("has_faults")
@on_uvloop
async def test_what_a_broker_advertises_is_looked_at_again_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(answers_strangers=False)

    async def fail(*_: object) -> NoReturn:
        raise RuntimeError("a fault")

    async with (
        ports(node) as (broker,),
        running(config_of(named(broker.address, "one"))) as server,
        client_of(server) as client,
    ):
        with monkeypatch.context() as patched:
            patched.setattr("kafka_quota_proxy.proxy.server.brokers.finder.bypassed", fail)
            await client.ask(metadata_request())
            await asyncio.sleep(0)
        await client.ask(metadata_request())
        await eventually(lambda: server.brokers.bypasses() == {broker.address: broker.address})


@on_uvloop
async def test_a_broker_that_only_another_one_names_is_bypassed_too() -> None:
    node, other = Node(answers_strangers=False), Node(answers_strangers=False)
    async with ports(node, other) as (one, two):
        listeners = named(one.address, "one"), named(two.address, "two")
        node.brokers = {1: listeners[0].bind, 2: two.address}
        async with running(config_of(*listeners)) as server, client_of(server) as client:
            await client.ask(metadata_request())

            await eventually(lambda: server.brokers.bypasses() == {two.address: two.address})


@on_uvloop
async def test_a_client_waits_until_its_broker_has_said_who_it_is() -> None:
    nodes = Node(answers_strangers=False), Node()
    async with (
        ports(*nodes) as (one, other),
        running(config_of(named(one.address, "one"), named(other.address, "other"))) as server,
        client_of(server) as first,
        client_of(server, port=1) as second,
    ):
        await first.send(produce_request(size_bytes=6_000))
        assert await produced(second, 6_000) == 0
        assert PRODUCE not in [unpack_from(">h", frame, 4)[0] for each in one.connections for frame in each.requests]
        nodes[0].answers_strangers = True
        assert throttle_ms(await first.answer()) > 1_000
        assert amounts(server) == [12_000]


@on_uvloop
async def test_a_broker_that_requires_a_login_counts_by_its_address_also_after_it_was_identified(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = Node(answers_strangers=False), Node(answers_strangers=False)
    async with (
        ports(*nodes) as (one, other),
        running(config_of(named(one.address, "one"), named(other.address, "other"))) as server,
        client_of(server) as first,
        client_of(server, port=1) as second,
    ):
        assert [await produced(first, 4_000), await produced(second, 4_000)] == [0, 0]
        for name, broker in (("one", one), ("other", other)):
            assert f"listener {name}: the broker at {broker.address} is unknown (it has not answered" in caplog.text
        await first.ask(metadata_request())
        await second.ask(metadata_request())

        await eventually(lambda: f"{other.address} are one broker, node 1 of cluster one, which became" in caplog.text)
        assert len(brokers_of(server)) == 2
        assert amounts(server) == [4_000, 4_000]
        assert [one.node_id for one in server.brokers.metered()] == [1, 1]


@on_uvloop
async def test_broker_behind_a_sidecar_is_identified_by_the_bind_address() -> None:
    nodes = Node(), Node()
    async with ports(*nodes) as (one, other):
        listeners = named(one.address, "one"), named(other.address, "other")
        for node, listener in zip(nodes, listeners, strict=True):
            elsewhere = Address(host="127.0.0.1", port=listener.bind.port + 1)
            node.brokers = {1: Address(host="localhost", port=listener.bind.port), 2: elsewhere}
        async with running(config_of(*listeners)) as server:
            await eventually(lambda: len(brokers_of(server)) == 1)
            assert [str(one.identity) for one in brokers_of(server)] == ["node 1 of cluster one"]


@on_uvloop
async def test_an_upstream_that_leads_to_another_broker_keeps_its_quotas(caplog: pytest.LogCaptureFixture) -> None:
    nodes = Node(), Node()
    async with (
        ports(*nodes) as (one, other),
        running(config_of(named(one.address, "one"), named(other.address, "other"))) as server,
    ):
        async with client_of(server) as first, client_of(server, port=1) as second:
            assert await produced(first, 6_000) == 0
            nodes[1].brokers = {2: other.address}
            await second.ask(metadata_request())
            await eventually(lambda: f"{other.address} leads to node 2 of cluster one now" in caplog.text)

            assert await produced(second, 6_000) > 1_000
        assert amounts(server) == [12_000]


@on_uvloop
async def test_the_configured_node_id_identifies_a_broker_without_a_matching_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = {1: Address(host="inside.invalid", port=9092), 2: Address(host="other.invalid", port=9092)}
    async with ports(Node(brokers=brokers), Node(brokers=brokers), Node(brokers=brokers)) as (one, other, third):
        listeners = (
            named(one.address, "one", node_id=1),
            named(other.address, "other", node_id=1),
            named(third.address, "third"),
        )
        async with running(config_of(*listeners)) as server:
            await eventually(lambda: "give the node_id" in caplog.text)
            assert upstream_of(server, one.address).broker is upstream_of(server, other.address).broker
            assert upstream_of(server, third.address).broker is not upstream_of(server, one.address).broker
            assert f"at {third.address}" in caplog.text


@on_uvloop
async def test_a_cluster_and_a_sidecar_in_front_of_its_broker_have_one_quota() -> None:
    async with ports(Node(), Node()) as (of_cluster, of_sidecar):
        config = config_of(in_front_of("cluster", of_cluster.address), named(of_sidecar.address, "sidecar"))
        async with running(config) as server:
            await eventually(lambda: len(brokers_of(server)) == 1)
            async with client_of(server) as first, client_of(server, port=1) as second:
                assert await produced(first, 6_000) == 0
                assert await produced(second, 6_000) > 1_000
            assert [name for name, _ in server.brokers.quotas_by_name] == [str(of_sidecar.address), "bootstrap"]


@on_uvloop
async def test_a_reload_reaches_each_broker_once_and_all_its_listeners() -> None:
    async with ports(Node(), Node()) as (one, other):
        config = config_of(named(one.address, "one"), named(other.address, "other"))
        async with running(config) as server:
            await eventually(lambda: len(brokers_of(server)) == 1)
            async with client_of(server) as first, client_of(server, port=1) as second:
                assert await produced(first, 6_000) == 0

                server.apply(
                    replace(config, quotas=(replace(ETL, limits={**ETL.limits, "producer_byte_rate": 100.0}),))
                )

                assert await produced(second, 1_000) > 10_000
                server.apply(replace(config, quotas=(replace(ETL, limits={**ETL.limits, "producer_byte_rate": 1e6}),)))
                assert await produced(first, 1_000) == 0
            assert len(brokers_of(server)) == 1


@on_uvloop
async def test_the_slots_in_front_of_a_broker_are_there_once() -> None:
    queue = FairCallQueue(max_in_flight=1, capacity=8)
    async with ports(Node(), Node()) as (one, other):
        listeners = (
            named(one.address, "one", fair_call_queue=queue),
            named(other.address, "other", fair_call_queue=queue),
        )
        async with running(config_of(*listeners)) as server:
            await eventually(lambda: len(brokers_of(server)) == 1)
            (broker,) = brokers_of(server)
            async with client_of(server) as first, client_of(server, port=1) as second:
                assert await produced(first, 100) == await produced(second, 100) == 0
                assert broker.queue is not None
                assert [name for name, _ in server.brokers.queues_by_name] == [str(one.address)]
                lines = [route.context.queue for route in server.brokers.entrances.values()]  # type: ignore[union-attr]
                assert [line is not None and line.dispatcher is broker.queue.dispatcher for line in lines] == [True] * 2


@on_uvloop
async def test_bytes_from_clients_identify_no_broker() -> None:
    """The client sends bytes that look like a broker's Metadata response."""
    async with (
        ports(Node(cluster_id=None), Node(cluster_id=None)) as (one, other),
        running(config_of(named(one.address, "one"), named(other.address, "other"))) as server,
    ):
        for port in (0, 1):
            lie = {1: ("127.0.0.1", other.address.port), 2: ("127.0.0.1", one.address.port)}
            async with client_of(server, port=port) as client:
                await client.send(metadata_request(), metadata_response(lie, api_version=2, cluster_id="forged"))
                await client.answer()
        assert [upstream.broker.identity for upstream in server.brokers.upstreams] == [None, None]
        assert len(brokers_of(server)) == 2
