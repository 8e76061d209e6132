"""The scheduler's decisions take a bounded time."""

import pytest

from bench import scheduling
from bench.rows import ROWS, Row, Section

_DECISIONS = [row for row in ROWS if row.section is Section.SCHEDULING and row.targets]


@pytest.mark.parametrize("row", _DECISIONS, ids=lambda row: row.key)
@pytest.mark.parametrize(
    ("bound_us", "tries"),
    [
        # Ten times the time on a quiet machine. A scan of all users for each request would take longer.
        pytest.param(20, 1, marks=pytest.mark.kafka),
        pytest.param(3, 5, marks=pytest.mark.long),
    ],
)
def test_decision_among_10_000_users_takes_microseconds(row: Row, bound_us: float, tries: int) -> None:
    samples = [scheduling.measure(row) for _ in range(tries)]

    assert min(sample["decision_us"] for sample in samples) < bound_us
