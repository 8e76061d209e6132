"""Runs one seed, or one plan, and returns what came of it."""

import ctypes
import logging
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.simulation.drawing import draw_plan
from tests.simulation.install import installed
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan
from tests.simulation.scenario import Scenario, StoryHandler
from tests.simulation.violation import Violation

_NS_PER_MS: Final = 1_000_000
# Nothing of a killed process may be collected, not even when Python ends: that would run code of it. So the list has
# one reference more than anybody gives back.
_graveyard: Final[list[object]] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_graveyard))


def run_seed(seed: int, plan: Plan | None = None) -> Outcome:
    """Run ``plan``, or what ``seed`` draws."""
    plan = plan or draw_plan(seed)
    # Files in memory: what a disk loses is simulated.
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
    before = Path.cwd()
    os.chdir(folder)  # so that no path is different in each run
    try:
        with installed(), _logs_in_story():
            return _run(plan)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def _run(plan: Plan) -> Outcome:
    scenario = Scenario(plan, Path())
    start_ns = scenario.world.clock.now_ns
    violation: Violation | None = None
    try:
        scenario.run()
    except Violation as found:
        violation = found
        scenario.tell(f"VIOLATION of {found}")
        for line in scenario.proxy.waits():
            scenario.tell(line)
    except Exception:  # noqa: BLE001 - an error of the simulation itself is a finding, too
        violation = Violation("no unexpected error", traceback.format_exc())
        scenario.tell(f"VIOLATION of {violation}")
    finally:
        _graveyard.append((scenario.proxy.remains, scenario.proxy.process))
    world = scenario.world
    return Outcome(
        seed=plan.seed,
        plan=plan,
        steps=world.scheduler.steps,
        simulated_ms=(world.clock.now_ns - start_ns) / _NS_PER_MS,
        digest=world.digest.hexdigest(),
        faults=scenario.fired,
        states=frozenset(scenario.states),
        violation=violation,
        story=world.story.lines(),
    )


@contextmanager
def _logs_in_story() -> Iterator[None]:
    """Add the proxy's warnings to the story, and keep them from everybody else."""
    log, of_asyncio = logging.getLogger("kafka_quota_proxy"), logging.getLogger("asyncio")
    before = log.level, log.propagate, of_asyncio.level
    handler = StoryHandler()
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    log.propagate = False
    # A killed process leaves tasks and callbacks behind, of which asyncio would complain.
    of_asyncio.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
        of_asyncio.setLevel(before[2])
