"""Tests connections that queue for a broker with few slots, over real sockets."""

import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import Address, ProxyConfig
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue, ListenerPriorities
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    eventually,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
    upstream_of,
)

ONE_SLOT = FairCallQueue(max_in_flight=1)


def config_to(broker: StubBroker, settings: FairCallQueue | None = ONE_SLOT) -> ProxyConfig:
    return ProxyConfig(listeners=(replace(listener_to(broker.address), fair_call_queue=settings),))


def broker_queue_of(server: Server, address: Address) -> BrokerQueue:
    broker_queue = upstream_of(server, address).broker.queue
    assert broker_queue is not None
    return broker_queue


def reload(server: Server, settings: FairCallQueue | None) -> None:
    listeners = tuple(replace(one, fair_call_queue=settings) for one in server.config.listeners)
    server.apply(replace(server.config, listeners=listeners))


async def until_queued(broker_queue: BrokerQueue, count: int) -> None:
    await eventually(lambda: broker_queue.dispatcher.in_flight == 1 and len(broker_queue.dispatcher.queue) == count)


async def until_served(broker: StubBroker, count: int) -> None:
    await eventually(lambda: len(broker.in_use) >= count)


async def queue_up(server: Server, broker: StubBroker, stack: AsyncExitStack, count: int) -> list[Client]:
    """Let ``count`` clients send a Produce request in turn. All but the first wait in the queue."""
    broker_queue = broker_queue_of(server, broker.address)
    clients = []
    for number in range(count):
        client = await stack.enter_async_context(client_of(server))
        await client.send(produce_request(number))
        await until_queued(broker_queue, number)
        clients.append(client)
    await eventually(lambda: broker.in_use)
    return clients


def answer_next(broker: StubBroker, number: int) -> None:
    """Let the broker answer the Produce request with correlation id ``number``, on any connection."""
    (connection,) = (one for one in broker.in_use if one.requests and one.requests[-1] == produce_request(number))
    connection.transport.write(produce_response(number))


@on_uvloop
async def test_a_client_that_does_not_read_sends_no_more_requests_and_frees_its_slot() -> None:
    large = fetch_response(1, size_bytes=64 * 1024 * 1024)
    async with (
        stub_broker() as broker,
        running(config_to(broker)) as server,
        client_of(server) as sleeper,
        client_of(server) as other,
    ):
        sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await sleeper.send(fetch_request(1))
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        (connection,) = (one for one in server.listeners[0].connections if one.transports.broker is not None)
        broker.in_use[0].transport.write(large)
        await eventually(lambda: not connection.transports.reads_broker)

        await sleeper.send(other_request(2))
        await eventually(lambda: not connection.transports.reads_client)
        await other.send(produce_request(3))
        await until_served(broker, 2)
        answer_next(broker, 3)
        assert await other.answer() == produce_response(3)
        assert len(broker.in_use[0].requests) == 1
        broker_queue = broker_queue_of(server, broker.address)
        assert (broker_queue.dispatcher.in_flight, connection.route.context.service.served) == (0, 0)

        sleeper.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await sleeper.answer() == large
        await eventually(lambda: len(broker.in_use[0].requests) == 2)
        broker.in_use[0].transport.write(other_response(2))
        assert await sleeper.answer() == other_response(2)
        assert broker_queue.dispatcher.in_flight == 0


@pytest.mark.parametrize(
    "settings",
    [
        None,
        FairCallQueue(max_in_flight=3),
        FairCallQueue(max_in_flight=3, levels=1, capacity=1, capacity_weights=(1,), multiplexer_weights=(1,),
                      thresholds=(), backoff_responsetime_thresholds_ms=(1,)),
    ],
)  # fmt: skip
def test_queued_clients_continue_after_a_reload(settings: FairCallQueue | None) -> None:
    @on_uvloop
    async def go_on() -> None:
        async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
            clients = await queue_up(server, broker, stack, 3)

            reload(server, settings)
            for number in range(3):
                await until_served(broker, number + 1)
                answer_next(broker, number)
            assert [await client.answer() for client in clients] == [produce_response(number) for number in range(3)]
            dispatcher = broker_queue_of(server, broker.address).dispatcher
            assert (dispatcher.in_flight, len(dispatcher.queue)) == (0, 0)

    go_on()


@on_uvloop
async def test_a_connection_without_a_queue_gets_one_and_loses_it() -> None:
    async with stub_broker() as broker, running(config_to(broker, None)) as server, client_of(server) as client:
        broker.script = lambda frame: produce_response(int.from_bytes(frame[8:12]))
        for number, settings in enumerate((None, ONE_SLOT, None, FairCallQueue(), None)):
            reload(server, settings)
            assert await client.ask(produce_request(number)) == produce_response(number)
        calls = server.listeners[0].priorities
        assert calls is None
        assert broker_queue_of(server, broker.address).dispatcher.in_flight == 0


@on_uvloop
async def test_removing_the_queue_releases_waiting_clients() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        await queue_up(server, broker, stack, 2)

        reload(server, None)
        new = await stack.enter_async_context(client_of(server))
        await new.send(produce_request(7))
        await until_served(broker, 2)  # the first request still has the slot


def test_fifty_thousand_identities_are_bounded_and_swept_in_a_moment() -> None:
    calls = ListenerPriorities(FairCallQueue())
    begin_s = time.process_time()
    for number in range(50_000):
        calls.scheduler.charge(f"client-{number}@10.0.0.7", 1)
        calls.scheduler.level(f"client-{number}@10.0.0.7")
    assert len(calls.scheduler) == 10_001  # 10,000 identities, and one that all others share
    calls.scheduler.sweep()
    assert time.process_time() - begin_s < 5
    assert len(calls.scheduler.top(10)) == 10
