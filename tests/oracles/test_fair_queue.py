"""Compares the fair call queue with Hadoop's ``DecayRpcScheduler``, ``FairCallQueue`` and the classes that they use.

The proxy reckons with thousandths of a cost, so Hadoop gets each cost times 1,000. The average response times are then
those of Hadoop times 1 - f, where f is the decay factor, if times are whole milliseconds and each level has ten calls.
"""

from dataclasses import dataclass
from random import Random

import pytest

from kafka_quota_proxy.config.fair_call_queue import CostWeights, places
from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, Shape
from kafka_quota_proxy.proxy.fair_queue.cost import Phases, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer
from tests.oracles.hadoop import Hadoop
from tests.oracles.seeds import STEPS, each_seed

USERS = ("a", "b", "c", "d", "service", "responder")
SCALE = 1_000


# -- the decay scheduler --


def schedulers(
    hadoop: Hadoop, levels: int = 4, decay_factor: float = 0.5, percents: tuple[int, ...] = ()
) -> DecayScheduler:
    """Begin with a scheduler of Hadoop's, and return one of the proxy with the same settings."""
    hadoop.begin_scheduler(levels, decay_factor=decay_factor, percents=percents, service_user="service")
    of_section = {
        "levels": levels,
        "decay_factor": decay_factor,
        **({"thresholds": percents} if percents else {}),
        "service_users": frozenset({"service"}),
        "backoff_responsetime_enable": True,
        "backoff_responsetime_thresholds_ms": tuple((1 - decay_factor) * 10_000 * n for n in range(1, levels + 1)),
    }
    return DecayScheduler(settings(of_section), now_ms=0)


@each_seed
def test_any_costs_and_response_times_give_the_levels_of_hadoop(hadoop: Hadoop, seeds: range) -> None:
    for seed in seeds:
        walk_of_scheduler(hadoop, Random(seed))


def walk_of_scheduler(hadoop: Hadoop, chance: Random) -> None:
    levels = chance.randint(1, 6)
    percents = tuple(sorted(chance.sample(range(1, 100), levels - 1))) if chance.random() < 0.5 else ()
    decay_factor = chance.choice([0.5, chance.uniform(0.01, 0.99)])
    ours = schedulers(hadoop, levels, decay_factor, percents)
    for _ in range(STEPS // 4):
        for _ in range(chance.randint(0, 5)):
            user, cost = chance.choice(USERS[:5]), chance.choice([0, 1, chance.randint(0, 10_000)])
            ours.charge(user, cost)
            hadoop.charge(user, cost * SCALE)
        if chance.random() < 0.2:
            respond(hadoop, ours, chance, chance.randrange(levels))
        if chance.random() < 0.3:
            ours.sweep()
            hadoop.decay()
        user = chance.choice(USERS)
        assert ours.level(user) == hadoop.level(user)
        assert tuple(round(total * SCALE) for total in ours.totals) == hadoop.totals()
        assert {one: round(ours.standing(one).decayed * SCALE) for one in hadoop.costs()} == hadoop.costs()
        assert len(ours) == len(hadoop.costs())
        cached = {one: ours.standing(one).cached_level for one in USERS}
        assert {one: level for one, level in cached.items() if level is not None} == hadoop.schedule()
        averages_ms = [average_ms * (1 - decay_factor) for average_ms in hadoop.averages_ms()]
        # Both forget an average below 0.0001 ms.
        assert ours.average_response_ms == pytest.approx(averages_ms, rel=1e-9, abs=1e-4)
        # Hadoop also refuses the slow level itself, so that a level is refused if the one above would be.
        assert [ours.backs_off(level) for level in range(levels)] == [False, *hadoop.backs_off()[:-1]]


def respond(hadoop: Hadoop, ours: DecayScheduler, chance: Random, level: int) -> None:
    """End ten calls or more of one level. Each has a cost of the user "responder"."""
    for _ in range(chance.randint(10, 12)):
        queue_ms, taken_ms = chance.randint(0, 3), chance.choice([1, chance.randint(0, 60_000)])
        ours.add_response_time(level, queue_us=queue_ms * 1_000, taken_us=taken_ms * 1_000)
        ours.charge("responder", 1)
        hadoop.respond(level, queue_ms * 1_000, taken_ms * 1_000)
        hadoop.charge("responder", SCALE - 1)  # the call itself has cost 1


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
    capacity = sum(capacity_weights) * chance.randint(1, 4)  # Hadoop gives the rest of an uneven division to level 0
    hadoop.begin_queue(capacity, capacity_weights=capacity_weights, weights=weights)
    ours = CallQueue[Call](Shape(places(capacity, capacity_weights), tuple(weights), is_round_robin=False))
    for step in range(STEPS):
        call = Call(f"call-{step}", chance.randrange(levels))
        action = chance.choice(["add", "put", "poll", "poll"] if ours.size else ["add", "put"])
        if action == "add":
            assert ours.add(call) == hadoop.add(call.name, call.level)
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
        multiplexer = WeightedRoundRobinMultiplexer(weights)
        assert tuple(multiplexer.next() for _ in range(STEPS)) == hadoop.turns(weights, STEPS)
        phases = len(Phases._fields)
        cost_weights = [chance.choice([0, 1, 10, 100]) for _ in range(phases)]
        times_us = [chance.choice([0, chance.randint(0, 10**9)]) for _ in range(phases)]
        ours = WeightedTimeCost(CostWeights(**dict(zip(Phases._fields, cost_weights, strict=True))))
        assert ours.weigh(Phases(*times_us)) == hadoop.cost(cost_weights, times_us)


@pytest.mark.parametrize("levels", range(1, 9))
def test_thresholds_without_a_setting_are_those_of_hadoop(hadoop: Hadoop, levels: int) -> None:
    """A user has each share of the costs, from 1 to 100 percent."""
    for percent in range(1, 101):
        ours = schedulers(hadoop, levels)
        for user, cost in (("a", percent), ("b", 100 - percent)):
            ours.charge(user, cost)
            hadoop.charge(user, cost * SCALE)
        assert ours.level("a") == hadoop.level("a")
