"""Tests that faults which overlap all end."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from tests.simulation.faults import KINDS
from tests.simulation.network import LATENCY_MS


def test_two_slow_networks_that_overlap_both_end() -> None:
    heals: list[Callable[[], None]] = []
    link = SimpleNamespace(latency_ns=900_000_000)
    network = SimpleNamespace(latency_ms=LATENCY_MS, open_links=lambda: [link])
    world = SimpleNamespace(network=network, call_later=lambda _, heal: heals.append(heal))
    scenario = cast(Any, SimpleNamespace(world=world, tell=lambda _: None, usual_latency_ms=LATENCY_MS))

    for seed in range(20):
        assert KINDS["slow network"](scenario, Random(seed))
    assert network.latency_ms != LATENCY_MS
    assert link.latency_ns <= 1_000_000_000, "an open connection takes a second at most"

    for heal in heals:
        heal()
    assert network.latency_ms == LATENCY_MS
