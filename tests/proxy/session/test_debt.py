"""Time pays what a client owes, at the rate of its limit, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from kafka_quota_proxy.config.model import QuotaRule, Shaping
from tests.support.attack_world import START_MS, Client, World
from tests.support.frames import FETCH, PRODUCE, fetch_request, produce_request

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
