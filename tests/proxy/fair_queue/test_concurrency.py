"""Tests the limit on concurrent requests to a broker. The simulated broker has workers and a queue.

The knee is the number of requests that keeps all workers busy.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit, VegasLimit

_NOISES: dict[str, Callable[[random.Random], float]] = {
    "none": lambda _: 1.0,
    "exponential": lambda chance: chance.expovariate(1.0),
    "one in ten is eleven times as long": lambda chance: 0.5 if chance.random() < 0.9 else 5.5,
    "heavy tail": lambda chance: chance.paretovariate(1.8) * 0.8 / 1.8,
}


class Run(NamedTuple):
    """The throughput as a share of what the broker can do, and the limit after each response."""

    throughput: float
    limits: list[int]


class Broker:
    """A broker with ``workers`` that serve a queue. A request takes ``service_us`` on average."""

    def __init__(self, *, workers: int, service_us: int, noise: str = "none") -> None:
        self.workers = workers
        self.service_us = service_us
        self.noise = _NOISES[noise]
        self.chance = random.Random(1)  # noqa: S311  the same times in each run
        self.now_us = 0
        self.in_flight = 0
        self.queue: deque[int] = deque()
        self.served: list[tuple[int, int, int]] = []

    def run(self, limit: Limit, *, clients: int, seconds: float) -> Run:
        """Let ``clients`` send a request again after each response, as far as the limit allows."""
        limits: list[int] = []
        ends_us = self.now_us + int(seconds * 1e6)
        while self.now_us < ends_us:
            while self.in_flight < min(limit.limit, clients):
                self.in_flight += 1
                self.queue.append(self.now_us)
            while self.queue and len(self.served) < self.workers:
                took_us = max(1, int(self.service_us * self.noise(self.chance)))
                heapq.heappush(self.served, (self.now_us + took_us, len(limits), self.queue.popleft()))
            self.now_us, _, sent_us = heapq.heappop(self.served)
            limit.observe(max(1, self.now_us - sent_us), self.in_flight, self.now_us // 1_000)
            self.in_flight -= 1
            limits.append(limit.limit)
        return Run(len(limits) / (self.workers / self.service_us * 1e6 * seconds), limits)


def assert_knee_found(limits: list[int], knee: int) -> None:
    settled = limits[len(limits) // 3 :]
    assert 0.9 * knee <= median(settled) <= max(1.5 * knee, knee + 10)


@pytest.mark.parametrize(
    ("workers", "service_us", "noise"),
    [
        pytest.param(workers, service_us, noise, marks=[] if noise == own else [pytest.mark.long])
        for (workers, service_us), own in zip(
            [(1, 1_000), (4, 500), (16, 5_000), (64, 20_000), (100, 5_000)], [*_NOISES, "exponential"], strict=True
        )
        for noise in _NOISES
    ],
)
def test_the_limit_settles_at_the_knee(workers: int, service_us: int, noise: str) -> None:
    broker = Broker(workers=workers, service_us=service_us, noise=noise)

    run = broker.run(
        VegasLimit(minimum=4, maximum=1_000), clients=2_000, seconds=max(20, 100_000 * service_us / 1e6 / workers)
    )

    assert_knee_found(run.limits, workers)
    assert run.throughput >= 0.85


def test_the_limit_settles_at_the_knee_from_any_lower_minimum() -> None:
    for minimum in (1, 16):
        run = Broker(workers=20, service_us=2_000, noise="exponential").run(
            VegasLimit(minimum=minimum, maximum=500), clients=1_000, seconds=5
        )
        assert_knee_found(run.limits, 20)


def test_a_minimum_above_the_knee_stays_the_limit() -> None:
    """So many requests always queue at the broker, so that its unloaded latency cannot be measured."""
    run = Broker(workers=5, service_us=2_000).run(VegasLimit(minimum=30, maximum=500), clients=1_000, seconds=5)

    assert_knee_found(run.limits, 30)


@pytest.mark.parametrize(("before", "after"), [((40, 10_000), (10, 10_000)), ((10, 10_000), (40, 10_000))])
def test_the_limit_follows_a_broker_that_changes(before: tuple[int, int], after: tuple[int, int]) -> None:
    limit = VegasLimit(minimum=4, maximum=1_000)
    broker = Broker(workers=before[0], service_us=before[1], noise="exponential")
    assert_knee_found(broker.run(limit, clients=2_000, seconds=20).limits, before[0])

    broker.workers, broker.service_us = after
    broker.run(limit, clients=2_000, seconds=20)

    assert_knee_found(broker.run(limit, clients=2_000, seconds=20).limits, after[0])


def test_a_slower_broker_does_not_count_as_queueing_for_ever() -> None:
    limit = VegasLimit(minimum=4, maximum=1_000)
    broker = Broker(workers=20, service_us=10_000, noise="exponential")
    broker.run(limit, clients=2_000, seconds=10)

    broker.service_us = 30_000
    broker.run(limit, clients=2_000, seconds=120)

    assert_knee_found(broker.run(limit, clients=2_000, seconds=30).limits, 20)


def test_a_pause_during_a_probe_is_averaged_out() -> None:
    limit = VegasLimit(minimum=4, maximum=1_000)
    broker = Broker(workers=20, service_us=100_000)
    broker.run(limit, clients=2_000, seconds=3)

    broker.service_us = 1_000
    broker.run(limit, clients=2_000, seconds=4)

    assert_knee_found(broker.run(limit, clients=2_000, seconds=2).limits, 20)


def test_the_limit_does_not_grow_without_demand() -> None:
    limit = VegasLimit(minimum=4, maximum=1_000)

    run = Broker(workers=64, service_us=1_000).run(limit, clients=2, seconds=20)

    assert set(run.limits) <= {4}


def test_a_probe_halves_the_limit() -> None:
    run = Broker(workers=20, service_us=4_000).run(VegasLimit(minimum=1, maximum=200), clients=500, seconds=20)

    late = run.limits[len(run.limits) // 2 :]
    usual = median(late)
    halved = [limit for limit in late if limit <= usual / 2 + 1]
    assert 0 < len(halved) < 0.01 * len(late)


@given(
    bounds=st.tuples(st.integers(1, 50), st.integers(0, 100)),
    samples=st.lists(st.tuples(st.integers(1, 10**8), st.integers(1, 300), st.integers(-100, 5_000)), max_size=400),
)
def test_the_limit_stays_within_its_bounds(bounds: tuple[int, int], samples: list[tuple[int, int, int]]) -> None:
    minimum, maximum = bounds[0], sum(bounds)
    limit, now_ms = VegasLimit(minimum=minimum, maximum=maximum), 0

    for rtt_us, in_flight, passed_ms in samples:
        now_ms += passed_ms
        for _ in range(20):
            limit.observe(rtt_us, in_flight, now_ms)
            assert minimum <= limit.limit <= maximum


def test_a_fixed_limit_learns_nothing() -> None:
    fixed = FixedLimit(7)
    fixed.observe(10**9, 7, 0)
    assert fixed.limit == 7
