"""Limits on how many connections there are and how long each may stay; time is a number."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Address, Listener
from kafka_quota_proxy.proxy.server.connection_limits import (
    Occupancy,
    Place,
    Spread,
    Watch,
    limit_that_has_come,
    look_at_ms,
    who_holds_too_much,
)

UNLIMITED = Listener(
    name="clients",
    bind=Address(host="127.0.0.1", port=9092),
    max_connections=None,
    login_timeout_ms=None,
)
HOUR_MS = 3_600_000
STARTED_MS = 86_400_000


def limit(
    listener: Listener, now_ms: int, *, active_ms: int = 0, has_begun: bool = True, spread: float = 0.0
) -> str | None:
    """Ask for the limit of a connection; times are since it started."""
    return limit_that_has_come(
        listener,
        now_ms=STARTED_MS + now_ms,
        started_ms=STARTED_MS,
        active_ms=STARTED_MS + active_ms,
        has_begun=has_begun,
        spread=spread,
    )


def look(
    listener: Listener, now_ms: int = 0, *, active_ms: int = 0, has_begun: bool = True, spread: float = 0.0
) -> int:
    """Ask when to look again, since the connection started."""
    at_ms = look_at_ms(
        listener,
        now_ms=STARTED_MS + now_ms,
        started_ms=STARTED_MS,
        active_ms=STARTED_MS + active_ms,
        has_begun=has_begun,
        spread=spread,
    )
    return at_ms - STARTED_MS


# -- how many --


def source(host: str) -> tuple[str, int]:
    return host, 50_000


def test_one_more_than_the_most_does_not_enter_until_one_leaves() -> None:
    occupancy = Occupancy()

    first, second, third = (occupancy.enter(2) for _ in range(3))
    assert first
    assert second
    assert third is None
    first.leave()
    assert occupancy.enter(2)
    assert occupancy.total == 2


def test_each_address_has_a_limit_of_its_own() -> None:
    occupancy = Occupancy()
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.1"]

    places = [occupancy.enter(None) for _ in hosts]

    assert [place and place.come_from(source(host), 1) for place, host in zip(places, hosts, strict=True)] == [
        True,
        True,
        False,
    ]


def test_no_limit_counts_all_the_same() -> None:
    occupancy = Occupancy()
    for _ in range(20_000):
        place = occupancy.enter(None)
        assert place
        assert place.come_from(source("10.0.0.1"), None)

    assert occupancy.total == 20_000
    last = occupancy.enter(None)
    assert last
    assert not last.come_from(source("10.0.0.1"), 20_000)


def test_a_place_is_given_back_once() -> None:
    occupancy = Occupancy()
    place, other = occupancy.enter(None), occupancy.enter(None)
    assert place
    assert other
    place.come_from(source("10.0.0.1"), None)

    for _ in range(3):
        place.leave()

    assert (occupancy.total, occupancy._by_host) == (1, {})
    assert not place.come_from(source("10.0.0.1"), None)


@given(
    st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]), st.booleans()), max_size=60),
    st.integers(1, 5),
)
def test_who_has_left_leaves_nothing_behind(steps: list[tuple[str, bool]], most: int) -> None:
    occupancy = Occupancy()
    inside: list[tuple[str, Place]] = []
    for host, enters in steps:
        place = occupancy.enter(None) if enters else None
        if place and place.come_from(source(host), most):
            inside.append((host, place))
        elif place:
            assert [one for one, _ in inside].count(host) == most
            place.leave()
        elif inside:
            inside.pop()[1].leave()
        hosts = [one for one, _ in inside]
        assert occupancy.total == len(inside)
        assert occupancy._by_host == {one: hosts.count(one) for one in hosts}


# -- how long --


def test_without_limits_a_connection_stays_and_is_looked_at_each_minute() -> None:
    assert limit(UNLIMITED, 1_000 * HOUR_MS, has_begun=False) is None
    assert look(UNLIMITED) == 60_000


def test_who_has_not_begun_in_time_is_closed_even_if_he_sends_something_all_the_time() -> None:
    listener = replace(UNLIMITED, login_timeout_ms=5_000)

    assert look(listener, has_begun=False) == 5_000
    assert limit(listener, 4_999, active_ms=4_999, has_begun=False) is None
    assert limit(listener, 5_000, active_ms=5_000, has_begun=False) == "login_timeout"
    assert limit(listener, 5_000, has_begun=True) is None


def test_the_idle_are_closed() -> None:
    listener = replace(UNLIMITED, idle_timeout_ms=60_000)

    assert limit(listener, 59_999) is None
    assert limit(listener, 60_000) == "idle_timeout"
    assert limit(listener, 60_000, active_ms=1) is None
    assert limit(listener, 60_000, has_begun=False) == "idle_timeout"


@given(requests=st.lists(st.integers(0, 200_000), max_size=30), idle_ms=st.integers(1_000, 90_000))
def test_idleness_is_found_in_time_and_never_where_there_is_none(requests: list[int], idle_ms: int) -> None:
    """As ``ClientConnection.look`` does it: a request leaves a mark, and only a look knows the time."""
    listener = replace(UNLIMITED, idle_timeout_ms=idle_ms)
    now_ms = active_ms = looked_ms = 0
    while limit(listener, now_ms, active_ms=active_ms) is None:
        now_ms = look(listener, now_ms, active_ms=active_ms)
        if any(looked_ms < at <= now_ms for at in requests):
            active_ms = now_ms
        looked_ms = now_ms

    last_ms = max((at for at in requests if at <= now_ms), default=0)
    assert now_ms - last_ms >= idle_ms
    assert now_ms - last_ms <= idle_ms * 5 // 4 + 2_000


@pytest.mark.parametrize(("spread", "age_ms"), [(0.0, HOUR_MS), (0.5, HOUR_MS * 95 // 100), (0.999, 3_240_360)])
def test_age_ends_a_connection_and_its_last_tenth_is_spread(spread: float, age_ms: int) -> None:
    listener = replace(UNLIMITED, max_connection_age_ms=HOUR_MS)

    assert limit(listener, age_ms - 1, spread=spread) is None
    assert limit(listener, age_ms, spread=spread) == "max_connection_age"
    assert look(listener, age_ms - 30_000, spread=spread) == age_ms


def test_a_limit_that_has_come_and_cannot_be_kept_yet_is_looked_at_each_second() -> None:
    listener = replace(UNLIMITED, max_connection_age_ms=1_000, idle_timeout_ms=1)

    assert look(listener, 5_000) == 6_000


def test_what_began_together_ends_evenly() -> None:
    spread = Spread()
    tenths = [int(10 * spread.next()) for _ in range(100)]

    assert all(9 <= tenths.count(tenth) <= 11 for tenth in range(10))


# -- when to look --


def test_a_thing_is_taken_once_and_not_before_its_time() -> None:
    watch: Watch[str] = Watch(now_ms=10_500)
    watch.add("a", 12_000)
    watch.add("b", 12_001)

    assert watch.take(now_ms=11_999) == []
    assert watch.take(now_ms=12_000) == ["a"]
    assert watch.take(now_ms=12_999) == []
    assert watch.take(now_ms=13_000) == ["b"]
    assert watch.take(now_ms=60_000) == []


def test_what_was_due_while_nobody_looked_is_taken_then() -> None:
    watch: Watch[str] = Watch(now_ms=10_000)
    watch.add("a", 12_000)
    watch.add("b", 20_000)

    assert watch.take(now_ms=60_000) == ["a", "b"]


def test_what_is_due_already_is_taken_at_the_next_look() -> None:
    watch: Watch[str] = Watch(now_ms=10_000)
    watch.take(now_ms=30_000)
    watch.add("a", 5_000)

    assert watch.take(now_ms=31_000) == ["a"]


def test_what_was_discarded_is_not_kept() -> None:
    watch: Watch[str] = Watch(now_ms=0)
    second = watch.add("a", 5_000)
    watch.discard("a", second)
    watch.discard("a", second + 1)

    assert watch.take(now_ms=9_000) == []
    watch.discard("a", second)


# -- how much --


def test_while_all_hold_what_they_may_nobody_goes() -> None:
    assert who_holds_too_much([(60, "a"), (40, "b")], 100) == []


def test_who_holds_the_most_goes_first_and_nobody_for_nothing() -> None:
    held = [(10, "a"), (50, "b"), (30, "c"), (40, "d")]

    assert who_holds_too_much(held, 100) == ["b"]
    assert who_holds_too_much(held, 79) == ["b", "d"]
    assert who_holds_too_much(held, 0) == ["b", "d", "c", "a"]


@given(st.lists(st.integers(0, 1_000)), st.integers(0, 5_000))
def test_what_the_others_hold_is_within_the_bound(sizes: list[int], most: int) -> None:
    gone = who_holds_too_much(list(zip(sizes, range(len(sizes)), strict=True)), most)

    assert sum(size for number, size in enumerate(sizes) if number not in gone) <= most
