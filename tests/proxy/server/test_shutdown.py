"""Tests when each connection ends in a drain, and how late the event loop is."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.server.loop_lag import BOUNDS_NS, PERIOD_S, LoopLag
from kafka_quota_proxy.proxy.server.shutdown import due_after


def test_ten_thousand_connections_end_evenly_within_half_of_the_drain() -> None:
    turns = [due_after(at_ms, 10_000, 20_000) for at_ms in range(0, 10_001, 1_000)]

    assert turns == [1, *range(1_001, 10_000, 1_000), 10_000]


def test_few_connections_drain_within_milliseconds() -> None:
    assert due_after(0, 10, 20_000) == 1
    assert due_after(50, 10, 20_000) == 10


def test_no_connections_drain_at_once() -> None:
    assert due_after(0, 0, 1) == 0


@given(st.integers(0, 30_000), st.integers(1, 600_000), st.lists(st.integers(0, 700_000), min_size=2))
def test_turns_only_grow_and_all_have_had_theirs_by_half_time(count: int, timeout_ms: int, times: list[int]) -> None:
    turns = [due_after(at_ms, count, timeout_ms) for at_ms in sorted(times)]

    assert turns == sorted(turns)
    assert all(0 <= turn <= count for turn in turns)
    assert due_after(timeout_ms // 2, count, timeout_ms) == count


@pytest.mark.parametrize(
    ("lag_ns", "place"),
    [
        (-500_000, 0),
        (0, 0),
        (1_000_000, 0),
        (1_000_001, 1),
        (10_000_000_000, len(BOUNDS_NS) - 1),
        (10_000_000_001, len(BOUNDS_NS)),
    ],
)
def test_a_lag_counts_under_the_first_bound_that_it_does_not_exceed(lag_ns: int, place: int) -> None:
    lag = LoopLag()

    lag.observe(lag_ns)

    assert [index for index, count in enumerate(lag.counts) if count] == [place]
    assert lag.sum_ns == max(lag_ns, 0)


async def test_a_callback_that_keeps_the_loop_makes_the_timer_late() -> None:
    lag = LoopLag()
    measuring = asyncio.ensure_future(lag.measure())
    await asyncio.sleep(0)

    time.sleep(PERIOD_S + 0.25)  # noqa: ASYNC251 - a callback that stalls
    await asyncio.sleep(0.01)
    measuring.cancel()

    assert sum(lag.counts) == 1
    assert 0.25e9 <= lag.sum_ns < 2e9
