"""A made-up simulation, for the tests of what runs, shrinks and reports seeds. Some of its seeds misbehave."""

import os
import signal
import time
from typing import Final

from tests.simulation.command import Simulation
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan, PlannedActor, PlannedFault
from tests.simulation.violation import Violation

FAULT_KINDS: Final = {"reset": "a connection is reset", "stall": "a connection stalls", "never": "it never happens"}

BREAKS: Final = 13  # breaks a promise while producer-1 and the fault stall-2 are there
RAISES: Final = 14
HANGS: Final = 15
DIES: Final = 16
DIFFERS: Final = 17  # has another digest in each process and run

_ACTORS: Final = 8
_FAULTS: Final = 6
_STEPS: Final = 1_000
_BREAKS_AT_MS: Final = 3_000.0

_runs = 0


def run_seed(seed: int, plan: Plan | None = None) -> Outcome:
    """Pretend to run a world."""
    global _runs
    _runs += 1
    plan = plan or draw(seed)
    if seed == RAISES:
        raise ZeroDivisionError
    if seed == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == HANGS:
        while True:
            time.sleep(0.01)
    names = {actor.name for actor in plan.actors}
    faults = {fault.name: fault for fault in plan.faults}
    is_broken = seed == BREAKS and "producer-1" in names and "stall-2" in faults and plan.horizon_ms > _BREAKS_AT_MS
    return Outcome(
        seed=seed,
        plan=plan,
        steps=_STEPS,
        simulated_ms=_BREAKS_AT_MS if is_broken else plan.horizon_ms,
        digest=f"{os.getpid()}-{_runs}" if seed == DIFFERS else plan.random_of("digest").randbytes(8).hex(),
        faults={kind: sum(fault.kind == kind for fault in plan.faults) for kind in FAULT_KINDS},
        states=frozenset({"served", f"state {seed % 3}"}),
        violation=Violation("made-up promise", "it was broken") if is_broken else None,
        story=[f"line {number}" for number in range(50)],
    )


def draw(seed: int) -> Plan:
    """Return a plan of some actors and faults."""
    return Plan(
        seed=seed,
        actors=tuple(PlannedActor(f"producer-{number}", "producer") for number in range(_ACTORS)),
        faults=tuple(
            PlannedFault(f"{kind}-{number}", kind, number * 1_000.0)
            for number in range(_FAULTS)
            for kind in ("reset" if number % 2 else "stall",)
        ),
        horizon_ms=10_000.0,
    )


SIMULATION: Final = Simulation(run_seed, FAULT_KINDS, ("even", "odd"), lambda seed: "odd" if seed % 2 else "even")
