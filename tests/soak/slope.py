"""Tells whether a series of samples grows: a linear fit, and the 95 % interval of its slope.

Samples of a process depend on their predecessors. So the interval is widened by the autocorrelation of the residuals,
as if there were fewer samples.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

# The normal distribution's quantile of a two-sided 95 % interval.
_Z: Final = statistics.NormalDist().inv_cdf(0.975)
_LEAST_SAMPLES: Final = 6
_HIGHEST_CORRELATION: Final = 0.95


class Verdict(Enum):
    """FLAT: the interval excludes growth above the bound. GROWS: it lies above the bound. Else it is too wide."""

    FLAT = "flat"
    GROWS = "grows"
    UNDECIDED = "too short to tell"


class Fit(NamedTuple):
    """A slope in units per second, and its 95 % interval."""

    slope: float
    low: float
    high: float

    def verdict(self, bound: float) -> Verdict:
        """Compare the interval with the highest allowed growth in units per second."""
        if self.high <= bound:
            return Verdict.FLAT
        return Verdict.GROWS if self.low > bound else Verdict.UNDECIDED


Point = tuple[float, float]  # seconds, value


def fit(points: Sequence[Point]) -> Fit | None:
    """Fit a line, or return None if there are too few points."""
    count = len(points)
    if count < _LEAST_SAMPLES:
        return None
    times, values = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(times, values)
    residuals = [value - intercept - slope * time for time, value in points]
    squares = sum(one * one for one in residuals)
    spread = statistics.variance(times) * (count - 1)
    independent = _independent(residuals, squares)
    error = math.sqrt(squares / (count - 2) / spread * count / independent)
    half = _t_quantile(max(independent - 2, 2)) * error
    return Fit(slope, slope - half, slope + half)


def summarised(points: Sequence[Point], *, every_s: float, by: Callable[[list[float]], float]) -> list[Point]:
    """Return one point for each interval of ``every_s``: its median time, and its values ``by`` a function."""
    groups: dict[int, list[Point]] = {}
    for point in points:
        groups.setdefault(int(point[0] // every_s), []).append(point)
    return [
        (statistics.median(at for at, _ in group), by([value for _, value in group]))
        for _, group in sorted(groups.items())
    ]


def _independent(residuals: Sequence[float], squares: float) -> float:
    """Return how many independent samples have as much information as these."""
    if squares == 0:
        return len(residuals)
    products = sum(one * following for one, following in itertools.pairwise(residuals))
    correlation = min(max(products / squares, 0.0), _HIGHEST_CORRELATION)
    return max(len(residuals) * (1 - correlation) / (1 + correlation), 3.0)


def _t_quantile(freedom: float) -> float:
    """Approximate Student's t by the expansion in powers of 1 / freedom (Fisher and Cornish)."""
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
