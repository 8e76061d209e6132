"""``request_rate`` holds on any number of connections, and heartbeats still pass in time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafka_quota_proxy.config.model import QuotaRule, Shaping
from tests.support.attack_world import Client, World
from tests.support.frames import other_request

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
