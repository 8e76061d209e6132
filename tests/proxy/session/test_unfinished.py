"""Requests that are announced and do not come hold nobody for long, and are no way round a quota."""

from __future__ import annotations

import pytest

from kafka_quota_proxy.config.model import QuotaRule, Shaping
from tests.support.attack_world import Client, World
from tests.support.frames import produce_request


def _steady(world: World, period_ms: int, size_bytes: int) -> list[Client]:
    """Add a client that sends a Produce at a steady pace, below its quota, as soon as the last one is answered."""
    client = world.repeating(lambda: produce_request(size_bytes=size_bytes))
    again = client.on_answer
    assert again is not None
    client.on_answer = lambda throttle_time_ms: again(max(period_ms, throttle_time_ms))
    return [client]


@pytest.mark.parametrize("shaping", Shaping)
def test_requests_that_stall_hold_nobody(shaping: Shaping) -> None:
    rule = QuotaRule(client_id="etl", producer_byte_rate=100_000.0)
    alone, world = World(rule, shaping=shaping), World(rule, shaping=shaping)
    [undisturbed], [victim] = _steady(alone, 100, 1_000), _steady(world, 100, 1_000)

    def stall() -> None:
        client = Client(world)
        client.send(produce_request(size_bytes=9_000_000)[:1_000])
        world.call_in(26_000, client.reset)
        world.call_in(26_000, stall)

    for number in range(8):
        world.call_in(100 * number, stall)
    alone.run(120)
    world.run(120)

    assert len(victim.passed) >= 0.9 * len(undisturbed.passed)


def test_bytes_that_keep_coming_keep_their_reservation() -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=100_000.0))
    slow, other = Client(world), Client(world)
    frame = produce_request(size_bytes=3_000_000)
    slow.send(frame[:100])
    for at in range(100, 12_100, 1_000):
        world.call_in(at, lambda at=at: slow.send(frame[at : at + 1_000]))  # type: ignore[misc]

    world.call_in(500, lambda: other.send(produce_request(size_bytes=3_000_000)))
    world.run(12)
    assert other.passed == []

    world.run(60)
    assert len(other.passed) == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_produces_that_never_end_are_charged(acks: int) -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=10_000.0))
    forwarded: list[int] = []

    def begin() -> None:
        client = Client(world)
        frame = produce_request(size_bytes=5_000_000, acks=acks)
        client.send(frame[:4_000_000])
        forwarded.append(4_000_000 - client.session.held_bytes)
        world.call_in(100, client.reset)

    world.every(1_000, begin)
    world.run(60)

    # One such request passes, and 400 s are owed.
    assert sum(size for size in forwarded if size > 0) == 4_000_000


def test_ends_of_small_requests_are_free() -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=100_000.0))
    client = Client(world)
    client.send(produce_request(size_bytes=900_000)[:800_000])
    client.reset()

    bucket = world.context.quotas.produce.bucket(user="ANONYMOUS", client_id="etl", now_ms=world.now_ms)
    assert bucket.debt(now_ms=world.now_ms) == 0
    assert bucket.reserved.amount == bucket.usage.amount == 0


def test_debts_that_are_a_window_apart_add_up() -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=10_000.0))
    frame = produce_request(size_bytes=4_000_000)
    # The broker has stalled. Each reservation holds others for 25 s at most, so that they are charged as far apart.
    world.answer_ms = 110_000
    clients = [Client(world) for _ in range(4)]
    for number, client in enumerate(clients):
        world.call_in(26_000 * number, lambda client=client: client.send(frame))  # type: ignore[misc]
    world.run(100)
    world.answer_ms = 1
    honest = world.repeating(lambda: produce_request(size_bytes=10_000))
    world.run(2_000)

    passed = sum(one.size_bytes for client in (*clients, honest) for one in client.passed)
    assert sum(len(client.passed) for client in clients) == 4
    assert passed <= 10_000 * (2_000 + 10) + 4_000_000


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("shaping", Shaping)
@pytest.mark.parametrize("piece_bytes", [100_000, 3_000_000])
def test_requests_that_stalled_do_not_go_on_all_at_once(acks: int, shaping: Shaping, piece_bytes: int) -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=100_000.0), shaping=shaping)
    frame = produce_request(size_bytes=3_000_000, acks=acks)
    clients = [Client(world) for _ in range(10)]
    for client in clients:
        client.send(frame[:400])
    world.run(4)
    assert all(client.session.state.request_left for client in clients), "all have begun"

    for begin in range(400, len(frame), piece_bytes):
        for client in clients:
            client.send(frame[begin : begin + piece_bytes])
    world.run(46)

    forwarded = sum(3_000_000 - client.session.held_bytes for client in clients)
    assert forwarded <= 50 * 100_000 + 11 * 100_000 + 3_000_000
    world.run(10 * 30)
    assert sum(len(client.passed) for client in clients) == 10


def test_client_that_closes_its_side_is_answered_once_its_rest_has_passed() -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=100_000.0))
    frame = produce_request(size_bytes=3_000_000)
    first, second = Client(world), Client(world)
    for client in (first, second):
        client.send(frame[:400])
        world.run(3)
    for client in (first, second):
        client.send(frame[400:])
        client.session.receive_end_from_client()
    assert (len(first.passed), len(second.passed)) == (1, 0)

    world.run(30)
    assert len(second.passed) == 1
    bucket = world.context.quotas.produce.bucket(user="ANONYMOUS", client_id="etl", now_ms=world.now_ms)
    assert bucket.reserved.amount == 0


def test_client_that_closes_its_side_within_a_request_is_gone() -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=100_000.0))
    frame = produce_request(size_bytes=3_000_000)
    first, second = Client(world), Client(world)
    for client in (first, second):
        client.send(frame[:400])
        world.run(3)
    first.send(frame[400:])
    second.send(frame[400:1_000_000])
    assert second.session.held_bytes == 999_600

    second.session.receive_end_from_client()
    assert second.session.is_idle
    assert second.session.held_bytes == 0
