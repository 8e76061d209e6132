"""How often tests repeat a random walk beside an oracle: a little in each run, and for minutes with ``-m long``."""

from typing import Final

import pytest

# The steps of a walk, which the seed of its random numbers determines.
STEPS: Final = 200
each_seed: Final = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(20), id="few"),
        pytest.param(range(20, 500), id="many", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
