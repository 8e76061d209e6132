"""The kinds of faults, by name."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

# A fault returns whether it could happen.
Fault = Callable[["Scenario", Random], bool]
KINDS: Final[dict[str, Fault]] = {}


def kind(function: Fault) -> Fault:
    """Make a function a kind of fault, which has its name."""
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def end_later(
    scenario: "Scenario", random: Random, times_ms: Sequence[float], of: object, name: str, value: Any
) -> bool:
    """Give an attribute its usual value again, after one of these times. Return that the fault could happen."""
    scenario.world.call_later(random.choice(times_ms), setattr, of, name, value)
    return True
