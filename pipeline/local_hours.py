"""Adds up usage by the hours of the day in a time zone. An hour without a record counts as 0.

Usage comes in quarters of an hour, since the offsets of all time zones are multiples of that. Daylight saving time is
included: an hour that occurs twice in a night counts twice, and one that is left out does not count on that day. At
both ends of a log, only the part of an hour that the log covers counts. This module does no I/O and needs no Spark.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime, tzinfo
from typing import Final, NamedTuple

QUARTER_MS: Final = 900_000
_HOUR_MS: Final = 3_600_000


class Quarter(NamedTuple):
    """A quarter of an hour that a log covers at least in part, with its local day and hour."""

    start_ms: int
    covered_ms: int
    day: date
    hour: int
    is_repeated: bool  # in the hour that occurs again at the end of daylight saving time


class DayHour(NamedTuple):
    """The highest and the mean rate of all hours of a log that have the same hour of the day."""

    peak: float
    mean: float


def quarters(from_ms: int, until_ms: int, zone: tzinfo) -> list[Quarter]:
    """Return the quarters of an hour between two times, in order."""
    found = []
    for start_ms in range(from_ms - from_ms % QUARTER_MS, until_ms, QUARTER_MS):
        local = datetime.fromtimestamp(start_ms / 1_000, zone)
        covered_ms = min(start_ms + QUARTER_MS, until_ms) - max(start_ms, from_ms)
        found.append(Quarter(start_ms, covered_ms, local.date(), local.hour, bool(local.fold)))
    return found


def hours_of_day(amounts: Mapping[int, int], covered: Iterable[Quarter]) -> dict[int, DayHour]:
    """Return the highest and the mean rate in each hour of the day, for hours in the log.

    An hour that the log covers only in part cannot have a higher rate than its amount in a whole hour.
    """
    sums, times_ms = Counter[tuple[int, date, bool]](), Counter[int]()
    for one in covered:
        sums[one.hour, one.day, one.is_repeated] += amounts.get(one.start_ms, 0)
        times_ms[one.hour] += one.covered_ms
    whole, peaks = Counter[int](), dict[int, float]()
    for (hour, _, _), amount in sums.items():
        whole[hour] += amount
        peaks[hour] = max(peaks.get(hour, 0.0), amount * 1_000 / _HOUR_MS)
    return {hour: DayHour(peaks[hour], whole[hour] * 1_000 / time_ms) for hour, time_ms in times_ms.items()}
