"""Computes schedules and ramps of rules.

A schedule says on which days and at which hours a rule applies, in the local time of a time zone. It is open whenever
the local time is on one of its days and within its hours. This also holds when clocks change:

* If the clock jumps from 02:00 to 03:00, a schedule that begins or ends at 02:30 begins or ends at 03:00.
* If the clock goes back from 03:00 to 02:00, this hour occurs twice. A schedule that begins at 02:30 is open in the
  second half of both hours.

Time zones are read from the system's database, or from the package tzdata if the system has no database.

A ramp changes the limits of a rule from old to new ones in several steps. The steps are at fixed times, so that a
restart of the proxy does not change them.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY: Final = frozenset(range(7))
DAY_MINUTES: Final = 24 * 60

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = DAY_MINUTES * _MINUTE_MS
_EPOCH_WEEKDAY: Final = 3  # 1970-01-01 was a Thursday
_MS: Final = timedelta(milliseconds=1)
# Each day of the week occurs within one week, or within two if the time zone skips a day, as Samoa did in 2011.
_SEARCHED_MS: Final = 15 * _DAY_MS
# Names in the time zone database that are refused: zones with leap seconds, and the setting of this machine.
_NO_ZONE: Final = re.compile(r"(?:right|posix)/.*|localtime|posixrules|Factory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The days and hours at which the limits of a rule apply.

    If ``end_minute`` is not after ``begin_minute``, the hours go past midnight, and belong to the day on which they
    begin. ``otherwise`` contains the limits for all other times, as pairs of key and limit. If ``otherwise`` is None,
    the rule does not apply at other times.
    """

    time_zone: str
    days: frozenset[int] = EVERY_DAY  # 0 is Monday
    begin_minute: int = 0  # of the day, below DAY_MINUTES
    end_minute: int = DAY_MINUTES  # exclusive
    otherwise: tuple[tuple[str, float], ...] | None = None


@lru_cache(maxsize=1_000)
def zone(name: str) -> ZoneInfo:
    """Return the time zone with this name. Raises ValueError if there is no such time zone."""
    if _NO_ZONE.fullmatch(name):
        raise ValueError(name)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # OSError: the name of a directory
        raise ValueError(name) from error


def is_open(schedule: Schedule, *, now_ms: int) -> bool:
    """Return whether the Unix time ``now_ms`` is on one of the schedule's days and within its hours."""
    return _shows(schedule, now_ms + _offset_ms(zone(schedule.time_zone), now_ms))


def next_change_ms(schedule: Schedule, *, now_ms: int) -> int | None:
    """Return the Unix time at which the schedule opens or closes next, or None if it never does."""
    where = zone(schedule.time_zone)
    offset_ms = _offset_ms(where, now_ms)
    was_open = _shows(schedule, now_ms + offset_ms)
    at_ms = now_ms
    while at_ms < now_ms + _SEARCHED_MS:
        next_ms = _next_edge_ms(schedule, at_ms + offset_ms) - offset_ms
        if _offset_ms(where, next_ms) != offset_ms:
            next_ms = _jump_ms(where, at_ms, next_ms)
            offset_ms = _offset_ms(where, next_ms)
        at_ms = next_ms
        if _shows(schedule, at_ms + offset_ms) != was_open:
            return at_ms
    return None


def _shows(schedule: Schedule, wall_ms: int) -> bool:
    """Return whether the schedule is open at a local time, in milliseconds since 1970-01-01 00:00 local time."""
    day, of_day_ms = divmod(wall_ms, _DAY_MS)
    weekday = (day + _EPOCH_WEEKDAY) % 7
    begin_ms, end_ms = schedule.begin_minute * _MINUTE_MS, schedule.end_minute * _MINUTE_MS
    if begin_ms < end_ms:
        return begin_ms <= of_day_ms < end_ms and weekday in schedule.days
    return (of_day_ms >= begin_ms and weekday in schedule.days) or (
        of_day_ms < end_ms and (weekday - 1) % 7 in schedule.days
    )


def _next_edge_ms(schedule: Schedule, wall_ms: int) -> int:
    """Return the first local time after ``wall_ms`` at which a day begins, or the schedule's hours begin or end.

    Local times are in milliseconds since 1970-01-01 00:00 local time. Clock changes are ignored.
    """
    midnight_ms = wall_ms - wall_ms % _DAY_MS
    edges = (schedule.begin_minute * _MINUTE_MS, schedule.end_minute * _MINUTE_MS, _DAY_MS)
    return midnight_ms + min(edge for edge in edges if midnight_ms + edge > wall_ms)


def _offset_ms(where: ZoneInfo, at_ms: int) -> int:
    offset = datetime.fromtimestamp(at_ms // 1_000, tz=where).utcoffset()
    return 0 if offset is None else offset // _MS


def _jump_ms(where: ZoneInfo, before_ms: int, after_ms: int) -> int:
    """Return the instant at which the UTC offset changes, between two instants with different offsets."""
    before, after = before_ms // 1_000, -(-after_ms // 1_000)
    offset_ms = _offset_ms(where, before_ms)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset_ms(where, middle * 1_000) == offset_ms:
            before = middle
        else:
            after = middle
    return after * 1_000


def days_of(text: str) -> frozenset[int]:
    """Return the days in ``mon``, ``mon-fri`` or ``sat-mon``, where 0 is Monday. Raises ValueError for other texts."""
    first, dash, last = text.strip().lower().partition("-")
    begin = DAYS.index(first.strip())
    end = DAYS.index(last.strip()) if dash else begin
    return frozenset(day % 7 for day in range(begin, end + 1 if end >= begin else end + 8))


def written_days(days: frozenset[int]) -> list[str]:
    """Return days of the week as the configuration file lists them, with ranges such as ``mon-fri``."""
    runs: list[list[int]] = []
    for day in sorted(days):
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return [DAYS[run[0]] if len(run) == 1 else f"{DAYS[run[0]]}-{DAYS[run[-1]]}" for run in runs]


def written_minute(minute: int) -> str:
    """Return a minute of the day as HH:MM."""
    return f"{minute // 60:02}:{minute % 60:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A gradual change from old limits to the limits of a rule, in ``steps`` equal steps over the time ``over_ms``.

    Step i of n applies from ``begins_ms`` + i * ``over_ms`` / n on. Until step 1, the old limits in ``start`` apply. A
    limit of the rule for which ``start`` has no old limit applies at once.
    """

    start: tuple[tuple[str, float], ...]
    begins_ms: int  # Unix time
    over_ms: int  # above 0
    steps: int  # above 0


def step_of(ramp: Ramp, *, now_ms: int) -> int:
    """Return the number of the step that applies at ``now_ms``, from 0 (old limits) to ``ramp.steps`` (new limits)."""
    return min(max((now_ms - ramp.begins_ms) * ramp.steps // ramp.over_ms, 0), ramp.steps)


def step_ms(ramp: Ramp, step: int) -> int:
    """Return the Unix time at which a step of the ramp begins, rounded up to whole milliseconds."""
    return ramp.begins_ms - (-step * ramp.over_ms // ramp.steps)


def next_step_ms(ramp: Ramp, *, now_ms: int) -> int | None:
    """Return the Unix time after ``now_ms`` at which the limits of a ramp next change, or None after its end."""
    step = step_of(ramp, now_ms=now_ms)
    return None if step == ramp.steps else step_ms(ramp, step + 1)


def limit_at(ramp: Ramp, step: int, *, old: float, new: float) -> float:
    """Return the limit at a step of a ramp, which is on a straight line from ``old`` to ``new``."""
    return new if step >= ramp.steps else old + (new - old) * step / ramp.steps
