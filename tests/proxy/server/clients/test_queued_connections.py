"""Tests connections that queue for a broker with few slots, over real sockets."""

import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.fair_call_queue import CostProvider, FairCallQueue, IdentityProvider
from kafka_quota_proxy.config.model import Address, ProxyConfig
from kafka_quota_proxy.config.principals import Fold
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.server.brokers import queue as broker_queue_module
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

pytestmark = pytest.mark.usefixtures("relay")

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
async def test_queued_clients_are_served_in_turn() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        clients = await queue_up(server, broker, stack, 3)
        for number, client in enumerate(clients):
            await until_served(broker, number + 1)
            answer_next(broker, number)
            assert await client.answer() == produce_response(number)
        assert broker_queue_of(server, broker.address).dispatcher.in_flight == 0


@on_uvloop
async def test_a_client_that_dies_in_the_queue_is_skipped() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        first, dead, last = await queue_up(server, broker, stack, 3)
        broker_queue = broker_queue_of(server, broker.address)

        dead.reset()
        # The proxy does not read this connection and so is not notified of its end. It checks such connections each
        # second.
        await eventually(lambda: len(broker_queue.dispatcher.queue) == 1)
        answer_next(broker, 0)
        assert await first.answer() == produce_response(0)
        await eventually(lambda: len(broker.in_use) == 2)
        answer_next(broker, 2)
        assert await last.answer() == produce_response(2)
        assert broker_queue.dispatcher.in_flight == 0


@on_uvloop
async def test_a_half_closed_client_is_served_in_turn() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        _, leaver, _ = await queue_up(server, broker, stack, 3)

        leaver.writer.write_eof()
        for number in range(3):
            await until_served(broker, number + 1)
            answer_next(broker, number)
        assert await leaver.answer() == produce_response(1)
        assert await leaver.answer() == b""


@on_uvloop
async def test_an_answered_client_that_does_not_read_frees_its_slot() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        sleeper, other = await queue_up(server, broker, stack, 2)
        sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined] # asyncio's own has it
        answer_next(broker, 0)
        await eventually(lambda: len(broker.in_use) == 2)
        answer_next(broker, 1)
        assert await other.answer() == produce_response(1)
        assert broker_queue_of(server, broker.address).dispatcher.in_flight == 0


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


@on_uvloop
async def test_a_client_that_stalls_within_a_request_frees_its_slot() -> None:
    async with (
        stub_broker() as broker,
        running(config_to(broker)) as server,
        client_of(server) as sleeper,
        client_of(server) as other,
    ):
        request = produce_request(1, size_bytes=600_000)
        await sleeper.send(request[:500_000])
        await eventually(lambda: broker_queue_of(server, broker.address).dispatcher.in_flight == 1)
        await other.send(produce_request(2))
        await eventually(lambda: any(one.requests for one in broker.in_use))

        await sleeper.send(request[500_000:])
        await eventually(lambda: sum(len(one.requests) for one in broker.in_use) == 2)


@on_uvloop
async def test_a_waiting_poll_gives_its_slot_away() -> None:
    async with (
        stub_broker() as broker,
        running(config_to(broker)) as server,
        client_of(server) as consumer,
        client_of(server) as producer,
    ):
        await consumer.send(fetch_request(1))
        await eventually(lambda: broker.in_use)
        await producer.send(produce_request(2))
        await eventually(lambda: len(broker.in_use) == 2)  # the fetch has no response yet


@on_uvloop
async def test_a_lost_broker_connection_frees_its_slots() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        clients = await queue_up(server, broker, stack, 2)
        broker_queue = broker_queue_of(server, broker.address)
        await broker.stop()
        assert [await client.answer() for client in clients] == [b"", b""]
        assert (broker_queue.dispatcher.in_flight, len(broker_queue.dispatcher.queue)) == (0, 0)

        await broker.start()
        broker.script = lambda frame: other_response(int.from_bytes(frame[8:12]))
        async with client_of(server) as client:
            assert await client.ask(other_request(7)) == other_response(7)


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


@on_uvloop
async def test_a_new_identity_provider_counts_from_the_next_request() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server, client_of(server) as client:
        broker.script = lambda frame: produce_response(int.from_bytes(frame[8:12]))
        calls = server.listeners[0].priorities
        assert calls is not None
        await client.ask(other_request(1, api_key=ApiKey.API_VERSIONS, version=0))
        (connection,) = server.listeners[0].connections
        connection.session.account.log_in("alice")
        for provider in (IdentityProvider.USER, IdentityProvider.USER_CLIENT_ID, IdentityProvider.USER):
            reload(server, replace(ONE_SLOT, identity_provider=provider))
            await client.ask(produce_request(2))
        reload(server, replace(ONE_SLOT, fold=(Fold(match="ali.*", to="all"),)))
        await client.ask(produce_request(2))

        costs = {one.identity: one.raw for one in calls.scheduler.top(10)}
        assert (costs["alice"], costs["alice/etl"], costs["all"]) == (2, 1, 1)


@on_uvloop
async def test_user_costs_survive_a_reload() -> None:
    async with stub_broker() as broker, running(config_to(broker)) as server:
        calls = server.listeners[0].priorities
        assert calls is not None
        calls.scheduler.charge("alice", 7)

        reload(server, replace(ONE_SLOT, period_ms=1_000, cost_provider=CostProvider.TRAFFIC))

        assert calls.scheduler.standing("alice").raw == 7
        assert calls.scheduler.next_sweep_ms - time.monotonic_ns() // 1_000_000 <= 1_000


@on_uvloop
async def test_the_measured_slot_limit_survives_an_unrelated_reload() -> None:
    async with stub_broker() as broker, running(config_to(broker, FairCallQueue())) as server:
        broker_queue = broker_queue_of(server, broker.address)
        broker_queue._limit.limit = 17

        reload(server, FairCallQueue(capacity=100))
        assert broker_queue.dispatcher.limit == 17
        reload(server, FairCallQueue(min_in_flight=6))
        assert broker_queue.dispatcher.limit == 6


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


def test_fifty_thousand_identities_without_a_bound_are_forgotten_when_they_are_silent() -> None:
    calls = ListenerPriorities(FairCallQueue(max_identities=None))
    for number in range(50_000):
        calls.scheduler.charge(f"client-{number}@10.0.0.7", 1)
    assert len(calls.scheduler) == 50_000
    for _ in range(12):
        calls.scheduler.sweep()
    assert len(calls.scheduler) == 0


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 4_999, 3_600_000, 10**12])
def test_a_clock_jump_skips_no_turn(jump_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 10**9
    monkeypatch.setattr(broker_queue_module, "monotonic_ns", lambda: now_ms * 1_000_000)
    calls = ListenerPriorities(FairCallQueue())
    calls.scheduler.charge("alice", 1_000)
    begin_s = time.process_time()

    calls.scheduler.sweep_if_due(now_ms=now_ms + jump_ms)

    assert time.process_time() - begin_s < 1
    # However long the pause is, the cost decays as in three periods.
    assert calls.scheduler.standing("alice").decayed == (1_000 if jump_ms < 5_000 else 125)
