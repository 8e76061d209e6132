"""Tests cases of Hadoop's own tests. V and a number name a case, and D names a case derived from Hadoop's code.

The oracle compares all else with Hadoop's classes, in tests/oracles/test_fair_queue.py.
"""

# Three things are not Hadoop's. Costs have a factor of 1,000, so that decay truncates thousandths of a cost. An average
# response time is (1 - f) times Hadoop's, which is the true mean if it is constant. It needs ten responses in a period.

from dataclasses import dataclass

import pytest

from kafka_quota_proxy.config.fair_call_queue_options import settings as queue_settings
from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, shape_of
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


@dataclass(eq=False)
class Call:
    level: int = 0
    identity: str = "user"


def reads(weights: tuple[int, ...], count: int) -> list[int]:
    multiplexer = WeightedRoundRobinMultiplexer(weights)
    return [multiplexer.next() for _ in range(count)]


# -- A: the multiplexer --


@pytest.mark.parametrize(
    ("levels", "turns"),
    [
        pytest.param(1, [0] * 10, id="V5"),
        pytest.param(2, [0, 0, 1, 0, 0, 1], id="V6"),
        pytest.param(3, [0, 0, 0, 0, 1, 1, 2, 0], id="V7"),
    ],
)
def test_default_weights_halve_from_level_to_level(levels: int, turns: list[int]) -> None:
    assert reads(queue_settings({"levels": levels}).multiplexer_weights, len(turns)) == turns


@pytest.mark.parametrize("weights", [pytest.param((), id="V1"), pytest.param((2, 0, 1), id="D8"), (1, -1)])
def test_no_level_and_levels_without_a_turn_are_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"there must be a level|weights must be at least 1"):
        WeightedRoundRobinMultiplexer(weights)


# -- B: the queue --


def queue_of(levels: int = 2, capacity: int = 10, **options: object) -> CallQueue[Call]:
    return CallQueue(shape_of(queue_settings({"levels": levels, "capacity": capacity, **options})))


def test_v15_v16_v17_d7_elements_overflow_into_lower_levels_and_are_counted() -> None:
    queue = queue_of(3, 6)
    seen = [(queue.add(Call(level)), queue.sizes, list(queue.overflowed)) for level in (0, 1, 0, 0, 1, 0)]
    assert seen == [
        (True, (1, 0, 0), [0, 0, 0]),
        (True, (1, 1, 0), [0, 0, 0]),
        (True, (2, 1, 0), [0, 0, 0]),
        (True, (2, 2, 0), [1, 0, 0]),
        (True, (2, 2, 1), [1, 1, 0]),
        (True, (2, 2, 2), [2, 2, 0]),
    ]

    refused = [(queue.add(Call(level)), list(queue.overflowed)) for level in (0, 1, 2)]
    assert refused == [(False, [3, 3, 1]), (False, [3, 4, 2]), (False, [3, 4, 3])]

    for level in (0, 2):
        queue.put(Call(level))
        assert queue.overflowed == [4, 5, 3], "a put does not count the last level"
    assert queue.waiting_for_room == 2


@pytest.mark.parametrize(
    ("capacity", "weights", "sizes"),
    [
        pytest.param(1_000, (1, 1, 1, 1), (250,) * 4, id="D1"),
        pytest.param(1_000, (4, 3, 2, 1), (400, 300, 200, 100), id="D2"),
        pytest.param(1_025, (7, 6, 5, 4, 3, 2, 1), (256, 220, 183, 146, 110, 73, 37), id="V11"),
    ],
)
def test_capacity_is_divided_by_weights(capacity: int, weights: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    assert queue_of(len(weights), capacity, capacity_weights=weights).capacities == sizes
    assert sum(sizes) == capacity


# -- C: the decay scheduler --


def scheduler_of(levels: int = 4, **options: object) -> DecayScheduler:
    """Return a scheduler with these settings. Its ``thresholds`` are in per cent, as in the configuration file."""
    return DecayScheduler(queue_settings({"levels": levels, **options}), now_ms=0)


def decayed(scheduler: DecayScheduler) -> dict[str, float]:
    return {standing.identity: standing.decayed for standing in scheduler.top(1_000)}


def levels_of_last_sweep(scheduler: DecayScheduler, names: str) -> dict[str, int | None]:
    return {name: scheduler.standing(name).cached_level for name in names}


def test_v40_service_users_are_in_level_0_and_count_in_no_share() -> None:
    scheduler = scheduler_of(service_users=frozenset({"service1", "service2"}))
    for name in ("user1", "service1", "service2"):
        scheduler.charge(name, 10)

    assert [scheduler.level(name) for name in ("user1", "service1", "service2")] == [3, 0, 0]
    scheduler.sweep()
    assert [scheduler.standing(name).cached_level for name in ("user1", "service1", "service2")] == [3, 0, 0]
    assert scheduler.totals == (5, 10, 10, 20)


@pytest.mark.parametrize(
    ("cost_of_thousand", "level"), [(120, 0), (125, 1), (130, 1), (240, 1), (250, 2), (490, 2), (500, 3), (1_000, 3)]
)
def test_d9_a_threshold_itself_is_in_the_lower_level(cost_of_thousand: int, level: int) -> None:
    scheduler = scheduler_of()
    scheduler.charge("A", cost_of_thousand)
    scheduler.charge("B", 1_000 - cost_of_thousand)

    assert scheduler.level("A") == level


def test_d11_a_level_holds_until_the_next_sweep() -> None:
    scheduler = scheduler_of()
    scheduler.charge("A", 10)
    scheduler.charge("B", 90)
    assert [scheduler.level(name) for name in "ABC"] == [0, 3, 0]

    scheduler.sweep()
    assert levels_of_last_sweep(scheduler, "AB") == {"A": 0, "B": 3}

    scheduler.charge("A", 900)
    assert [scheduler.level(name) for name in "AB"] == [0, 3]
    assert (scheduler.standing("A").decayed, scheduler.totals.decayed) == (905, 950)

    scheduler.sweep()
    assert decayed(scheduler) == {"A": 452.5, "B": 22.5}
    assert levels_of_last_sweep(scheduler, "AB") == {"A": 3, "B": 0}


def after_a_period(scheduler: DecayScheduler, *means_ms: int) -> DecayScheduler:
    """End a period in which each level had ten responses with the given mean time."""
    for level, mean_ms in enumerate(means_ms):
        for _ in range(10 if mean_ms else 0):
            scheduler.add_response_time(level, queue_us=0, taken_us=mean_ms * 1_000)
    scheduler.sweep()
    return scheduler


@pytest.mark.parametrize(
    ("averages_ms", "backs_off"),
    [
        ((5_000, 21_000, 0, 0), [False, False, True, True]),
        ((5_000, 20_000, 0, 0), [False] * 4),
        ((10_001, 0, 0, 0), [False, True, True, True]),
        ((0, 0, 30_001, 0), [False, False, False, True]),
        ((0, 0, 0, 40_001), [False] * 4),
    ],
)
def test_d14_d15_the_levels_below_a_slow_one_back_off(averages_ms: tuple[int, ...], backs_off: list[bool]) -> None:
    means_ms = [2 * average_ms for average_ms in averages_ms]  # the average after the first period is half of the mean
    scheduler = after_a_period(scheduler_of(backoff_responsetime_enable=True), *means_ms)

    assert [scheduler.backs_off(level) for level in range(4)] == backs_off
    assert not any(after_a_period(scheduler_of(), *means_ms).backs_off(level) for level in range(4))
