"""The plan of a soak is the same for the same seed, and leaves enough to check."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.soak.clients import CLIENTS
from tests.soak.plan import Kind, plan

_SEEDS = range(8)
_PROXY_ENDS = (Kind.KILL_PROXY, Kind.STOP_PROXY)


def test_seed_decides() -> None:
    assert plan(60, 1) == plan(60, 1)
    assert plan(60, 1) != plan(60, 2)


@pytest.mark.parametrize("seed", _SEEDS)
def test_one_life_of_an_hour_has_a_quarter_and_the_others_some_seven_minutes(seed: int) -> None:
    ends = [0.0, *(event.at_s for event in plan(60, seed).events if event.kind in _PROXY_ENDS), 3_600.0]
    lives = sorted(after - before for before, after in pairwise(ends))

    assert lives[-1] > 900 + 60
    assert all(300 < life < 600 for life in lives[:-1])
    assert len(lives) == 7


@pytest.mark.parametrize("minutes", [3, 60])
def test_every_kind_of_event_happens_and_the_end_is_quiet(minutes: int) -> None:
    for seed in _SEEDS:
        events = plan(minutes, seed).events
        assert {event.kind for event in events} == set(Kind)
        assert events[-1].at_s <= minutes * 60 - 40
        assert [event.at_s for event in events] == sorted(event.at_s for event in events)


def test_limits_stay_for_more_than_two_minutes() -> None:
    for seed in _SEEDS:
        for client in CLIENTS:
            changes = [event for event in plan(60, seed).events if event.client == client.name]
            assert len(changes) > 10
            assert all(after.at_s - before.at_s >= 130 for before, after in pairwise(changes))
            assert all(client.lowest <= event.limit < client.highest for event in changes)
            assert {event.kind for event in changes} == {Kind.RELOAD if client.in_file else Kind.ALTER}
