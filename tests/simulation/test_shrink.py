"""A failing plan becomes smaller as long as it breaks the same promise."""

import json
from itertools import count

from tests.simulation.made_up import BREAKS, draw, run_seed
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan, derived_random
from tests.simulation.shrink import shrink
from tests.simulation.violation import Violation


def run(plan: Plan) -> Outcome:
    return run_seed(BREAKS, plan)


def test_plan_shrinks_to_what_is_needed() -> None:
    shrunk = shrink(run_seed(BREAKS), run, seconds=60)
    assert [actor.name for actor in shrunk.plan.actors] == ["producer-1"]
    assert [fault.name for fault in shrunk.plan.faults] == ["stall-2"]
    assert 3_000 < shrunk.plan.horizon_ms < 3_300


def test_another_broken_promise_is_not_taken_for_the_same() -> None:
    def run_otherwise(plan: Plan) -> Outcome:
        return run(plan)._replace(violation=Violation("another promise", "it was broken"))

    assert shrink(run_seed(BREAKS), run_otherwise, seconds=60).plan == draw(BREAKS)


def test_shrinking_stops_when_its_time_is_over() -> None:
    clock = count()
    shrunk = shrink(run_seed(BREAKS), run, seconds=6, clock=lambda: next(clock))
    assert len(shrunk.plan.actors) > 1
    assert run(shrunk.plan).violation is not None


def test_two_things_that_are_needed_together_both_stay() -> None:
    def run_pair(plan: Plan) -> Outcome:
        names = {actor.name for actor in plan.actors}
        violation = Violation("pair", "") if {"producer-2", "producer-7"} <= names else None
        return run(plan)._replace(violation=violation)

    failed = run_seed(BREAKS)._replace(violation=Violation("pair", ""))
    shrunk = shrink(failed, run_pair, seconds=60)
    assert [actor.name for actor in shrunk.plan.actors] == ["producer-2", "producer-7"]
    assert shrunk.plan.faults == ()


def test_plan_is_read_back_from_json() -> None:
    plan = draw(5)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_random_of_a_name_depends_on_seed_and_name_alone() -> None:
    draws = draw(5).random_of("producer-3").random()
    assert draw(5).shorter(2_000).random_of("producer-3").random() == draws
    assert draw(6).random_of("producer-3").random() != draws
    assert draw(5).random_of("producer-4").random() != draws
    # The same in any process and version.
    assert derived_random(1, "producer-3").getrandbits(32) == 2_375_800_517
