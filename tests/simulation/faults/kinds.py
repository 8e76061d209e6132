"""The kinds of faults, by name."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

# A fault returns whether it could happen.
Fault = Callable[["Scenario", Random], bool]
KINDS: Final[dict[str, Fault]] = {}


def kind(function: Fault) -> Fault:
    """Make a function a kind of fault, which has its name."""
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function
