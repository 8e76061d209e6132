"""A limit that is only observed reports the waits that its enforcement would cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import Enforcement, QuotaRule, Shaping
from tests.support.attack_world import Client, World
from tests.support.frames import produce_request


def _throttled_ms(enforcement: Enforcement, shaping: Shaping, connections: int, size_bytes: int) -> int:
    rule = QuotaRule(client_id="etl", producer_byte_rate=100_000.0, enforcement=enforcement)
    world = World(rule, shaping=shaping)
    world.answer_ms = 20
    for _ in range(connections):
        world.repeating(lambda: produce_request(size_bytes=size_bytes))
    world.run(60)
    bucket = world.context.quotas.produce.bucket(user="ANONYMOUS", client_id="etl", now_ms=world.now_ms)
    throttling = bucket.throttling
    return throttling.observed_time_ms if enforcement is Enforcement.OBSERVE else throttling.time_ms


@pytest.mark.parametrize("size_bytes", [20_000, 100_000])
@pytest.mark.parametrize("connections", [1, 4])
@pytest.mark.parametrize("shaping", Shaping)
def test_observed_waits_are_those_of_enforcement(shaping: Shaping, connections: int, size_bytes: int) -> None:
    enforced_ms, observed_ms = (
        _throttled_ms(enforcement, shaping, connections, size_bytes)
        for enforcement in (Enforcement.RESPOND, Enforcement.OBSERVE)
    )

    assert observed_ms == pytest.approx(enforced_ms, rel=0.03)


@pytest.mark.parametrize("connections", [1, 4])
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("shaping", Shaping)
def test_enforcement_begins_without_the_debt_of_the_time_before(
    shaping: Shaping, connections: int, *, leaves: bool
) -> None:
    rule = QuotaRule(client_id="etl", producer_byte_rate=100_000.0, enforcement=Enforcement.OBSERVE)
    world = World(rule, shaping=shaping)
    world.answer_ms = 20
    clients = [world.repeating(lambda: produce_request(size_bytes=100_000)) for _ in range(connections)]
    world.run(120)  # fifty times the limit and more
    if leaves:
        for one in clients:
            one.reset()
    world.change_rules(replace(rule, enforcement=Enforcement.RESPOND))
    late = Client(world)
    late.send(produce_request(size_bytes=1_000))
    world.run(15)  # what windows have counted, and one request

    assert len(late.passed) == 1
