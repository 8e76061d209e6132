"""Tests how a connection is drained, from the last request until the client closes its side."""

import asyncio
from functools import partial

import pytest

from kafka_quota_proxy.proxy.server.clients import half_close as half_close_module
from tests.proxy.server.clients.test_connection import (
    answers,
    config_to,
    disconnects,
    ended,
    only_connection,
)
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    produce_request,
)
from tests.support.stub_broker import (
    client_of,
    correlation_id,
    eventually,
    on_uvloop,
    running,
    stub_broker,
)

pytestmark = pytest.mark.usefixtures("relay")


@on_uvloop
async def test_draining_closes_an_idle_client_at_once() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.ask(other_request())

        only_connection(server).drain("shutdown")

        assert await ended(client)
        client.writer.close()
        await eventually(lambda: disconnects(server) == {"shutdown": 1})
        await eventually(lambda: broker.in_use[0].is_lost)
        await eventually(lambda: not server.listeners[0].open_count.total and not server.listeners[0].broker_count)
        assert not any(server.listeners[0].timer_wheel._due.values())  # nothing keeps the connection in memory


@on_uvloop
async def test_a_half_closed_client_gets_no_request_forwarded_that_would_be_answered() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.send(produce_request(1, acks=0))
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        only_connection(server).drain("shutdown")
        await client.send(fetch_request(2), produce_request(3), produce_request(4, acks=0))
        await client.send(other_request(5)[:9])
        await client.send(other_request(5)[9:], produce_request(6, acks=0))

        assert await ended(client)
        client.writer.close()
        await eventually(lambda: broker.in_use[0].is_lost)
        assert broker.in_use[0].requests == [produce_request(number, acks=0) for number in (1, 4, 6)]


@on_uvloop
async def test_a_drained_client_that_stays_open_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_close_module, "_WAIT_S", 0.05)
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.ask(other_request())

        only_connection(server).drain("max_connection_age")

        await eventually(lambda: disconnects(server) == {"max_connection_age": 1})


@on_uvloop
async def test_a_drained_client_that_reads_slowly_gets_every_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_close_module, "_WAIT_S", 0.05)
    async with (
        stub_broker(lambda frame: fetch_response(correlation_id(frame), size_bytes=60_000)) as broker,
        running(config_to(broker)) as server,
        client_of(server) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await eventually(lambda: server.listeners[0].connections)
        connection, count = only_connection(server), 0

        def has_answered(count: int) -> bool:
            requests = broker.in_use[0].requests if broker.in_use else []
            return len(requests) == count and connection.session.is_idle

        while not connection.transports.client or not connection.transports.client.get_write_buffer_size():
            await client.send(fetch_request(count))
            count += 1
            await eventually(partial(has_answered, count))
        connection.drain("shutdown")
        await asyncio.sleep(0.2)  # several times as long as the proxy waits for a client that reads nothing
        await client.send(other_request())
        await asyncio.sleep(0.1)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]

        expected = [fetch_response(number, size_bytes=60_000) for number in range(count)]
        assert [await client.answer() for _ in range(count)] == expected
        assert await ended(client)
