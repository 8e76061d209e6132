"""``python -m tests.simulation``, ``make simulate``."""

import sys

from tests.simulation.command import main
from tests.simulation.simulation import SIMULATION

if __name__ == "__main__":
    sys.exit(main(SIMULATION, sys.argv[1:]))
