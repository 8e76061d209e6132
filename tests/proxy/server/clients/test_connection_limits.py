"""Tests the limits on connections of a listener, and the histogram of its latency."""

from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Address, Listener
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.server.clients.connection_limits import (
    ConnectionCount,
    CountedConnection,
    TimeLimits,
    TimerWheel,
    largest_holders,
    spread,
)
from kafka_quota_proxy.proxy.server.clients.latency import BOUNDS_NS, OTHER, Latency

UNLIMITED = Listener(
    name="clients",
    bind=Address(host="127.0.0.1", port=9092),
    max_connections=None,
    login_timeout_ms=None,
)
HOUR_MS = 3_600_000
STARTED_MS = 86_400_000


def limit(
    listener: Listener, now_ms: int, *, active_ms: int = 0, is_past_login: bool = True, spread: float = 0.0
) -> str | None:
    """Return the name of the time limit that has passed, if any. Times count from the start of the connection."""
    limits = TimeLimits(spread, started_ms=STARTED_MS)
    limits.active_ms += active_ms
    return limits.passed(listener, now_ms=STARTED_MS + now_ms, is_past_login=is_past_login)


def next_check(
    listener: Listener, now_ms: int = 0, *, active_ms: int = 0, is_past_login: bool = True, spread: float = 0.0
) -> int:
    """Return the time of the next check, in ms since the start of the connection."""
    limits = TimeLimits(spread, started_ms=STARTED_MS)
    limits.active_ms += active_ms
    return limits.next_check_ms(listener, now_ms=STARTED_MS + now_ms, is_past_login=is_past_login) - STARTED_MS


def source(host: str) -> tuple[str, int]:
    return host, 50_000


def test_max_connections_per_ip_holds_for_each_address() -> None:
    open_count = ConnectionCount()
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.1"]

    places = [open_count.enter(None) for _ in hosts]

    assert [place and place.come_from(source(host), 1) for place, host in zip(places, hosts, strict=True)] == [
        True,
        True,
        False,
    ]


@given(
    st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]), st.booleans()), max_size=60),
    st.integers(1, 5),
)
def test_the_count_is_exact_after_any_sequence(steps: list[tuple[str, bool]], most: int) -> None:
    open_count = ConnectionCount()
    inside: list[tuple[str, CountedConnection]] = []
    for host, enters in steps:
        place = open_count.enter(None) if enters else None
        if place and place.come_from(source(host), most):
            inside.append((host, place))
        elif place:
            assert [one for one, _ in inside].count(host) == most
            place.leave()
        elif inside:
            inside.pop()[1].leave()
        hosts = [one for one, _ in inside]
        assert open_count.total == len(inside)
        assert open_count._by_host == {one: hosts.count(one) for one in hosts}


def test_a_connection_without_limits_is_checked_each_minute() -> None:
    assert limit(UNLIMITED, 1_000 * HOUR_MS, is_past_login=False) is None
    assert next_check(UNLIMITED) == 60_000


def test_login_timeout_closes_even_a_client_that_keeps_sending() -> None:
    listener = replace(UNLIMITED, login_timeout_ms=5_000)

    assert next_check(listener, is_past_login=False) == 5_000
    assert limit(listener, 4_999, active_ms=4_999, is_past_login=False) is None
    assert limit(listener, 5_000, active_ms=5_000, is_past_login=False) == "login_timeout"
    assert limit(listener, 5_000, is_past_login=True) is None


def test_idle_timeout_closes_an_idle_connection() -> None:
    listener = replace(UNLIMITED, idle_timeout_ms=60_000)

    assert limit(listener, 59_999) is None
    assert limit(listener, 60_000) == "idle_timeout"
    assert limit(listener, 60_000, active_ms=1) is None
    assert limit(listener, 60_000, is_past_login=False) == "idle_timeout"


@given(requests=st.lists(st.integers(0, 200_000), max_size=30), idle_ms=st.integers(1_000, 90_000))
def test_idle_timeout_passes_on_time_and_never_in_use(requests: list[int], idle_ms: int) -> None:
    """A request only sets a flag, and the next check records its time."""
    listener = replace(UNLIMITED, idle_timeout_ms=idle_ms)
    now_ms = active_ms = checked_ms = 0
    while limit(listener, now_ms, active_ms=active_ms) is None:
        now_ms = next_check(listener, now_ms, active_ms=active_ms)
        if any(checked_ms < at <= now_ms for at in requests):
            active_ms = now_ms
        checked_ms = now_ms

    last_ms = max((at for at in requests if at <= now_ms), default=0)
    assert now_ms - last_ms >= idle_ms
    assert now_ms - last_ms <= idle_ms * 5 // 4 + 2_000


@pytest.mark.parametrize(("spread", "age_ms"), [(0.0, HOUR_MS), (0.5, HOUR_MS * 95 // 100), (0.999, 3_240_360)])
def test_age_ends_a_connection_and_its_last_tenth_is_spread(spread: float, age_ms: int) -> None:
    listener = replace(UNLIMITED, max_connection_age_ms=HOUR_MS)

    assert limit(listener, age_ms - 1, spread=spread) is None
    assert limit(listener, age_ms, spread=spread) == "max_connection_age"
    assert next_check(listener, age_ms - 30_000, spread=spread) == age_ms


def test_a_passed_limit_is_checked_again_each_second() -> None:
    listener = replace(UNLIMITED, max_connection_age_ms=1_000, idle_timeout_ms=1)

    assert next_check(listener, 5_000) == 6_000


def test_spread_is_even() -> None:
    tenths = [int(10 * number) for number in islice(spread(), 100)]

    assert all(9 <= tenths.count(tenth) <= 11 for tenth in range(10))


def test_the_largest_holders_are_closed_first_and_no_more_than_needed() -> None:
    held = [(10, "a"), (50, "b"), (30, "c"), (40, "d")]

    assert largest_holders(held, 100) == ["b"]
    assert largest_holders(held, 79) == ["b", "d"]
    assert largest_holders(held, 0) == ["b", "d", "c", "a"]


def test_timer_wheel_returns_an_item_once_when_it_is_due() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=10_500)
    wheel.add("a", 12_000)
    wheel.add("b", 12_001)

    assert wheel.take(now_ms=11_999) == []
    assert wheel.take(now_ms=12_000) == ["a"]
    assert wheel.take(now_ms=12_999) == []
    assert wheel.take(now_ms=13_000) == ["b"]
    assert wheel.take(now_ms=60_000) == []


def test_timer_wheel_returns_an_item_of_the_past_at_once() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=10_000)
    wheel.take(now_ms=30_000)
    wheel.add("a", 5_000)

    assert wheel.take(now_ms=31_000) == ["a"]


def test_timer_wheel_never_returns_a_discarded_item() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=0)
    second = wheel.add("a", 5_000)
    wheel.discard("a", second)
    wheel.discard("a", second + 1)

    assert wheel.take(now_ms=9_000) == []
    wheel.discard("a", second)


def test_the_bounds_are_whole_nanoseconds_and_rise_from_4_us_to_a_second() -> None:
    assert BOUNDS_NS[0] == 4_095
    assert BOUNDS_NS[-1] == 1_073_741_823
    assert all(lower < upper for lower, upper in pairwise(BOUNDS_NS))


@pytest.mark.parametrize(
    ("elapsed_ns", "place"),
    [
        (0, 0),
        (4_095, 0),
        (4_096, 1),
        (8_191, 1),
        (1_073_741_823, len(BOUNDS_NS) - 1),
        (1_073_741_824, len(BOUNDS_NS)),
        (2**63, len(BOUNDS_NS)),
    ],
)
def test_a_time_counts_under_the_first_bound_that_it_does_not_exceed(elapsed_ns: int, place: int) -> None:
    latency = Latency()

    latency.observe(ApiKey.PRODUCE, elapsed_ns)

    assert latency.counts[ApiKey.PRODUCE][place] == 1
    assert sum(latency.counts[ApiKey.PRODUCE]) == 1


def test_each_api_has_a_histogram_and_a_sum_of_its_own() -> None:
    latency = Latency()

    latency.observe(ApiKey.PRODUCE, 7_000)
    latency.observe(ApiKey.PRODUCE, 8_000)
    latency.observe(ApiKey.FETCH, 1)

    assert {key: sum(counts) for key, counts in latency.counts.items()} == {ApiKey.PRODUCE: 2, ApiKey.FETCH: 1}
    assert latency.sums_ns == {ApiKey.PRODUCE: 15_000, ApiKey.FETCH: 1}


def test_unknown_api_keys_share_one_histogram() -> None:
    latency = Latency()

    for api_key in range(1_000, 3_000):
        latency.observe(api_key, 5)
    latency.observe(ApiKey.PRODUCE, 1)

    assert {key: sum(counts) for key, counts in latency.counts.items()} == {OTHER: 2_000, ApiKey.PRODUCE: 1}
    assert latency.sums_ns == {OTHER: 10_000, ApiKey.PRODUCE: 1}
