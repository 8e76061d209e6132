"""Tests the histogram of the event loop's lag."""

import asyncio
import time

import pytest

from kafka_quota_proxy.proxy.server.loop_lag import BOUNDS_NS, PERIOD_S, LoopLag


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
