"""A short run of the simulation: every kind of fault fires, no promise is broken, and a seed is repeatable."""

import json
import os
import re
import subprocess
import sys
import time
from itertools import count
from typing import Final

import pytest

from tests.simulation.command import finding_lines
from tests.simulation.drawing import draw_plan
from tests.simulation.guarded import run_guarded
from tests.simulation.run_seed import run_seed
from tests.simulation.scenario import Scenario
from tests.simulation.simulation import FAULT_KINDS
from tests.simulation.totals import Totals
from tests.simulation.violation import Violation
from tests.support.pages import REPOSITORY

FIRST_SEED: Final = 1_000
STEPS: Final = 100_000
SECONDS: Final = 30
# The last one was another run in the compiled build, which took an empty line for a line that somebody waits in.
TWICE: Final = (1, 1_500_001_218)

_DIGESTS: Final = """
import json
from tests.simulation.run_seed import run_seed
print(json.dumps([run_seed(seed).digest for seed in {seeds}]))
"""


@pytest.mark.timeout(4 * SECONDS)
def test_promises_hold_for_100_000_steps() -> None:
    totals = Totals(FAULT_KINDS)
    started = time.process_time()
    seed = FIRST_SEED
    while totals.steps < STEPS or (totals.unfired and totals.steps < 5 * STEPS):
        # In the end only worlds run that have a kind of fault which has not fired yet.
        kinds = {fault.kind for fault in draw_plan(seed).faults}
        if totals.steps >= STEPS and kinds.isdisjoint(totals.unfired):
            seed += 1
            continue
        outcome = run_guarded(run_seed, seed)
        assert outcome.violation is None, "\n".join(finding_lines(outcome))
        totals.add(outcome)
        seed += 1
    assert not totals.unfired, "these kinds of faults never fired"
    assert time.process_time() - started < SECONDS * totals.steps / STEPS


def test_seed_has_one_digest_in_any_process_and_in_both_builds() -> None:
    digests = [run_seed(seed).digest for seed in TWICE]
    assert len(set(digests)) == len(TWICE)
    # Another order of sets and dictionaries of text, and the checkout's modules, also if these here are compiled.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", _DIGESTS.format(seeds=TWICE)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == digests


def test_replay_of_a_drawn_plan_is_the_same_run() -> None:
    drawn = run_seed(TWICE[0])
    assert run_seed(TWICE[0], drawn.plan).digest == drawn.digest


def test_a_story_ends_with_what_clients_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    after_step, steps = Scenario._after_step, count()

    def break_a_promise(scenario: Scenario) -> None:
        if next(steps) == 3_500:
            raise Violation("made up", "after 3,500 steps")
        after_step(scenario)

    monkeypatch.setattr(Scenario, "_after_step", break_a_promise)

    story = run_seed(TWICE[-1]).story

    at = next(number for number, line in enumerate(story) if "VIOLATION" in line)
    assert any(re.search(r"audit from 10.0.2.1 waits for quota, on \d+ connections", line) for line in story[at:])
