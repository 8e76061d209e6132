"""Limits that brokers can bear, compared with a slow filling in small steps."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.broker_capacity import (
    Broker,
    Entity,
    Shortage,
    Users,
    max_min_fair,
    shaped,
    shortages,
)

A, B, C = (("produce", "alice", name) for name in "abc")
ONE, TWO = (1, "produce"), (2, "produce")


def test_small_wishes_are_met_and_the_rest_is_even() -> None:
    users = {ONE: {A: 1, B: 1, C: 1}}

    found = max_min_fair({A: 10.0, B: 80.0, C: 90.0}, users, {ONE: 110.0})

    assert found == {A: 10, B: 50, C: 50}


def test_the_fullest_broker_decides_and_others_get_what_is_left_elsewhere() -> None:
    users = {ONE: {A: 1, B: 1}, TWO: {B: 1, C: 1}}

    found = max_min_fair({A: 100.0, B: 100.0, C: 100.0}, users, {ONE: 40.0, TWO: 90.0})

    assert found == {A: 20, B: 20, C: 70}


def test_every_proxy_of_a_broker_counts() -> None:
    found = max_min_fair({A: 100.0, B: 100.0, C: 5.0}, {ONE: {A: 2, B: 1}}, {ONE: 90.0})

    assert found == {A: 30, B: 30, C: 5}


def test_needs_come_before_headroom() -> None:
    users = {ONE: {A: 1, B: 1}}

    enough = shaped({A: 60.0, B: 10.0}, {A: 120.0, B: 20.0}, users, {ONE: 90.0})
    scarce = shaped({A: 60.0, B: 10.0}, {A: 120.0, B: 20.0}, users, {ONE: 50.0})

    assert enough == {A: 70, B: 20}
    assert scarce == {A: 40, B: 10}


def test_brokers_that_cannot_bear_the_needs_are_named_the_worst_first() -> None:
    users = {ONE: {A: 1, B: 2}, TWO: {A: 1}, (3, "produce"): {B: 1}}
    needs = {A: 100.0, B: 50.0}

    found = shortages(needs, users, {ONE: 100.0, TWO: 20.0, (3, "produce"): 50.0})

    assert found == [Shortage(TWO, 100, 20), Shortage(ONE, 200, 100)]


def filled(wanted: Mapping[Entity, float], users: Users, bearable: Mapping[Broker, float]) -> dict[Entity, float]:
    """Raise all entities together in small steps, each until it has all or one of its brokers is full."""
    step, given_so_far, waiting = 0.02, dict.fromkeys(wanted, 0.0), set(wanted)
    while waiting:
        for one in sorted(waiting):
            more = given_so_far | {one: given_so_far[one] + step}
            is_full = any(
                one in of and sum(times * more[other] for other, times in of.items()) > bearable[broker]
                for broker, of in users.items()
            )
            if is_full or more[one] > wanted[one]:
                waiting.discard(one)
            else:
                given_so_far = more
    return given_so_far


@given(
    wanted=st.lists(st.integers(0, 20), min_size=3, max_size=3),
    uses=st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=2),
    bearable=st.lists(st.integers(0, 40), min_size=2, max_size=2),
)
def test_division_equals_filling_in_small_steps(wanted: list[int], uses: list[list[int]], bearable: list[int]) -> None:
    names = (A, B, C)
    users = {
        broker: {one: times for one, times in zip(names, of, strict=True) if times}
        for broker, of in zip((ONE, TWO), uses, strict=True)
    }
    arguments = (
        {one: float(rate) for one, rate in zip(names, wanted, strict=True)},
        users,
        {broker: float(rate) for broker, rate in zip((ONE, TWO), bearable, strict=True)},
    )

    found = max_min_fair(*arguments)

    assert found == pytest.approx(filled(*arguments), abs=0.5)
    for broker, of in users.items():
        assert sum(times * found[one] for one, times in of.items()) <= arguments[2][broker] + 1e-6
