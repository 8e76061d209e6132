"""Compares the fair call queue with Hadoop's ``DecayRpcScheduler``, ``FairCallQueue`` and the classes that they use."""

from dataclasses import dataclass
from random import Random

import pytest

from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, QueueOptions
from kafka_quota_proxy.proxy.fair_queue.cost import Phases, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayOptions, DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer
from tests.oracles.hadoop import Hadoop
from tests.oracles.seeds import STEPS, each_seed

USERS = ("a", "b", "c", "d", "service", "responder")


# -- the decay scheduler --


def schedulers(
    hadoop: Hadoop, levels: int = 4, decay_factor: float = 0.5, percents: list[int] | None = None
) -> DecayScheduler:
    """Begin with a scheduler of Hadoop's, and return one of the proxy with the same settings."""
    hadoop.begin_scheduler(levels, decay_factor=decay_factor, percents=percents, service_user="service")
    options = DecayOptions(
        levels=levels,
        decay_factor=decay_factor,
        thresholds=None if percents is None else tuple(percent / 100 for percent in percents),
        service_users=frozenset({"service"}),
        is_backoff_by_response_time=True,
    )
    return DecayScheduler(options, now_ms=0)


def test_average_response_time_adds_whole_milliseconds(hadoop: Hadoop) -> None:
    ours = schedulers(hadoop, levels=1)
    for _ in range(3):
        ours.add_response_time(0, queue_us=900, taken_us=1_900)
        hadoop.respond(0, 900, 1_900)

    ours.sweep()
    hadoop.decay()

    assert ours.average_response_ms == hadoop.averages_ms() == [1.0]


@each_seed
def test_any_costs_and_response_times_give_the_levels_of_hadoop(hadoop: Hadoop, seeds: range) -> None:
    for seed in seeds:
        walk_of_scheduler(hadoop, Random(seed))


def walk_of_scheduler(hadoop: Hadoop, chance: Random) -> None:
    levels = chance.randint(1, 6)
    percents = [chance.randint(1, 99) for _ in range(levels - 1)] if levels > 1 and chance.random() < 0.5 else None
    ours = schedulers(hadoop, levels, chance.choice([0.5, chance.uniform(0.01, 0.99)]), percents)
    for _ in range(STEPS // 4):
        for _ in range(chance.randint(0, 5)):
            user, cost = chance.choice(USERS[:5]), chance.choice([0, 1, chance.randint(0, 10_000)])
            ours.charge(user, cost)
            hadoop.charge(user, cost)
        if chance.random() < 0.4:
            level = chance.randrange(levels)
            queue_us, taken_us = chance.randint(0, 3_000), chance.choice([1_999, chance.randint(0, 60_000_000)])
            ours.add_response_time(level, queue_us=queue_us, taken_us=taken_us)
            ours.charge("responder", 1)
            hadoop.respond(level, queue_us, taken_us)
        if chance.random() < 0.3:
            ours.sweep()
            hadoop.decay()
        assert ours.totals == hadoop.totals()
        user = chance.choice(USERS)
        assert ours.level(user) == hadoop.level(user)
        assert {one: int(ours.standing(one).decayed) for one in hadoop.costs()} == hadoop.costs()
        assert len(ours) == len(hadoop.costs())
        assert ours.levels == hadoop.schedule()
        assert ours.average_response_ms == hadoop.averages_ms()
        assert [ours.backs_off(level) for level in range(levels)] == hadoop.backs_off()


# -- the queue --


@dataclass(frozen=True)
class Call:
    name: str
    level: int
    identity: str = ""


@each_seed
def test_any_calls_leave_the_queue_in_the_order_of_hadoop(hadoop: Hadoop, seeds: range) -> None:
    for seed in seeds:
        walk_of_queue(hadoop, Random(seed))


def walk_of_queue(hadoop: Hadoop, chance: Random) -> None:
    levels = chance.randint(1, 5)
    weights = [chance.randint(1, 4) for _ in range(levels)]
    capacity_weights = [chance.randint(1, 3) for _ in range(levels)]
    capacity, is_failover = sum(capacity_weights) + chance.randint(0, 15), chance.random() < 0.3
    hadoop.begin_queue(capacity, capacity_weights=capacity_weights, weights=weights, is_failover=is_failover)
    options = QueueOptions(
        levels=levels,
        capacity=capacity,
        capacity_weights=capacity_weights,
        multiplexer_weights=weights,
        is_failover=is_failover,
    )
    ours = CallQueue[Call](options)
    for step in range(STEPS):
        call = Call(f"call-{step}", chance.randrange(levels))
        action = chance.choice(["add", "put", "poll", "poll"] if ours.size else ["add", "put"])
        if action == "add":
            refused = ours.add(call)
            assert (refused.value if refused else None) == hadoop.add(call.name, call.level)
        elif action == "put" and ours.sizes[-1] < ours.capacities[-1]:
            ours.put(call)
            hadoop.put(call.name, call.level)
        elif action == "poll":
            polled = ours.poll()
            assert (polled.name if polled else None) == hadoop.poll()
        assert ours.sizes == hadoop.sizes()
        assert tuple(ours.overflowed) == hadoop.overflows()


@each_seed
def test_turns_and_costs_are_those_of_hadoop(hadoop: Hadoop, seeds: range) -> None:
    for seed in seeds:
        chance = Random(seed)
        weights = [chance.randint(1, 9) for _ in range(chance.randint(1, 6))]
        multiplexer = WeightedRoundRobinMultiplexer(len(weights), weights)
        assert tuple(multiplexer.next() for _ in range(STEPS)) == hadoop.turns(weights, STEPS)
        phases = len(Phases._fields)
        cost_weights = [chance.choice([0, 1, 10, 100]) for _ in range(phases)]
        times_us = [chance.choice([0, chance.randint(0, 10**9)]) for _ in range(phases)]
        assert WeightedTimeCost(Phases(*cost_weights)).weigh(Phases(*times_us)) == hadoop.cost(cost_weights, times_us)


@pytest.mark.parametrize("levels", range(1, 9))
def test_thresholds_without_a_setting_are_those_of_hadoop(hadoop: Hadoop, levels: int) -> None:
    """A user has each share of the costs, from 1 to 100 percent."""
    for percent in range(1, 101):
        ours = schedulers(hadoop, levels)
        for user, cost in (("a", percent), ("b", 100 - percent)):
            ours.charge(user, cost)
            hadoop.charge(user, cost)
        assert ours.level("a") == hadoop.level("a")
