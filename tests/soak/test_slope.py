"""A slope's interval tells growth from noise, also when samples depend on their predecessors."""

from __future__ import annotations

import random
import statistics

import pytest

from tests.soak.slope import Point, Verdict, fit, summarised

_BOUND = 1 / 600  # one unit in ten minutes


def _series(*, growth: float, noise: float, minutes: int = 15, follows: float = 0.0, seed: int = 1) -> list[Point]:
    """Return a sample every ten seconds that grows by ``growth`` in ten minutes.

    ``follows`` is the correlation of each sample's noise with the one before.
    """
    chance = random.Random(seed)  # noqa: S311
    points, error = [], 0.0
    for at in range(0, minutes * 60, 10):
        error = follows * error + chance.gauss(0, noise)
        points.append((1e9 + at, 40 + growth * at / 600 + error))
    return points


def _verdict(points: list[Point]) -> Verdict:
    line = fit(points)
    assert line is not None
    return line.verdict(_BOUND)


def test_slope_of_a_line_is_exact() -> None:
    line = fit(_series(growth=3, noise=0))

    assert line is not None
    assert [one * 600 for one in line] == pytest.approx([3, 3, 3], abs=1e-6)


def test_interval_is_that_of_the_textbook() -> None:
    # Residuals alternate, so they are taken as independent: the squares sum to 5.4857, Sxx = 17.5, t(4) = 2.776.
    line = fit([(at, (-1.0) ** at) for at in range(6)])

    assert line is not None
    assert line.slope == pytest.approx(-0.171429, abs=1e-5)
    error = (5.485714 / 4 / 17.5) ** 0.5
    assert line.high - line.slope == pytest.approx(2.776 * error, rel=0.01)


@pytest.mark.parametrize(
    ("growth", "noise", "expected"),
    [
        (0, 0.3, Verdict.FLAT),
        (-5, 0.3, Verdict.FLAT),
        (0.5, 0.3, Verdict.FLAT),
        (2, 0.3, Verdict.GROWS),
        (0, 20, Verdict.UNDECIDED),
    ],
)
def test_growth_is_told_from_noise(growth: float, noise: float, expected: Verdict) -> None:
    assert _verdict(_series(growth=growth, noise=noise)) is expected


def test_few_flat_series_are_called_growing_although_samples_follow_each_other() -> None:
    # Without regard to the correlation the intervals exclude the true slope for half of the series.
    lines = [fit(_series(growth=0, noise=1, follows=0.8, seed=seed)) for seed in range(200)]

    missed = sum(line is not None and not line.low <= 0 <= line.high for line in lines)
    assert missed < 30


def test_too_few_samples_have_no_slope() -> None:
    assert fit(_series(growth=0, noise=1)[:5]) is None


def test_samples_are_summarised_by_interval() -> None:
    points = [(0.0, 5.0), (1.0, 1.0), (9.0, 3.0), (30.0, 7.0)]

    assert summarised(points, every_s=10, by=min) == [(1.0, 1.0), (30.0, 7.0)]
    assert summarised(points, every_s=10, by=statistics.median) == [(1.0, 3.0), (30.0, 7.0)]
