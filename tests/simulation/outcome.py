"""The result of one seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.simulation.plan import Plan
from tests.simulation.violation import Violation


class Outcome(NamedTuple):
    """What a world did from its start to its end.

    Attributes:
        plan: The plan that was run: the one that was given, or what the seed drew.
        steps: Callbacks that the event loop ran.
        digest: A hash over all bytes on the wire and their times, in hex.
        faults: How often each kind of fault fired.
        states: Names of the states that the world reached.
        violation: The broken promise, or None.
        story: What happened, oldest line first.
    """

    seed: int
    plan: Plan
    violation: Violation | None
    steps: int = 0
    simulated_ms: float = 0.0
    digest: str = ""
    faults: Mapping[str, int] = {}
    states: frozenset[str] = frozenset()
    story: Sequence[str] = ()


def failed(seed: int, violation: Violation, plan: Plan | None = None) -> Outcome:
    """Return the outcome of a run that has told nothing of itself."""
    return Outcome(seed, plan or Plan(seed, (), (), 0.0), violation)


# Runs the plan, or what the seed draws if there is none.
RunSeed = Callable[[int, Plan | None], Outcome]
