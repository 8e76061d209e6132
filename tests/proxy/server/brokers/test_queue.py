"""Tests the queue in front of a broker on the event loop, with wake-ups, slot timeouts and reloads."""

import asyncio
from time import monotonic_ns

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue, IdentityProvider
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.connection_queue import UPLOAD_GRACE_US, ListenerQueue, QueuedConnection
from kafka_quota_proxy.proxy.fair_queue.dispatcher import State, Turn
from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind, request_kind
from kafka_quota_proxy.proxy.fair_queue.slot_timeouts import SlotTimeouts
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue, ListenerPriorities
from tests.support.stub_broker import eventually, on_uvloop

ONE_SLOT = FairCallQueue(max_in_flight=1)
PRODUCE = request_kind(ApiKey.PRODUCE, 7)
FETCH = request_kind(ApiKey.FETCH, 11)


class Client:
    """A connection that waits in the queue until it is woken."""

    def __init__(self, line: ListenerQueue) -> None:
        self.call = QueuedConnection(line, self)
        self.turns = 0
        self.has_turn = asyncio.Event()

    def take_turn(self) -> None:
        self.turns += 1
        self.has_turn.set()

    def ask(self, kind: RequestKind = PRODUCE) -> bool:
        turn = self.call.ask(kind, "alice", is_alone=True, may_refuse=False, now_us=1)
        if turn is Turn.PASSES:
            self.call.passed(kind, is_whole=True, now_us=1)
        return turn is Turn.PASSES


def broker_queue_of(settings: FairCallQueue = ONE_SLOT) -> tuple[BrokerQueue, ListenerQueue]:
    broker_queue = BrokerQueue(settings)
    return broker_queue, broker_queue.listener_queue(ListenerPriorities(settings), None)


async def test_a_granted_connection_is_woken_once_after_the_current_callback() -> None:
    _, line = broker_queue_of()
    first, second = Client(line), Client(line)
    assert first.ask()
    assert not second.ask()

    first.call.end(2)
    assert second.turns == 0
    await asyncio.sleep(0)
    assert second.turns == 1
    await asyncio.sleep(0)
    assert second.turns == 1


async def test_a_slow_upload_loses_its_slot() -> None:
    _, line = broker_queue_of()
    first, second = Client(line), Client(line)
    assert first.ask(FETCH)
    assert not second.ask()

    async with asyncio.timeout(5):
        await second.has_turn.wait()
    assert first.call.ticket.state is State.PARKED


async def test_the_slot_timer_fires_for_the_earliest_timeout() -> None:
    _, line = broker_queue_of(FairCallQueue(max_in_flight=2))
    uploads, polls, waits = Client(line), Client(line), Client(line)
    assert uploads.ask()
    now_us = monotonic_ns() // 1_000
    uploads.call.passed(PRODUCE, is_whole=False, now_us=now_us + 60_000_000)
    await asyncio.sleep(0)
    assert polls.call.ask(FETCH, "alice", is_alone=True, may_refuse=False, now_us=now_us) is Turn.PASSES
    polls.call.passed(FETCH, is_whole=True, now_us=now_us)
    assert not waits.ask()

    async with asyncio.timeout(5):
        await waits.has_turn.wait()
    assert (polls.call.ticket.state, uploads.call.ticket.state) == (State.PARKED, State.RUNNING)


async def test_waking_does_not_scan_the_slot_timeouts() -> None:
    broker_queue, line = broker_queue_of(FairCallQueue(max_in_flight=3))
    clients = [Client(line) for _ in range(3)]
    now_us = monotonic_ns() // 1_000
    timers = []
    for number, client in enumerate(clients):
        assert client.ask()
        client.call.passed(PRODUCE, is_whole=False, now_us=now_us + number)
        await asyncio.sleep(0)
        timers.append(broker_queue._timer)

    assert timers == [broker_queue._timer] * 3 != [None] * 3
    for client in clients:
        client.call.end(now_us)
    assert broker_queue._timeouts.park_due(now_us + 10 * UPLOAD_GRACE_US) is None


@on_uvloop
async def test_a_timer_that_fires_early_is_not_set_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    park_due = SlotTimeouts.park_due

    def counted(self: SlotTimeouts, now_us: int) -> int | None:
        looks.append(now_us)
        return park_due(self, now_us)

    monkeypatch.setattr(SlotTimeouts, "park_due", counted)
    _, line = broker_queue_of(FairCallQueue(max_in_flight=100))
    clients = [Client(line) for _ in range(20)]
    for client in clients:
        now_us = monotonic_ns() // 1_000
        client.call.ask(FETCH, "alice", is_alone=True, may_refuse=False, now_us=now_us)
        client.call.passed(FETCH, is_whole=True, now_us=now_us)
        await asyncio.sleep(0.005)

    await eventually(lambda: all(client.call.ticket.state is State.PARKED for client in clients))

    assert len(looks) <= len(clients) + 1


async def test_more_slots_wake_waiting_connections() -> None:
    broker_queue, line = broker_queue_of()
    clients = [Client(line) for _ in range(5)]
    assert [client.ask() for client in clients] == [True, False, False, False, False]
    settings = FairCallQueue(max_in_flight=3, identity_provider=IdentityProvider.USER_CLIENT_ID)

    assert broker_queue.listener_queue(ListenerPriorities(settings), line) is line
    await asyncio.sleep(0)

    assert [client.turns for client in clients] == [0, 1, 1, 0, 0]
    assert line.identity("alice", "etl", "10.0.0.7") == "alice/etl"


async def test_a_reload_forgets_no_cost() -> None:
    calls = ListenerPriorities(ONE_SLOT)
    before = calls.scheduler
    before.charge("alice", 100)

    calls.update(ONE_SLOT)
    assert calls.scheduler is before
    calls.update(FairCallQueue(max_in_flight=1, period_ms=1_000, utilisation_floor=0.0))

    assert calls.scheduler is not before
    assert calls.scheduler.standing("alice").raw == 100
    assert calls.scheduler.level("alice") == 3
