"""Tests fetches of clients that left before the response, which is still charged."""

from __future__ import annotations

import asyncio

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.server.clients import orphaned_connections as orphans_module
from kafka_quota_proxy.proxy.server.clients.orphaned_connections import ANSWERED, CUT_SHORT, LOST
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.server.clients.test_connection import config_to
from tests.support.frames import fetch_request, fetch_response
from tests.support.stub_broker import (
    Client,
    StubBroker,
    StubConnection,
    client_of,
    eventually,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
    upstream_of,
)

LIMITED = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, consumer_byte_rate=1_000.0)


def bucket_of(server: Server, broker: StubBroker) -> Bucket:
    (bucket,) = (one for one in upstream_of(server, broker.address).quotas.fetch if one.is_limited)
    return bucket


def counts(server: Server) -> dict[str, int]:
    return {result: count for result, count in server.listeners[0].orphans.counts.items() if count}


async def abandoned(server: Server, broker: StubBroker, client: Client, *requests: bytes) -> StubConnection:
    """Let a client send requests and reset its connection. Return the connection of the broker."""
    await client.send(*requests)
    await eventually(lambda: broker.in_use and len(broker.in_use[-1].requests) == len(requests))
    client.reset()
    await eventually(lambda: not server.listeners[0].connections)
    return broker.in_use[-1]


@on_uvloop
async def test_a_fetch_is_charged_its_answer_although_its_client_is_gone() -> None:
    response = fetch_response(size_bytes=50_000)
    async with stub_broker() as broker, running(config_to(broker, LIMITED)) as server, client_of(server) as client:
        connection = await abandoned(server, broker, client, fetch_request())
        bucket, port = bucket_of(server, broker), server.listeners[0]

        assert (port.open_count.total, port.broker_count) == (0, 0)
        assert bucket.reserved.amount > 0, "what it may bring is reserved still"
        assert not connection.is_lost
        connection.transport.write(response[:5])
        await asyncio.sleep(0.01)
        assert bucket.usage.amount == 0
        connection.transport.write(response[5:8])

        await eventually(lambda: connection.is_lost)
        assert (bucket.usage.amount, bucket.usage.requests, bucket.reserved.amount, bucket.holders) == (50_000, 1, 0, 0)
        assert bucket.silent_until_ms > 0, "others of its bucket wait for that"
        assert counts(server) == {ANSWERED: 1}


@on_uvloop
async def test_a_broker_that_leaves_or_answers_nonsense_ends_the_wait() -> None:
    async with stub_broker() as broker, running(config_to(broker, LIMITED)) as server:
        for answer in (b"", fetch_response(77), b"\0\0\0\1" + bytes(4)):
            async with client_of(server) as client:
                connection = await abandoned(server, broker, client, fetch_request())
                connection.transport.write(answer)
                if not answer:
                    connection.transport.close()
            await eventually(lambda: all(one.is_lost for one in broker.in_use))

        bucket = bucket_of(server, broker)
        assert (bucket.usage.amount, bucket.reserved.amount, bucket.holders) == (0, 0, 0)
        assert counts(server) == {LOST: 3}


@on_uvloop
async def test_an_orphan_that_lasts_too_long_is_charged_by_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans_module, "LONGEST_S", 0.05)
    async with stub_broker() as broker, running(config_to(broker, LIMITED)) as server, client_of(server) as client:
        connection = await abandoned(server, broker, client, fetch_request())
        expected_bytes = bucket_of(server, broker).reserved.amount

        await eventually(lambda: connection.is_lost)

        bucket = bucket_of(server, broker)
        assert expected_bytes > 0
        assert (bucket.usage.amount, bucket.reserved.amount, bucket.holders) == (expected_bytes, 0, 0)
        assert counts(server) == {CUT_SHORT: 1}


@on_uvloop
async def test_oldest_of_too_many_orphans_is_closed_and_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans_module, "MAX_KEPT", 1)
    wide = QuotaRule(client_id="etl", consumer_byte_rate=1e9)
    async with stub_broker() as broker, running(config_to(broker, wide)) as server:
        connections = []
        for _ in range(2):
            async with client_of(server) as client:
                connections.append(await abandoned(server, broker, client, fetch_request()))
        await eventually(lambda: connections[0].is_lost)

        assert len(server.listeners[0].orphans) == 1
        assert not connections[1].is_lost
        assert counts(server) == {CUT_SHORT: 1}
        assert bucket_of(server, broker).usage.requests == 1


@on_uvloop
async def test_bucket_of_an_orphaned_fetch_is_kept_until_charged() -> None:
    """The table has room for one client-id, and another client-id sends a request meanwhile."""
    async with stub_broker() as broker:
        listener = listener_to(broker.address)
        rule = QuotaRule(client_id=DEFAULT, consumer_byte_rate=1e9)
        config = ProxyConfig(listeners=(listener,), quotas=(rule,), max_buckets=1, enforcement=Enforcement.OBSERVE)
        async with running(config) as server:
            async with client_of(server) as client:
                connection = await abandoned(server, broker, client, fetch_request())
            (bucket,) = upstream_of(server, broker.address).quotas.fetch
            async with client_of(server) as client:
                await client.send(fetch_request(client_id="other"))
                await eventually(lambda: len(broker.in_use) == 2 and broker.in_use[1].requests)

            connection.transport.write(fetch_response(size_bytes=5_000))
            await eventually(lambda: connection.is_lost)

            assert bucket in list(upstream_of(server, broker.address).quotas.fetch), "it made no room for another"
            assert (bucket.tags.client_id, bucket.usage.amount, bucket.holders) == ("etl", 5_000, 0)
