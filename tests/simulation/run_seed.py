"""Runs one seed, or one plan, and returns what came of it."""

import ctypes
import logging
import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Final

from tests.simulation.drawing import draw_plan
from tests.simulation.install import install
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
    install()
    _listen_to_logs()
    plan = plan or draw_plan(seed)
    # Files in memory: what a disk loses is simulated.
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
    violation: Violation | None = None
    before = Path.cwd()
    try:
        os.chdir(folder)  # so that no path is different in each run
        scenario = Scenario(plan, Path())
        start_ns = scenario.world.clock.now_ns
        try:
            scenario.run()
        except Violation as found:
            violation = found
            scenario.tell(f"VIOLATION of {found}")
        except Exception:  # noqa: BLE001 - an error of the simulation itself is a finding, too
            violation = Violation("no unexpected error", traceback.format_exc())
            scenario.tell(f"VIOLATION of {violation}")
        finally:
            _graveyard.append(scenario.proxy.remains)
            _graveyard.append(scenario.proxy.process)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    world = scenario.world
    return Outcome(
        seed=seed,
        plan=plan,
        steps=world.scheduler.steps,
        simulated_ms=(world.clock.now_ns - start_ns) / _NS_PER_MS,
        digest=world.digest.hexdigest(),
        faults=scenario.fired,
        states=frozenset(scenario.states),
        violation=violation,
        story=world.story.lines(),
    )


def _listen_to_logs() -> None:
    log = logging.getLogger("kafka_quota_proxy")
    if not any(isinstance(handler, StoryHandler) for handler in log.handlers):
        log.addHandler(StoryHandler())
        log.setLevel(logging.WARNING)
        log.propagate = False
        # A killed process leaves tasks and callbacks behind, of which asyncio would complain.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
