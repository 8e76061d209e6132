"""Measures how fast the use of entities grows, and forecasts in how many weeks it reaches a limit.

Each day is represented by its busiest hour. Growth is the estimator of Theil and Sen with Hirsch's extension for
seasons: the median slope between all pairs of days that are whole weeks apart. Each slope is divided by the median of
its weekday. Weekdays with less than half of the busiest weekday's rate do not count, since they reach no limit. The
interval of the growth comes from the variance of Kendall's statistic (R. O. Gilbert, Statistical Methods for
Environmental Pollution Monitoring, 1987, section 17.4).

A forecast compares the limit with the busiest hour of a usual week. Both the growth and the busiest hour are uncertain.
The interval of the time at which their line reaches the limit is Fieller's (E. C. Fieller, Some Problems in Interval
Estimation, 1954). All intervals contain the truth with a probability of 90 %.

Spark only collects the days. The arithmetic is done for all entities at once.
"""

from collections.abc import Mapping, Sequence
from math import inf, nan, sqrt
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import ENTITY

_DAY_MS: Final = 86_400_000
_HOUR_S: Final = 3_600
_WEEK: Final = 7
# Older days do not count.
_WEEKS: Final = 13
# Growth needs this number of pairs of days, which two weeks of Monday to Friday have.
_LEAST_PAIRS: Final = 5
# A forecast needs more. With fewer weeks, noise looks like growth too often.
_LEAST_WEEKS: Final = 6
# The quantile of the normal distribution for an interval of 90 %.
_Z: Final = 1.645
# The quantiles of Student's t distribution for an interval of 90 %, by the number of weeks.
_T: Final = (*(nan for _ in range(_LEAST_WEEKS)), 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782)
# The standard error of a median is larger than that of a mean by this factor.
_OF_MEDIAN: Final = 1.2533
# The line of a client that grew from almost nothing may begin below 0, and a rate cannot be divided by that.
_LEAST_FACTOR: Final = 0.05
_TINY: Final = 1e-9
# The number of entities whose slopes are in memory at the same time.
_AT_ONCE: Final = 2_000
YEAR: Final = 52

_Numbers = NDArray[np.float64]


class Trend(NamedTuple):
    """The growth of an entity. ``growth`` is the part of the rate by which it grows each day.

    ``low`` and ``high`` are the interval of the growth. ``level`` is the rate in the busiest hour of a usual week,
    ``age`` days before the last day, and ``error`` is its half interval. What too few days do not tell is None.
    """

    days: int
    age: float
    growth: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    error: float | None = None

    @property
    def percent_in_30_days(self) -> float | None:
        """The growth in per cent per 30 days."""
        return None if self.growth is None else self.growth * 3_000


class Reach(NamedTuple):
    """When a limit is reached, in weeks after the last day, with its interval. ``weeks`` is None if it never is."""

    words: str
    weeks: float | None = None
    low: float = inf
    high: float = inf


def daily(hours: DataFrame, last_ms: int) -> DataFrame:
    """Return the highest rate in an hour of each day for each entity, as a map ``days``.

    ``hours`` is the result of ``rollup.hours``. The rate is that of the broker where it is highest. The keys of the map
    are 0 for the day of ``last_ms``, 1 for the day before it, and so on.
    """
    back = (F.lit(last_ms // _DAY_MS) - F.floor(F.col("hour_ms") / _DAY_MS)).cast("int").alias("back")
    days = hours.groupBy(*ENTITY, back).agg((F.max("amount") / _HOUR_S).alias("busiest"))
    pairs = F.map_from_entries(F.collect_list(F.struct("back", "busiest")))
    return days.where(F.col("back").between(0, _WEEKS * _WEEK - 1)).groupBy(*ENTITY).agg(pairs.alias("days"))


def trends(days: Sequence[Mapping[int, float]]) -> list[Trend]:
    """Return the trend of each entity. An element of ``days`` is a map of the result of ``daily``."""
    found: list[Trend] = []
    for start in range(0, len(days), _AT_ONCE):
        found += _trends(days[start : start + _AT_ONCE])
    return found


def limit_reached(trend: Trend, limit: float) -> Reach:
    """Return in how many weeks an entity reaches a limit if it goes on growing as it did."""
    if trend.growth is None or trend.level is None or trend.error is None or trend.low is None or trend.high is None:
        return Reach("")
    if trend.low <= 0 and trend.level * (1 + trend.growth * trend.age) >= limit:
        return Reach("reached", 0.0, 0.0, 0.0)
    if trend.low <= 0:
        return Reach("shrinks" if trend.high < 0 else "no clear growth")
    times = _crossing(limit / trend.level, trend.error / trend.level, trend.growth, (trend.high - trend.low) / 2)
    weeks, low, high = (max(0.0, (time - trend.age) / _WEEK) for time in times)
    if not high:
        return Reach("reached", 0.0, 0.0, 0.0)
    if low > YEAR:
        return Reach("not within a year", weeks, low, high)
    words = f"in {_weeks(weeks)} ({low:.0f} to {_weeks(high)})" if weeks <= YEAR else f"in {low:.0f} weeks or more"
    return Reach(words, weeks, low, high)


def _weeks(weeks: float) -> str:
    if weeks > 2 * YEAR:
        return "over 2 years"
    return f"{weeks:.0f} {'week' if round(weeks) == 1 else 'weeks'}"


def _crossing(ratio: float, error: float, growth: float, growth_error: float) -> tuple[float, float, float]:
    """Return the time at which a line of 1 that grows by ``growth`` each day reaches ``ratio``, and its interval.

    ``error`` is the half interval of the 1. The times are in days. The interval is Fieller's: all times t for which the
    distance of the line at t from the ratio is within the half interval of this distance.
    """
    distance, error = ratio - 1, ratio * error
    square, rest = growth**2 - growth_error**2, distance**2 - error**2
    root = sqrt(max(0.0, (growth * distance) ** 2 - square * rest))
    low = (growth * distance - root) / square if square > 0 else rest / (2 * growth * distance)
    return distance / growth, low, (growth * distance + root) / square if square > 0 else inf


def _trends(days: Sequence[Mapping[int, float]]) -> list[Trend]:
    rates = np.full((len(days), _WEEKS * _WEEK), np.nan)
    for row, of in zip(rates, days, strict=True):
        row[[_WEEKS * _WEEK - 1 - back for back in of]] = list(of.values())
    # The last index is the weekday. The last week is the one that ends with the last day.
    weeks = rates.reshape(len(days), _WEEKS, _WEEK)
    age = np.arange(_WEEKS * _WEEK - 1, -1, -1, dtype=np.float64).reshape(_WEEKS, _WEEK)
    is_there = np.isfinite(weeks)
    count = is_there.sum(axis=(1, 2))
    middle = np.where(is_there, age, 0).sum(axis=(1, 2)) / np.maximum(count, 1)
    usual = _usual(weeks)
    growth, low, high = _growth(weeks, usual)
    # The median of a weekday is closer to the rate in the middle of the time if it is taken without the growth.
    level_rates = weeks / _line(growth, middle, age)
    growth, low, high = _growth(weeks, np.where(np.isfinite(usual), _median(level_rates), np.nan))
    peaks = np.fmax.reduce(weeks / _line(growth, middle, age), axis=2)
    level, error = _median_and_error(peaks)
    found = []
    for of, at, numbers in zip(count, middle, np.column_stack([growth, low, high, level, error]), strict=True):
        known = [float(number) if np.isfinite(number) else None for number in numbers]
        found.append(Trend(int(of), float(at), *known))
    return found


def _line(growth: _Numbers, middle: _Numbers, age: _Numbers) -> _Numbers:
    """Return the factor of each day by which growth changes the rate, compared with the middle of the time."""
    factor = 1 + np.nan_to_num(growth)[:, None, None] * (middle[:, None, None] - age)
    return np.maximum(factor, _LEAST_FACTOR)


def _usual(weeks: _Numbers) -> _Numbers:
    """Return the median rate of each weekday. It is NaN for weekdays that do not count."""
    # Of two values, the lower one decides whether a weekday counts, since one odd day must not decide alone.
    count = np.isfinite(weeks).sum(axis=1)
    lower = _at_rank(np.sort(weeks, axis=1), (count - 1) // 2, axis=1)
    busiest = np.fmax(np.fmax.reduce(lower, axis=1), _TINY)
    return np.where(lower >= busiest[:, None] / 2, _median(weeks), np.nan)


def _median(weeks: _Numbers) -> _Numbers:
    return _at_rank(np.sort(weeks, axis=1), (np.isfinite(weeks).sum(axis=1) - 1) / 2, axis=1)


def _growth(weeks: _Numbers, usual: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the growth of each entity with its interval. NaN means that there are too few days.

    ``usual`` is the rate of each weekday by which slopes are divided. Weekdays with NaN do not count.
    """
    slopes = [
        ((weeks[:, apart:] - weeks[:, :-apart]) / (_WEEK * apart * usual[:, None])).reshape(len(weeks), -1)
        for apart in range(1, _WEEKS)
    ]
    ordered = np.sort(np.concatenate(slopes, axis=1), axis=1)
    pairs = np.isfinite(ordered).sum(axis=1)
    ordered[pairs < _LEAST_PAIRS] = np.nan
    of = (np.isfinite(weeks) & np.isfinite(usual)[:, None]).sum(axis=1)
    half = _Z * np.sqrt((of * (of - 1) * (2 * of + 5) / 18).sum(axis=1)) / 2
    middle = (pairs - 1) / 2
    low, high = (_at_rank(ordered, middle + side * (half + 0.5), axis=1) for side in (-1, 1))
    return _at_rank(ordered, middle, axis=1), low, high


def _median_and_error(peaks: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the median of the weeks' peaks, with its half interval. NaN means that there are too few weeks."""
    count = np.isfinite(peaks).sum(axis=1)
    level = _median(peaks)
    level[count < _LEAST_WEEKS] = np.nan
    squares = np.nansum((peaks - level[:, None]) ** 2, axis=1)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return level, np.asarray(_T)[count] * _OF_MEDIAN * deviation / np.sqrt(np.maximum(count, 1))


def _at_rank(ordered: _Numbers, rank: Any, axis: int) -> _Numbers:  # noqa: ANN401  (an array of numbers)
    """Return the values at a rank, which counts from 0 and may lie between two values. Is NaN outside of the values.

    ``ordered`` is sorted along the axis, with NaN at the end.
    """
    rank = np.asarray(rank, dtype=np.float64)
    last = ordered.shape[axis] - 1
    below = np.clip(np.floor(rank), 0, last).astype(int)
    above = np.clip(np.ceil(rank), 0, last).astype(int)
    first, second = (np.take_along_axis(ordered, np.expand_dims(at, axis), axis).squeeze(axis) for at in (below, above))
    found = first + (second - first) * (rank - below)
    return np.where((rank >= 0) & (rank <= last), found, np.nan)
