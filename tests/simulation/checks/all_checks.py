"""All checks of a world: each ``Check`` with a name in a module of this folder."""

from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Final

from tests.simulation.checks.broker_names import BrokerNames
from tests.simulation.checks.check import Check

_OTHERS: Final = ("__init__", "all_checks", "support")
_MODULES: Final = [
    import_module(f"{__package__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem not in _OTHERS and not path.stem.startswith("test_")
]
# Without that of the brokers' names, which other checks ask.
ALL: Final[tuple[type[Check], ...]] = tuple(
    found
    for module in _MODULES
    for found in vars(module).values()
    if isclass(found) and issubclass(found, Check) and found.__module__ == module.__name__ and found.name
    if found is not BrokerNames
)
