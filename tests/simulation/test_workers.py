"""Seeds run in processes: each once, and whatever goes wrong is an outcome."""

import itertools
from collections.abc import Iterable

from tests.simulation.guarded import ENDS, NO_ERROR, REPLAYS, run_guarded
from tests.simulation.made_up import BREAKS, DIES, DIFFERS, HANGS, RAISES, run_seed
from tests.simulation.outcome import Outcome
from tests.simulation.workers import SURVIVES, Workers


def outcomes_of(workers: Workers) -> dict[int, Outcome]:
    found: list[Outcome] = []
    while (some := workers.outcomes(5)) is not None:
        found += some
    seeds = [outcome.seed for outcome in found]
    assert len(seeds) == len(set(seeds)), "a seed has two outcomes"
    return {outcome.seed: outcome for outcome in found}


def run_all(seeds: Iterable[int], jobs: int = 2, *, is_twice: bool = False) -> dict[int, Outcome]:
    with Workers(run_seed, iter(seeds), jobs=jobs, is_twice=is_twice, seed_seconds=0.5) as workers:
        return outcomes_of(workers)


def broken(outcome: Outcome) -> str | None:
    return None if outcome.violation is None else outcome.violation.check


def test_each_seed_has_the_outcome_that_it_has_here() -> None:
    outcomes = run_all(range(12))
    assert outcomes == {seed: run_seed(seed)._replace(story=()) for seed in range(12)}


def test_each_way_to_fail_is_an_outcome_and_all_others_are_run() -> None:
    outcomes = run_all(range(30))
    assert sorted(outcomes) == list(range(30))
    assert {seed: broken(one) for seed, one in outcomes.items() if one.violation} == {
        BREAKS: "made-up promise",
        RAISES: NO_ERROR,
        HANGS: ENDS,
        DIES: SURVIVES,
    }
    assert "ZeroDivisionError" in str(outcomes[RAISES].violation)
    assert "time.sleep" in str(outcomes[HANGS].violation), "it says where it hangs"
    assert outcomes[BREAKS].story == run_seed(BREAKS).story


def test_run_that_differs_the_second_time_is_found() -> None:
    outcomes = run_all(range(DIFFERS - 1, DIFFERS + 2), is_twice=True)
    assert {seed: broken(one) for seed, one in outcomes.items()} == {16: SURVIVES, 17: REPLAYS, 18: None}


def test_end_ends_the_processes_of_an_endless_run() -> None:
    with Workers(run_seed, itertools.count(100), jobs=2) as workers:
        assert workers.outcomes(10)
        processes = [worker.process for worker in workers._workers]
    assert processes
    assert not any(process.is_alive() for process in processes)
    assert workers.outcomes(0) is None


def test_first_line_that_differs_is_told() -> None:
    stories = iter([["begins", "goes on"], ["begins", "turns"]])
    number = itertools.count()

    def run(seed: int, _plan: object = None) -> Outcome:
        return run_seed(seed)._replace(digest=str(next(number)), story=next(stories))

    text = str(run_guarded(run, 1, is_twice=True).violation)
    assert text.endswith("  goes on\n  turns")
