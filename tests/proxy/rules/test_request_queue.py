"""Tests that requests wait in order and within bounds, and that dropped requests make room."""

import asyncio

from kafka_quota_proxy.proxy.rules.administration import RequestQueue
from kafka_quota_proxy.proxy.rules.api import Origin, Ticket

ORIGIN = Origin("admin")


def put(queue: RequestQueue, frame: bytes) -> Ticket | None:
    ticket = Ticket(ORIGIN, None, frame=frame)
    return ticket if queue.put(ticket) else None


def test_waiting_bytes_are_bounded_and_a_dropped_request_makes_room() -> None:
    queue, large = RequestQueue(), bytes(4 * 1024 * 1024)

    tickets = [put(queue, large) for _ in range(6)]
    assert [ticket is not None for ticket in tickets] == [True] * 4 + [False] * 2
    assert tickets[1] is not None
    tickets[1].drop()
    assert put(queue, large) is not None
    assert put(queue, large) is None


def test_number_of_waiting_requests_is_bounded_and_a_dropped_one_makes_room() -> None:
    queue = RequestQueue()
    tickets = [put(queue, b"small") for _ in range(1_001)]
    assert tickets[999] is not None
    assert tickets[1_000] is None
    tickets[999].drop()
    assert put(queue, b"small") is not None


def test_requests_are_taken_in_order_without_the_dropped_ones() -> None:
    async def taken() -> list[bytes]:
        queue = RequestQueue()
        waiting = asyncio.ensure_future(queue.next())
        await asyncio.sleep(0)
        tickets = [put(queue, str(number).encode()) for number in range(4)]
        assert tickets[1] is not None
        tickets[1].drop()
        return [one.frame for one in (await waiting, await queue.next(), await queue.next())]

    assert asyncio.run(taken()) == [b"0", b"2", b"3"]
