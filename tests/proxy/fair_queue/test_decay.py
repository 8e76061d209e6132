"""Tests how costs decay and give levels. tests/oracles compares any costs with Hadoop's class.

Three things are not Hadoop's. Costs have a factor of 1,000, so that decay truncates thousandths of a cost. An average
response time is (1 - f) times Hadoop's, which is the true mean if it is constant. It needs ten responses in a period.
"""

import pytest

from kafka_quota_proxy.config.fair_call_queue import SchedulerImpl
from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.proxy.fair_queue.decay import OVERFLOW, DecayScheduler


def scheduler_of(*, now_ms: int = 0, **options: object) -> DecayScheduler:
    return DecayScheduler(settings(options), now_ms=now_ms)


def costs_of(scheduler: DecayScheduler) -> dict[str, tuple[float, float]]:
    return {standing.identity: (standing.decayed, standing.raw) for standing in scheduler.top(1_000)}


def respond(scheduler: DecayScheduler, taken_us: int, *, times: int = 10) -> None:
    for _ in range(times):
        scheduler.add_response_time(0, queue_us=0, taken_us=taken_us)


def test_an_average_needs_ten_samples_and_is_forgotten_by_an_idle_level() -> None:
    scheduler = scheduler_of(levels=2)
    respond(scheduler, 2_000, times=9)
    scheduler.sweep()
    assert scheduler.average_response_ms == [0, 0]

    for _ in range(10):
        scheduler.add_response_time(7, queue_us=0, taken_us=2_000)  # of a level that was removed
    averages = []
    for _ in range(16):
        scheduler.sweep()
        averages.append(scheduler.average_response_ms[1])

    assert averages[:3] == [1, 0.5, 0.25]
    assert averages[-1] == 0


# -- levels --


@pytest.mark.parametrize(
    ("cost_of_thousand", "level"), [(120, 0), (125, 1), (130, 1), (240, 1), (250, 2), (490, 2), (500, 3), (1_000, 3)]
)
def test_a_threshold_itself_is_in_the_lower_level(cost_of_thousand: int, level: int) -> None:
    scheduler = scheduler_of()
    scheduler.charge("A", cost_of_thousand)
    scheduler.charge("B", 1_000 - cost_of_thousand)

    assert scheduler.level("A") == level


def test_a_level_holds_until_the_next_sweep() -> None:
    scheduler = scheduler_of()
    scheduler.charge("A", 10)
    scheduler.charge("B", 90)
    assert [scheduler.level(name) for name in "ABC"] == [0, 3, 0]

    scheduler.sweep()
    scheduler.charge("A", 900)
    assert [scheduler.level(name) for name in "AB"] == [0, 3]
    assert (scheduler.standing("A").decayed, scheduler.totals.decayed) == (905, 950)

    scheduler.sweep()
    assert costs_of(scheduler) == {"A": (452.5, 910), "B": (22.5, 90)}
    assert [scheduler.standing(name).cached_level for name in "AB"] == [3, 0]


def test_service_users_are_in_level_0_and_count_in_no_share() -> None:
    names = ("user1", "service1", "service2")
    scheduler = scheduler_of(service_users=frozenset(names[1:]))
    for name in names:
        scheduler.charge(name, 10)

    assert [scheduler.level(name) for name in names] == [3, 0, 0]
    scheduler.sweep()
    assert [scheduler.standing(name).cached_level for name in names] == [3, 0, 0]
    assert scheduler.totals == (5, 10, 10, 20)


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
def test_the_levels_below_a_slow_one_back_off(averages_ms: tuple[int, ...], backs_off: list[bool]) -> None:
    on, off = scheduler_of(backoff_responsetime_enable=True), scheduler_of()
    for scheduler in (on, off):
        for level, average_ms in enumerate(averages_ms):
            for _ in range(10 if average_ms else 0):
                # The average after the first period is half of the mean.
                scheduler.add_response_time(level, queue_us=0, taken_us=2 * average_ms * 1_000)
        scheduler.sweep()

    assert [on.backs_off(level) for level in range(4)] == backs_off
    assert not any(off.backs_off(level) for level in range(4))


# -- time --


def test_each_period_is_swept_once() -> None:
    scheduler = scheduler_of(now_ms=1_000)

    assert not scheduler.sweep_if_due(now_ms=5_999)
    assert scheduler.sweep_if_due(now_ms=6_000)
    assert not scheduler.sweep_if_due(now_ms=6_000)
    assert not scheduler.sweep_if_due(now_ms=0)
    assert scheduler.next_sweep_ms == 11_000


@pytest.mark.parametrize(("periods", "left"), [(2, 250), (3, 125), (4, 125), (1_000_000, 125)])
def test_a_pause_decays_costs_for_at_most_three_periods(periods: int, left: int) -> None:
    scheduler = scheduler_of()
    scheduler.charge("a", 1_000)

    scheduler.sweep_if_due(now_ms=5_000 * periods + 17)

    assert scheduler.totals.decayed == left
    assert scheduler.next_sweep_ms == 5_000 * (periods + 1)


@pytest.mark.parametrize(("period_ms", "factor"), [(1, 0.999), (100, 0.9), (332, 0.5)])
def test_an_idle_queue_decays_like_a_busy_one(period_ms: int, factor: float) -> None:
    busy, idle = (scheduler_of(period_ms=period_ms, decay_factor=factor) for _ in range(2))
    for scheduler in (busy, idle):
        scheduler.charge("a", 10**6)

    for now_ms in range(1, 3_001):
        busy.sweep_if_due(now_ms=now_ms)
    for now_ms in (999, 2_030, 3_000):
        idle.sweep_if_due(now_ms=now_ms)

    assert busy.totals.decayed == pytest.approx(10**6 * factor ** (3_000 // period_ms), rel=1e-3)
    assert idle.totals.decayed == pytest.approx(busy.totals.decayed, rel=1e-3)
    assert idle.next_sweep_ms == busy.next_sweep_ms


# -- better than Hadoop --


def test_below_the_utilisation_floor_all_users_are_in_level_0() -> None:
    scheduler = scheduler_of(utilisation_floor=0.5)
    scheduler.charge("a", 1)

    assert scheduler.level("a", 49, 100) == 0
    assert scheduler.level("a", 50, 100) == 3

    scheduler.charge("a", 9)
    scheduler.sweep()
    assert [scheduler.level("a", in_flight, 2) for in_flight in (0, 2)] == [0, 3]


def test_identities_beyond_the_bound_share_one_cost() -> None:
    scheduler = scheduler_of(max_identities=2, service_users=frozenset({"service"}))
    for name in ("a", "b", "service", "c", "d", "d"):
        scheduler.charge(name, 10)

    assert costs_of(scheduler) == {"a": (10, 10), "b": (10, 10), "service": (10, 10), OVERFLOW: (30, 30)}
    for _ in range(2):
        assert [scheduler.level(name) for name in ("a", "c", "d", "somebody", "service")] == [1, 3, 3, 3, 0]
        scheduler.sweep()
    for number in range(300):
        scheduler.charge(str(number), 100)
    assert len(scheduler) == 4


def test_a_forgotten_identity_makes_room() -> None:
    scheduler = scheduler_of(max_identities=1)
    for name in ("a", "b"):
        scheduler.charge(name, 1)
    for _ in range(10):
        scheduler.sweep()

    scheduler.charge("b", 5)

    assert costs_of(scheduler) == {"b": (5, 5)}
    by_default = scheduler_of(scheduler_impl=SchedulerImpl.DEFAULT)
    by_default.charge("alice", 1_000)
    assert by_default.level("alice", 1, 1) == 0


# -- what is reported --


def test_top_is_by_raw_cost_above_0() -> None:
    scheduler = scheduler_of()
    for name, cost in (("a", 5), ("b", 2**40), ("c", 0), ("d", 5), ("e", 7)):
        scheduler.charge(name, cost)

    assert [standing.identity for standing in scheduler.top(3)] == ["b", "e", "a"]
    assert [standing.identity for standing in scheduler.top(10)] == ["b", "e", "a", "d"]


def test_a_standing_has_cost_share_and_level() -> None:
    scheduler = scheduler_of(service_users=frozenset({"s"}))
    for name, cost in (("a", 30), ("b", 70), ("s", 900)):
        scheduler.charge(name, cost)

    assert scheduler.standing("a") == ("a", 30, 30, 0.3, 2, None)
    scheduler.sweep()
    assert scheduler.standing("a") == ("a", 15, 30, 0.3, 2, 2)
    assert scheduler.standing("s") == ("s", 450, 900, 0, 0, 0)
    assert scheduler.standing("nobody") == ("nobody", 0, 0, 0, 0, None)


# -- other options --


def test_costs_survive_a_change_of_options() -> None:
    before = scheduler_of(service_users=frozenset({"s"}))
    for name, cost in (("a", 60), ("b", 40), ("s", 100)):
        before.charge(name, cost)
    after = scheduler_of(levels=2, service_users=frozenset({"b"}))

    after.take_over(before)

    assert costs_of(after) == costs_of(before)
    assert after.totals == (160, 160, 40, 40)
    assert [after.level(name) for name in "abs"] == [0, 0, 1]
