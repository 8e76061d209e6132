"""Time pays what a client owes, at the rate of its limit, and nothing else does: bytes, requests and observed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise

import pytest

from kafka_quota_proxy.config.model import Enforcement, QuotaRule, Shaping
from tests.support.attack_world import START_MS, Client, World
from tests.support.frames import FETCH, PRODUCE, fetch_request, other_request, produce_request

_RATE = 100_000


def _rule(rate: float = _RATE) -> QuotaRule:
    return QuotaRule(client_id="etl", producer_byte_rate=float(rate), consumer_byte_rate=float(rate))


def _greedy(world: World) -> Client:
    return world.repeating(lambda: produce_request(size_bytes=10_000_000))


@pytest.mark.parametrize("shaping", Shaping)
def test_rules_that_change_forgive_nothing(shaping: Shaping) -> None:
    world, number = World(_rule(), shaping=shaping), count()
    client = _greedy(world)

    world.every(13_000, lambda: world.change_rules(_rule(), QuotaRule(client_id=f"x-{next(number)}", request_rate=9.0)))
    world.run(600)

    # 60 MB in ten minutes, a burst, and the request that goes over the limit.
    assert sum(one.size_bytes for one in client.passed) <= 600 * _RATE + 10 * _RATE + 10_000_000


def test_nothing_is_owed_while_there_is_no_limit() -> None:
    rule = QuotaRule(user="ANONYMOUS", client_id="etl", producer_byte_rate=float(_RATE))
    world = World(rule)
    Client(world).send(produce_request(size_bytes=10_000_000))
    world.run(20)
    world.change_rules()
    Client(world).send(produce_request(size_bytes=1_000))
    world.change_rules(rule)
    late = Client(world)
    late.send(produce_request(size_bytes=1_000))
    world.run(1)

    assert len(late.passed) == 1


@pytest.mark.parametrize(("rate", "paid_s"), [(10_000, 0.5 + 95), (_RATE, 10), (1_000_000, 0.5 + 0.95)])
def test_new_limit_pays_the_debt_at_its_own_rate(rate: int, paid_s: float) -> None:
    world = World(_rule())
    Client(world).send(produce_request(size_bytes=2_000_000))  # a million above the room
    world.run(0.5)
    late = Client(world)

    world.change_rules(_rule(rate))
    late.send(produce_request(size_bytes=1_000))
    world.run(200)

    assert (late.passed[0].at_ms - START_MS) / 1_000 == pytest.approx(paid_s, rel=0.02)


@pytest.mark.parametrize("shaping", Shaping)
def test_an_empty_long_poll_starves_nobody(shaping: Shaping) -> None:
    world = World(_rule(1_000_000), shaping=shaping)
    poller, victim = Client(world), world.repeating(fetch_request)

    def poll() -> None:
        request = bytearray(fetch_request())
        at = 4 + 8 + 2 + len("etl") + 4
        request[at : at + 4] = (2**31 - 1).to_bytes(4)
        poller.send(bytes(request))

    world.every(9_000, poll)
    world.run(40)

    assert sum(one.api_key == FETCH for one in victim.passed) >= 75  # each takes its ``max_wait_ms`` of 500 ms


def _mixed(world: World, sizes: Callable[[], int]) -> list[Client]:
    return [world.repeating(lambda: produce_request(size_bytes=sizes())) for _ in range(20)]


def test_reloads_and_crowds_get_the_quota() -> None:
    world, number = World(_rule()), count()
    clients = _mixed(world, lambda: 5_000 + next(number) % 7 * 3_000)

    world.every(3_000, lambda: world.change_rules(_rule()))
    world.run(300)

    passed = sum(one.size_bytes for client in clients for one in client.passed if one.api_key == PRODUCE)
    assert 0.97 * 300 * _RATE <= passed <= 1.02 * (300 + 10) * _RATE


def _throttled_ms(enforcement: Enforcement, shaping: Shaping, connections: int, size_bytes: int) -> int:
    rule = QuotaRule(client_id="etl", producer_byte_rate=100_000.0, enforcement=enforcement)
    world = World(rule, shaping=shaping)
    world.answer_ms = 20
    for _ in range(connections):
        world.repeating(lambda: produce_request(size_bytes=size_bytes))
    world.run(60)
    bucket = world.context.quotas.produce.bucket(user="ANONYMOUS", client_id="etl", now_ms=world.now_ms)
    throttling = bucket.usage.throttling
    return throttling.observed_time_ms if enforcement is Enforcement.OBSERVE else throttling.time_ms


@pytest.mark.parametrize(("connections", "size_bytes"), [(1, 100_000), (4, 20_000)])
@pytest.mark.parametrize("shaping", Shaping)
def test_observed_waits_are_those_of_enforcement(shaping: Shaping, connections: int, size_bytes: int) -> None:
    enforced_ms, observed_ms = (
        _throttled_ms(enforcement, shaping, connections, size_bytes)
        for enforcement in (Enforcement.RESPOND, Enforcement.OBSERVE)
    )

    assert observed_ms == pytest.approx(enforced_ms, rel=0.03)


@pytest.mark.parametrize(("connections", "leaves"), [(1, False), (4, False), (4, True)])
@pytest.mark.parametrize("shaping", Shaping)
def test_enforcement_begins_without_the_debt_of_the_time_before(
    shaping: Shaping, connections: int, *, leaves: bool
) -> None:
    rule = QuotaRule(client_id="etl", producer_byte_rate=100_000.0, enforcement=Enforcement.OBSERVE)
    world = World(rule, shaping=shaping)
    world.answer_ms = 20
    clients = [world.repeating(lambda: produce_request(size_bytes=100_000)) for _ in range(connections)]
    world.run(40)  # fifty times the limit and more
    if leaves:
        for one in clients:
            one.reset()
    world.change_rules(replace(rule, enforcement=Enforcement.RESPOND))
    late = Client(world)
    late.send(produce_request(size_bytes=1_000))
    world.run(15)  # what windows have counted, and one request

    assert len(late.passed) == 1


_HEARTBEAT = 12
_BURST_S = {Shaping.SAMPLED: 10, Shaping.PACED: 1}


@pytest.mark.parametrize("shaping", Shaping)
@pytest.mark.parametrize(("rate", "connections"), [(2, 300), (1, 600)])
def test_holds_on_many_connections(rate: int, connections: int, shaping: Shaping) -> None:
    world = World(QuotaRule(client_id="etl", request_rate=float(rate)), shaping=shaping)
    clients = [world.repeating(other_request) for _ in range(connections)]

    world.run(60)

    passed = sum(len(client.passed) for client in clients)
    assert rate * 60 <= passed <= rate * (60 + _BURST_S[shaping]) + 1


def test_new_connections_are_no_way_round_it() -> None:
    world = World(QuotaRule(client_id="etl", request_rate=1.0), shaping=Shaping.PACED)
    gone: list[Client] = []

    def reconnect() -> None:
        if gone:
            gone[-1].reset()
        gone.append(Client(world))
        gone[-1].send(other_request())

    world.every(20, reconnect)
    patient = world.repeating(other_request)
    world.run(60)

    assert sum(len(client.passed) for client in (*gone, patient)) <= 62


def test_everybody_gets_a_turn() -> None:
    world = World(QuotaRule(client_id="etl", request_rate=10.0), shaping=Shaping.PACED)
    clients = [world.repeating(other_request) for _ in range(100)]

    world.run(120)

    counts = [len(client.passed) for client in clients]
    assert min(counts) >= 10
    assert max(counts) <= 14


def test_heartbeats_pass_within_half_a_minute() -> None:
    world = World(QuotaRule(client_id="etl", request_rate=1.0))
    for _ in range(50):
        world.repeating(other_request)
    member = world.repeating(lambda: other_request(api_key=_HEARTBEAT, version=3))

    world.run(300)

    beats = [one.at_ms for one in member.passed]
    assert len(beats) >= 10
    assert max(after - before for before, after in pairwise(beats)) <= 31_000
