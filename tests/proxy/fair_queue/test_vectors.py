"""Tests the cases of Hadoop's own tests. V and a number name a case, and D names a case derived from Hadoop's code."""

# Some of Hadoop's tests have no counterpart:
#
# * V3, V42 to V45, D4 and D9c (faulty settings, and their parsing): in ``config``. The defaults are tested here.
# * V16 and V60a (connections that are closed, and failover): a refusal is always an answer, and the connection stays.
# * V21, V25 and V28b (offers to one level only), V27 (a drain of some elements): no such methods.
# * V23, V24 (peek) and V30a (a take that blocks): ``poll`` takes elements, and returns None if there are none.
# * V24, V25 (timed poll and offer): nothing blocks, and the queue remembers elements that wait.
# * V46, V66 (registration of metrics): metrics are only read.
# * V47 (a provider before its ``init``), V58, V59 and V67 (classes by name): constructors are called as usual.
# * V49 (keys of another port): each listener has its own options.
# * V51 (text of the phases): only their order is tested.
# * V63 (a slow level backs itself off): only the levels below do, as in Hadoop's guide (D15).
# * D3 and the uneven cases of D1 and D2 (the rest of a division goes to level 0): it goes to the largest fractions.
# * D18, first half (a static level of -1): control requests have their own lane (V65).
#
# Three things are not Hadoop's. Costs have a factor of 1,000, so that decay truncates thousandths of a cost. An average
# response time is (1 - f) times Hadoop's, which is the true mean if it is constant. It needs ten responses in a period.

from dataclasses import dataclass

import pytest

from kafka_quota_proxy.config.fair_call_queue import CallQueueImpl, CostWeights, FairCallQueue
from kafka_quota_proxy.config.fair_call_queue_options import settings as queue_settings
from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, shape_of
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit
from kafka_quota_proxy.proxy.fair_queue.cost import Phases, RequestCount, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher, Ticket, Turn
from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


@dataclass(eq=False)
class Call:
    level: int = 0
    name: str = ""
    identity: str = "user"


class FixedMultiplexer(WeightedRoundRobinMultiplexer):
    def __init__(self, level: int) -> None:
        super().__init__((1,))
        self.level = level

    def next(self) -> int:
        return self.level


def reads(multiplexer: WeightedRoundRobinMultiplexer, count: int) -> list[int]:
    return [multiplexer.next() for _ in range(count)]


# -- A: the multiplexer --


def test_v1_v2_there_must_be_a_level() -> None:
    with pytest.raises(ValueError, match="there must be a level"):
        WeightedRoundRobinMultiplexer(())


def test_v4_as_many_weights_as_levels_are_accepted() -> None:
    assert reads(WeightedRoundRobinMultiplexer((1, 2, 3)), 6) == [0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("levels", "turns"),
    [
        pytest.param(1, [0] * 10, id="V5"),
        pytest.param(2, [0, 0, 1, 0, 0, 1], id="V6"),
        pytest.param(3, [0, 0, 0, 0, 1, 1, 2, 0], id="V7"),
    ],
)
def test_v5_v6_v7_default_weights_halve_from_level_to_level(levels: int, turns: list[int]) -> None:
    weights = queue_settings({"levels": levels}).multiplexer_weights

    assert reads(WeightedRoundRobinMultiplexer(weights), len(turns)) == turns


@pytest.mark.parametrize(
    ("weights", "turns"),
    [pytest.param((1, 1), [0, 1, 0, 1], id="V9"), pytest.param((1, 3, 2), [0, 1, 1, 1, 2, 2] * 5, id="V10")],
)
def test_v9_v10_weights_of_ones_own(weights: tuple[int, ...], turns: list[int]) -> None:
    assert reads(WeightedRoundRobinMultiplexer(weights), len(turns)) == turns


@pytest.mark.parametrize("weights", [(2, 0, 1), (0, 1), (3, 0), (1, -1)])
def test_d8_a_level_without_a_turn_is_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="weights must be at least 1"):
        WeightedRoundRobinMultiplexer(weights)


def test_d16_of_weights_99_and_1_the_lower_gets_each_hundredth_turn() -> None:
    turns = reads(WeightedRoundRobinMultiplexer((99, 1)), 200)

    assert [n for n, level in enumerate(turns, 1) if level] == [100, 200]


# -- B: the queue --


def queue_of(levels: int = 2, capacity: int = 10, **options: object) -> CallQueue[Call]:
    return CallQueue(shape_of(queue_settings({"levels": levels, "capacity": capacity, **options})))


@pytest.mark.parametrize("capacity", [1_000, 1_025])
@pytest.mark.parametrize("levels", [1, 4, 7])
def test_v11_capacity_is_that_of_all_levels(levels: int, capacity: int) -> None:
    assert sum(queue_of(levels, capacity).capacities) == capacity
    assert sum(queue_of(7, 1_025, capacity_weights=(7, 6, 5, 4, 3, 2, 1)).capacities) == 1_025


def test_v12_a_turn_without_elements_goes_to_the_highest_level() -> None:
    queue = queue_of(10, 10)
    for level in range(10):
        assert queue.add(Call(level))

    taken = []
    for turn in (3, 3, 3, 6, 6, 6, 8, 9, 9, 9, 9, 9):
        queue._multiplexer = FixedMultiplexer(turn)
        taken.append(queue.poll())

    assert [call and call.level for call in taken] == [3, 0, 1, 6, 2, 4, 8, 9, 5, 7, None, None]


def filled() -> tuple[CallQueue[Call], list[tuple[tuple[int, ...], list[int]]]]:
    """Return a queue of three levels with two places each, and its state after each of six adds."""
    queue = queue_of(3, 6)
    seen = []
    for level in (0, 1, 0, 0, 1, 0):
        assert queue.add(Call(level))
        seen.append((queue.sizes, list(queue.overflowed)))
    return queue, seen


def test_v15_d7_an_add_goes_to_the_first_level_with_room_below() -> None:
    _, seen = filled()

    assert [sizes for sizes, _ in seen] == [(1, 0, 0), (1, 1, 0), (2, 1, 0), (2, 2, 0), (2, 2, 1), (2, 2, 2)]
    assert [overflowed for _, overflowed in seen] == [[0, 0, 0]] * 3 + [[1, 0, 0], [1, 1, 0], [2, 2, 0]]


def test_v16_d7_a_full_queue_refuses_and_each_level_counts() -> None:
    queue, _ = filled()

    assert (queue.add(Call(0)), queue.overflowed) == (False, [3, 3, 1])
    assert (queue.add(Call(1)), queue.overflowed) == (False, [3, 4, 2])
    assert (queue.add(Call(2)), queue.overflowed) == (False, [3, 4, 3])


def test_v17_a_put_waits_and_does_not_count_the_last_level() -> None:
    queue, _ = filled()
    before = list(queue.overflowed)

    for level in (0, 2):
        queue.put(Call(level))
        assert queue.overflowed == [before[0] + 1, before[1] + 1, before[2]]

    assert queue.waiting_for_room == 2


def test_v18_an_empty_queue_has_nothing() -> None:
    assert queue_of().poll() is None


def test_v19_v30b_added_elements_are_polled() -> None:
    queue, call = queue_of(), Call()

    assert queue.add(call)

    assert (queue.poll(), queue.size) == (call, 0)


def test_v20_v22_each_level_has_its_own_room() -> None:
    queue = queue_of()

    assert all(queue.add(Call(level)) for level in (0, 0, 0, 0, 0, 1))

    assert (queue.sizes, queue.overflowed) == ((5, 1), [0, 0])


def test_v26_draining_into_another_queue() -> None:
    source, target = queue_of(), queue_of()
    for _ in range(3):
        source.add(Call())

    for call in source.drain():
        target.add(call)

    assert (source.size, target.size) == (0, 3)


@pytest.mark.parametrize(
    ("levels", "remaining", "size"),
    [
        pytest.param([], 10, 0, id="V28a"),
        pytest.param([0] * 5 + [1] * 5, 0, 10, id="V28c"),
        pytest.param([0, 1, 0, 1, 0], 5, 5, id="V28d"),
    ],
)
def test_v28_remaining_capacity(levels: list[int], remaining: int, size: int) -> None:
    queue = queue_of()
    for level in levels:
        queue.add(Call(level))

    assert (sum(queue.capacities) - queue.size, queue.size) == (remaining, size)


def test_v29_puts_overflow_and_wait_when_all_is_full() -> None:
    queue = queue_of()

    for _ in range(8):
        queue.put(Call(0))
    assert (queue.size, queue.overflowed, queue.waiting_for_room) == (8, [3, 0], 0)

    for _ in range(3):
        queue.put(Call(0))
    assert (queue.size, queue.waiting_for_room) == (10, 1)


def test_v30c_a_take_tries_the_next_level() -> None:
    queue, call = queue_of(), Call(1)
    queue._multiplexer = FixedMultiplexer(0)
    queue.add(call)

    assert (queue.poll(), queue.size) == (call, 0)


def test_v31_sizes_are_seen() -> None:
    queue = queue_of()
    queue.put(Call(0))

    assert queue.sizes == (1, 0)
    queue.poll()
    assert queue.sizes == (0, 0)


@pytest.mark.parametrize(
    ("capacity", "weights", "sizes"),
    [
        pytest.param(1_000, (1, 1, 1, 1), (250,) * 4, id="D1"),
        pytest.param(1_000, (4, 3, 2, 1), (400, 300, 200, 100), id="D2"),
        pytest.param(100, (7, 3), (70, 30), id="D2"),
        pytest.param(1_000, (7, 3), (700, 300), id="D2"),
    ],
)
def test_d1_d2_capacity_is_divided_by_weights(capacity: int, weights: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    assert queue_of(len(weights), capacity, capacity_weights=weights).capacities == sizes


def test_d5_the_order_of_a_cycle_with_all_levels_full() -> None:
    queue = queue_of(4, 80)
    for level in range(4):
        for _ in range(20):
            queue.add(Call(level))

    assert [call.level for _ in range(15) if (call := queue.poll())] == [0] * 8 + [1] * 4 + [2] * 2 + [3]


def test_d6_turns_of_empty_levels_go_to_the_highest() -> None:
    queue = queue_of(4, 80)
    for level in (0, 3):
        for _ in range(20):
            queue.add(Call(level))

    assert sorted(call.level for _ in range(15) if (call := queue.poll())) == [0] * 14 + [3]


@pytest.mark.parametrize(("level", "accepted", "overflowed"), [(3, 2, [0, 0, 0, 1]), (0, 8, [7, 5, 3, 1])])
def test_d7b_a_lone_user_has_the_room_below_it(level: int, accepted: int, overflowed: list[int]) -> None:
    queue = queue_of(4, 8)

    answers = [queue.add(Call(level)) for _ in range(accepted + 1)]

    assert answers == [True] * accepted + [False]
    assert queue.overflowed == overflowed


# -- C: the decay scheduler --


def scheduler_of(levels: int = 4, **options: object) -> DecayScheduler:
    """Return a scheduler with these settings. Its ``thresholds`` are in per cent, as in the configuration file."""
    return DecayScheduler(queue_settings({"levels": levels, **options}), now_ms=0)


def request(scheduler: DecayScheduler, *identities: str) -> list[int]:
    """Make a request of cost 1 for each identity. Return the levels that the requests had."""
    levels = []
    for identity in identities:
        levels.append(scheduler.level(identity))
        scheduler.charge(identity, RequestCount.flat)
    return levels


def decayed(scheduler: DecayScheduler) -> dict[str, float]:
    return {standing.identity: standing.decayed for standing in scheduler.top(1_000)}


def levels_of_last_sweep(scheduler: DecayScheduler, names: str) -> dict[str, int | None]:
    return {name: scheduler.standing(name).cached_level for name in names}


def test_v33_costs_accumulate() -> None:
    scheduler = scheduler_of(1)
    assert decayed(scheduler) == {}

    request(scheduler, "A")
    assert decayed(scheduler) == {"A": 1}

    request(scheduler, "A", "B", "A")
    assert decayed(scheduler) == {"A": 3, "B": 1}


def test_v34_d12_costs_decay_until_nothing_is_left() -> None:
    scheduler = scheduler_of(1)
    request(scheduler, *"AAAA", *"BBBBBBBB")
    seen = []
    for _ in range(14):
        seen.append((scheduler.totals.decayed, decayed(scheduler), scheduler.totals.raw))
        scheduler.sweep()

    assert [(total, costs) for total, costs, _ in seen[:5]] == [
        (12, {"A": 4, "B": 8}),
        (6, {"A": 2, "B": 4}),
        (3, {"A": 1, "B": 2}),
        (1.5, {"A": 0.5, "B": 1}),
        (0.75, {"A": 0.25, "B": 0.5}),
    ]
    # Each cost is truncated by itself.
    assert [(total, costs) for total, costs, _ in seen[10:]] == [
        (0.010, {"A": 0.003, "B": 0.007}),
        (0.004, {"A": 0.001, "B": 0.003}),
        (0.001, {"B": 0.001}),
        (0, {}),
    ]
    # The cost of a removed identity counts in the raw total for one more sweep.
    assert [raw for _, _, raw in seen[10:]] == [12, 12, 12, 8]
    assert scheduler.totals.raw == 0


def test_v35_d17_a_second_call_alone_is_all_there_is() -> None:
    scheduler = scheduler_of(4, thresholds=(25, 50, 75))

    assert request(scheduler, "A", "A") == [0, 3]

    request(scheduler, *"AAAA", "B", "B", "C", "C")
    scheduler.sweep()
    assert decayed(scheduler) == {"A": 3, "B": 1, "C": 1}
    assert levels_of_last_sweep(scheduler, "ABC") == {"A": 2, "B": 0, "C": 0}


def test_v36_sweeps_run_by_time() -> None:
    scheduler = scheduler_of(1, period_ms=10)
    request(scheduler, *["A"] * 64)

    totals = []
    for now_ms in range(0, 165, 5):
        scheduler.sweep_if_due(now_ms=now_ms)
        totals.append(scheduler.totals.decayed)

    assert totals[:16:2] == [64, 32, 16, 8, 4, 2, 1, 0.5]
    assert totals[-3:] == [0.001, 0.001, 0]


def test_v38_without_cost_all_are_in_level_0() -> None:
    scheduler = scheduler_of(2)
    cost = WeightedTimeCost(CostWeights())
    for _ in range(1_000):
        scheduler.charge("MANY", cost.weigh(Phases()))
    scheduler.charge("FEW", cost.weigh(Phases()))

    assert [scheduler.level(name) for name in ("MANY", "FEW")] == [0, 0]


def test_v39_without_requests_all_are_in_level_0() -> None:
    assert scheduler_of(2).level("A") == 0


def test_v40_service_users_are_in_level_0_and_count_in_no_share() -> None:
    scheduler = scheduler_of(service_users=frozenset({"service1", "service2"}))
    for _ in range(10):
        request(scheduler, "user1", "service1", "service2")

    expected = {"user1": 3, "service1": 0, "service2": 0}
    assert {name: scheduler.level(name) for name in expected} == expected
    scheduler.sweep()
    assert {name: scheduler.standing(name).cached_level for name in expected} == expected
    assert scheduler.totals == (5, 10, 10, 20)


def test_v42_default_thresholds() -> None:
    found = [list(queue_settings({"levels": levels}).thresholds) for levels in (1, 2, 3, 4)]

    assert found == [[], [0.5], [0.25, 0.5], [0.125, 0.25, 0.5]]
    assert scheduler_of(6, thresholds=(1, 10, 20, 50, 85)).thresholds == (0.01, 0.1, 0.2, 0.5, 0.85)


def test_v43_v44_defaults() -> None:
    assert (FairCallQueue().period_ms, FairCallQueue().decay_factor) == (5_000, 0.5)
    assert FairCallQueue().backoff_responsetime_thresholds_ms == (10_000, 20_000, 30_000, 40_000)


@pytest.mark.parametrize(
    ("cost_of_thousand", "level"), [(120, 0), (125, 1), (130, 1), (240, 1), (250, 2), (490, 2), (500, 3), (1_000, 3)]
)
def test_d9_a_threshold_itself_is_in_the_lower_level(cost_of_thousand: int, level: int) -> None:
    scheduler = scheduler_of()
    scheduler.charge("A", cost_of_thousand)
    scheduler.charge("B", 1_000 - cost_of_thousand)

    assert scheduler.level("A") == level


@pytest.mark.parametrize(("users", "level"), [(2, 3), (7, 1), (8, 1), (9, 0)])
def test_d9b_equal_users(users: int, level: int) -> None:
    scheduler = scheduler_of()
    names = [f"user-{n}" for n in range(users)]
    for name in names:
        scheduler.charge(name, 100)

    assert [scheduler.level(name) for name in names] == [level] * users


def test_d10_the_example_of_the_guide() -> None:
    scheduler = scheduler_of(2, thresholds=(90,))
    scheduler.charge("A", 90)
    scheduler.charge("B", 10)

    assert [scheduler.level(name) for name in "AB"] == [1, 0]


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


def windows(scheduler: DecayScheduler, *means_ms: int) -> DecayScheduler:
    """End a period in which each level had ten responses with the given mean time."""
    for level, mean_ms in enumerate(means_ms):
        for _ in range(10 if mean_ms else 0):
            scheduler.add_response_time(level, queue_us=0, taken_us=mean_ms * 1_000)
    scheduler.sweep()
    return scheduler


def test_d13_the_average_tends_to_the_truth_which_is_half_of_hadoops() -> None:
    scheduler = scheduler_of(1)

    averages = [windows(scheduler, 2_000).average_response_ms[0] for _ in range(40)]

    assert averages[:4] == [1_000, 1_500, 1_750, 1_875]
    assert averages[-1] == pytest.approx(2_000)


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
    scheduler = windows(scheduler_of(backoff_responsetime_enable=True), *means_ms)

    assert [scheduler.backs_off(level) for level in range(4)] == backs_off
    assert not any(windows(scheduler_of(), *means_ms).backs_off(level) for level in range(4))


def test_d18_cost_of_a_service_user_is_in_no_share() -> None:
    scheduler = scheduler_of(service_users=frozenset({"X"}))
    scheduler.charge("X", 90)
    scheduler.charge("u", 10)

    assert [scheduler.level(name) for name in "uX"] == [3, 0]


# -- D: cost --

FIXTURE_MS = Phases(queue=3, lockfree=5, lockshared=7, lockexclusive=11)


def test_v48_default_weights() -> None:
    assert WeightedTimeCost(CostWeights()).weigh(FIXTURE_MS) == 1_175


def test_v49_configured_weights() -> None:
    weights = CostWeights(queue=1_000, lockfree=10_000, lockshared=100_000)

    assert WeightedTimeCost(weights).weigh(FIXTURE_MS) == 754_100


def test_v50_v51_phases_have_one_unit_and_the_order_of_hadoop() -> None:
    names = "enqueue queue handler processing lockfree lockwait lockshared lockexclusive response"

    assert Phases._fields == tuple(names.split())
    assert Phases(enqueue=10, queue=20_020)[:3] == (10, 20_020, 0)


# -- E: the manager --


def test_v52_v53_a_plain_queue_is_one_of_one_level() -> None:
    queue = queue_of(4, 10, callqueue_impl=CallQueueImpl.FIFO)

    for _ in range(20):
        queue.put(Call(3))

    assert (queue.sizes, queue.waiting_for_room) == ((10,), 10)
    assert queue_of(1, 10).poll() is None


def test_v54_three_puts_of_one_user_fit() -> None:
    queue = queue_of(4, 8)

    for _ in range(3):
        queue.put(Call(0))

    assert queue.sizes == (2, 1, 0, 0)


def test_v55_levels_without_a_fair_queue_order_nothing() -> None:
    scheduler, queue = scheduler_of(), queue_of(4, 3, callqueue_impl=CallQueueImpl.FIFO)

    calls = [Call(level) for level in request(scheduler, *"AAAA")]
    for call in calls:
        queue.put(call)

    assert (queue.sizes, queue.waiting_for_room) == ((3,), 1)
    assert [queue.poll() for _ in range(5)] == [*calls, None]


def test_v56_no_call_is_lost_when_the_queue_is_replaced_under_load() -> None:
    queue = queue_of(2, 5_000)
    calls = [Call(n % 2) for n in range(10_000)]
    taken = []
    for n, call in enumerate(calls):
        queue.put(call)
        if n % 3 == 0:
            taken.append(queue.poll())
        if n % 2_000 == 1_999:
            replacement = queue_of(2, 5_000)
            replacement.take_over(queue)
            queue = replacement

    while (left := queue.poll()) is not None:
        taken.append(left)

    assert len(taken) == len(calls)
    assert {id(call) for call in taken} == {id(call) for call in calls}
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("weights", "order"), [pytest.param((1, 3), [0, 1, 2, 3], id="a"), pytest.param((1, 1), [0, 2, 1, 3], id="b")]
)
def test_v57_capacity_and_turns_together(weights: tuple[int, ...], order: list[int]) -> None:
    queue = queue_of(2, 4, capacity_weights=weights)
    for n in range(4):
        queue.put(Call(n % 2, str(n)))

    assert [int(call.name) for _ in range(4) if (call := queue.poll())] == order


def dispatcher_of(slots: int = 1, *, backoff_enable: bool = True, **options: object) -> Dispatcher:
    return Dispatcher(queue_settings({"backoff_enable": backoff_enable, **options}), FixedLimit(slots))


def ask(dispatcher: Dispatcher, level: int = 0, *, is_slow: bool = False) -> Turn:
    return dispatcher.ask(Ticket(None, level=level), 0, is_slow=is_slow)


def test_v60f_a_slow_level_is_refused_before_the_queue_is_asked() -> None:
    dispatcher = dispatcher_of()

    assert [ask(dispatcher, is_slow=True) for _ in range(2)] == [Turn.REFUSED] * 2
    assert (dispatcher.in_flight, len(dispatcher.queue)) == (0, 0)


def test_v60b_v60e_the_queues_own_refusal_is_passed_on() -> None:
    dispatcher = dispatcher_of(levels=2, capacity=2)

    turns = [ask(dispatcher, level) for level in (0, 0, 0, 0, 1)]

    assert turns == [Turn.PASSES, Turn.WAITS, Turn.WAITS, Turn.REFUSED, Turn.REFUSED]


def test_v60c_v62_a_plain_queue_that_is_full_refuses_at_once() -> None:
    dispatcher = dispatcher_of(callqueue_impl=CallQueueImpl.FIFO, capacity=1)

    assert [ask(dispatcher) for _ in range(3)] == [Turn.PASSES, Turn.WAITS, Turn.REFUSED]


def test_v60d_without_backoff_all_wait() -> None:
    dispatcher = dispatcher_of(levels=1, capacity=1, backoff_enable=False)

    assert [ask(dispatcher, is_slow=True) for _ in range(4)] == [Turn.PASSES] + [Turn.WAITS] * 3


# -- F: the server --


def test_v61_a_capacity_is_changed_while_requests_wait() -> None:
    dispatcher = dispatcher_of(levels=4, capacity=100)
    for _ in range(30):
        ask(dispatcher)

    dispatcher.update(FairCallQueue(capacity=150), FixedLimit(1), 0)

    assert sum(dispatcher.queue.capacities) == 150
    assert (dispatcher.in_flight, len(dispatcher.queue)) == (1, 29)


def test_v64_volumes_rise_and_levels_have_averages() -> None:
    scheduler = scheduler_of(2)

    request(scheduler, "A", "B")

    assert (scheduler.totals.decayed, scheduler.totals.raw, len(scheduler)) == (2, 2, 2)
    windows(scheduler, 10, 20)
    assert scheduler.average_response_ms == [5, 10]


def test_v65_control_requests_have_their_own_lane() -> None:
    dispatcher = dispatcher_of(levels=1, capacity=1)
    ask(dispatcher)

    assert dispatcher.ask(Ticket(None, is_control=True), 0, is_slow=True) is Turn.PASSES
