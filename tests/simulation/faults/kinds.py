"""The kinds of faults, by name."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

# A fault raises CannotHappenError if the world lacks what it needs.
Fault = Callable[["Scenario", Random], None]
KINDS: Final[dict[str, Fault]] = {}


class CannotHappenError(Exception):
    """The world lacks what a fault needs."""


def needs(what: object) -> None:
    """End a fault that could not happen without this.

    Raises:
        CannotHappenError: It is false or empty.
    """
    if not what:
        raise CannotHappenError


def kind(function: Fault) -> Fault:
    """Make a function a kind of fault, which has its name."""
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def end_later(
    scenario: "Scenario", random: Random, times_ms: Sequence[float], of: object, name: str, value: Any
) -> None:
    """Give an attribute its usual value again, after one of these times."""
    scenario.world.call_later(random.choice(times_ms), setattr, of, name, value)
