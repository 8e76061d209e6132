"""``python -m tests.simulation.bites``, ``make bites``."""

import sys

from tests.simulation.bites.breaks import BREAKS
from tests.simulation.bites.command import main

if __name__ == "__main__":
    sys.exit(main(BREAKS, sys.argv[1:]))
