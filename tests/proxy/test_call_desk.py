"""The queue in front of a broker with the loop's clock: who is woken, and what a reload changes."""

import asyncio

from config.model import FairCallQueue, IdentityProvider
from protocol.api import ApiKey
from proxy.call_desk import CallDesk, CallScheduler
from proxy.calls import Call, Line, Turn
from proxy.scheduling.dispatcher import State
from proxy.service_time import Asked

ONE_SLOT = FairCallQueue(max_in_flight=1)
PRODUCE = Asked(ApiKey.PRODUCE, 7, 100, acks=1)
FETCH = Asked(ApiKey.FETCH, 11, 100, max_wait_ms=500, min_bytes=1)


class Client:
    """Somebody who waits, and is woken."""

    def __init__(self, line: Line) -> None:
        self.call = Call(line, self)
        self.turns = 0
        self.has_turn = asyncio.Event()

    def take_turn(self) -> None:
        self.turns += 1
        self.has_turn.set()

    def ask(self, asked: Asked = PRODUCE) -> bool:
        turn = self.call.ask(asked, "alice", is_alone=True, may_refuse=False, now_us=1)
        if turn is Turn.PASSES:
            self.call.passed(asked, is_whole=True, now_us=1)
        return turn is Turn.PASSES


def desk_of(settings: FairCallQueue = ONE_SLOT) -> tuple[CallDesk, Line]:
    desk = CallDesk(settings)
    return desk, desk.line(CallScheduler(settings), None)


async def test_who_gets_a_slot_is_woken_once_and_not_in_the_midst_of_another() -> None:
    _, line = desk_of()
    first, second = Client(line), Client(line)
    assert first.ask()
    assert not second.ask()

    first.call.end(2)
    assert second.turns == 0
    await asyncio.sleep(0)
    assert second.turns == 1
    await asyncio.sleep(0)
    assert second.turns == 1


async def test_who_waits_for_data_loses_his_slot_after_a_while() -> None:
    _, line = desk_of()
    first, second = Client(line), Client(line)
    assert first.ask(FETCH)
    assert not second.ask()

    async with asyncio.timeout(5):
        await second.has_turn.wait()
    assert first.call.ticket.state is State.PARKED


async def test_more_slots_wake_who_waits() -> None:
    desk, line = desk_of()
    clients = [Client(line) for _ in range(5)]
    assert [client.ask() for client in clients] == [True, False, False, False, False]
    settings = FairCallQueue(max_in_flight=3, identity_provider=IdentityProvider.USER_CLIENT_ID)

    assert desk.line(CallScheduler(settings), line) is line
    await asyncio.sleep(0)

    assert [client.turns for client in clients] == [0, 1, 1, 0, 0]
    assert line.identity("alice", "etl", "10.0.0.7") == "alice/etl"


async def test_a_reload_forgets_no_cost() -> None:
    calls = CallScheduler(ONE_SLOT)
    before = calls.scheduler
    before.charge("alice", 100)

    calls.update(ONE_SLOT)
    assert calls.scheduler is before
    calls.update(FairCallQueue(max_in_flight=1, period_ms=1_000, utilisation_floor=0.0))

    assert calls.scheduler is not before
    assert calls.scheduler.standing("alice").raw == 100
    assert calls.scheduler.level("alice") == 3
