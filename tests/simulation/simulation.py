"""The simulation of the real proxy, as the command runs it."""

from typing import Final

from tests.simulation.command import Simulation
from tests.simulation.faults import KINDS
from tests.simulation.run_seed import run_seed
from tests.simulation.themes import THEMES, theme_name_of

# What a fault is called says what happens. Some have more to tell.
FAULT_KINDS: Final = {kind: (fault.__doc__ or "").partition("\n")[0] for kind, fault in KINDS.items()}
SIMULATION: Final = Simulation(run_seed, FAULT_KINDS, tuple(THEMES), theme_name_of)
