"""Converts instants, schedules and ramps from the form in which operators write them, and back to that form.

A schedule says at what times a quota rule applies. A ramp changes the limits of a rule gradually. A function that finds
a value invalid raises a ``TermsError``, with the path from this value to the one at fault.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, parse_limit
from kafka_quota_proxy.config.schedule import (
    DAY_MINUTES,
    EVERY_DAY,
    Ramp,
    Schedule,
    days_of,
    written_days,
    written_minute,
    zone,
)
from kafka_quota_proxy.config.units import parse_duration_ms, shown

MAX_RAMP_MS: Final = 366 * 86_400_000
_DEFAULT_STEPS: Final = 10
_MAX_STEPS: Final = 1_000
_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?) ?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_INSTANT_HELP: Final = "an instant with its zone, such as 2030-01-31T00:00:00Z or 2030-01-31T01:00:00+01:00"
_EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)
_MS: Final = timedelta(milliseconds=1)
# The first and the last valid year. A day before or after these years is still an instant that Python can represent in
# any time zone.
_FIRST_YEAR: Final = 1971
_LAST_YEAR: Final = 9998
_BEGIN_MS: Final = (datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_END_MS: Final = (datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*(?:([01]\d|2[0-3]):([0-5]\d)|(24):(00))", re.ASCII)
_HOURS_HELP: Final = '"08:00-18:00", or "22:00-06:00" over midnight'
_DAYS_HELP: Final = "days such as [mon-fri] or [mon, sat-sun]"
_ZONE_HELP: Final = "the zone whose clocks count, such as Europe/Berlin or UTC"
_RAMP_HELP: Final = {
    "from": "the limits that it begins with, such as {producer_byte_rate: 50MiB}",
    "begins": _INSTANT_HELP,
    "over": "how long it takes, such as 2h",
}
_MS_BY_UNIT: Final[Mapping[str, int]] = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_E = TypeVar("_E", bound=Enum)


def read_mapping(
    value: object, readers: Mapping[str, Callable[[object], Any]], required: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Read each value of a mapping with the reader of its key. ``required`` has advice for each key that is needed.

    A reader raises ValueError. Raises TermsError if ``value`` is no such mapping or a value in it is not valid.
    """
    if not isinstance(value, dict):
        raise TermsError((), f"must be a mapping of {', '.join(readers)}, not {shown(value)}")
    for key, advice in (required or {}).items():
        if key not in value:
            raise TermsError((key,), f"is missing; write {advice}")
    found = {}
    for key, each in value.items():
        if key not in readers:
            raise TermsError((str(key),), f"unknown key; known here: {', '.join(readers)}")
        try:
            found[key] = readers[key](each)
        except TermsError as error:
            raise TermsError((key, *error.path), error.message) from None
        except ValueError as error:
            raise TermsError((key,), str(error)) from None
    return found


def parse_member(value: object, choices: type[_E]) -> _E:
    """Return the member of the Enum ``choices`` whose value is ``value``. Raises TermsError if there is none."""
    names = [str(choice.value) for choice in choices]
    if not isinstance(value, str) or value not in names:
        raise TermsError((), f"must be {', '.join(names[:-1])} or {names[-1]}, not {shown(value)}")
    return choices(value)


def parse_instant_ms(value: object) -> int:
    """Return the Unix time in ms of an instant such as ``2026-12-01T00:00:00Z``.

    Raises TermsError if ``value`` is not an instant with a time zone.
    """
    text = _text(value, _INSTANT_HELP)
    match = _INSTANT.fullmatch(text)
    try:
        instant = datetime.fromisoformat("{}T{}{}".format(*match.groups())) if match else None
    except ValueError:
        instant = None
    if instant is None:
        raise TermsError((), f"{shown(text)} is not {_INSTANT_HELP}")
    # The year is checked in UTC, in which instants are written.
    unix_ms = (instant - _EPOCH) // _MS
    if not _BEGIN_MS <= unix_ms < _END_MS:
        raise TermsError((), f"must be in a year from {_FIRST_YEAR} to {_LAST_YEAR}, in UTC")
    return unix_ms


def parse_schedule(value: object) -> Schedule:
    """Return the schedule that a mapping describes. Raises TermsError if the mapping is not valid."""
    readers = {"days": _days, "hours": _minutes, "time_zone": _zone, "otherwise": _limits}
    given = read_mapping(value, readers, {"time_zone": _ZONE_HELP})
    if given.keys().isdisjoint(("days", "hours")):
        raise TermsError((), "has no time; give days, hours or both")
    begin, end = given.pop("hours", (0, DAY_MINUTES))
    return Schedule(**given, begin_minute=begin, end_minute=end)


def parse_ramp(value: object) -> Ramp:
    """Return the ramp that a mapping describes. Raises TermsError if the mapping is not valid."""
    readers = {"from": _limits, "begins": parse_instant_ms, "over": _ramp_duration_ms, "steps": _steps}
    given = read_mapping(value, readers, _RAMP_HELP)
    steps = given.get("steps", _DEFAULT_STEPS)
    if given["over"] < steps:
        raise TermsError(("over",), "must be at least a millisecond for each step; write one such as 2h")
    return Ramp(start=given["from"], begins_ms=given["begins"], over_ms=given["over"], steps=steps)


def written_instant(unix_ms: int) -> str:
    """Format a Unix time in milliseconds as an instant in UTC, such as ``2026-12-01T00:00:00Z``."""
    seconds, ms = divmod(unix_ms, 1_000)
    text = datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{ms:03}Z" if ms else f"{text}Z"


def written_duration(duration_ms: int) -> str:
    """Format a duration above 0 in the largest unit that gives a whole number, such as ``2h``."""
    unit, factor = next((unit, factor) for unit, factor in _MS_BY_UNIT.items() if duration_ms % factor == 0)
    return f"{duration_ms // factor}{unit}"


def written_schedule(schedule: Schedule) -> dict[str, object]:
    """Convert a schedule to a mapping from which ``parse_schedule`` reads the same schedule."""
    is_whole_day = (schedule.begin_minute, schedule.end_minute) == (0, DAY_MINUTES)
    written: dict[str, object] = {}
    if schedule.days != EVERY_DAY or is_whole_day:
        written["days"] = written_days(schedule.days)
    if not is_whole_day:
        written["hours"] = f"{written_minute(schedule.begin_minute)}-{written_minute(schedule.end_minute)}"
    written["time_zone"] = schedule.time_zone
    if schedule.otherwise is not None:
        written["otherwise"] = dict(schedule.otherwise)
    return written


def written_ramp(ramp: Ramp) -> dict[str, object]:
    """Convert a ramp to a mapping from which ``parse_ramp`` reads the same ramp."""
    begins, over = written_instant(ramp.begins_ms), written_duration(ramp.over_ms)
    return {"from": dict(ramp.start), "begins": begins, "over": over, "steps": ramp.steps}


def _text(value: object, help_text: str) -> str:
    if not isinstance(value, str):
        raise TermsError((), "has no value; write " + help_text if value is None else f"must be {help_text}")
    return value


def _zone(value: object) -> str:
    name = _text(value, _ZONE_HELP)
    try:
        zone(name)
    except ValueError:
        raise TermsError((), f"{shown(name)} is not a known time zone; write {_ZONE_HELP}") from None
    return name


def _minutes(value: object) -> tuple[int, int]:
    """Read a range of hours such as ``08:00-18:00``. Return its start and its end, in minutes after midnight."""
    match = _HOURS.fullmatch(_text(value, _HOURS_HELP).strip())
    if match is None:
        raise TermsError((), f"{shown(value)} is not a range of hours; write {_HOURS_HELP}")
    begin = int(match[1]) * 60 + int(match[2])
    end = int(match[3] or match[5]) * 60 + int(match[4] or match[6])
    if begin == end:
        raise TermsError((), "hours end when they begin; remove hours for whole days")
    return begin, end


def _days(value: object) -> frozenset[int]:
    elements = [value] if isinstance(value, str) else value
    if not isinstance(elements, list) or not elements:
        raise TermsError((), f"must be {_DAYS_HELP}")
    try:
        return frozenset[int]().union(*(days_of(_text(element, _DAYS_HELP)) for element in elements))
    except TermsError:
        raise
    except ValueError:
        raise TermsError((), f"{shown(value)} is not a list of days; write {_DAYS_HELP}") from None


def _limits(value: object) -> tuple[tuple[str, float], ...]:
    """Return the limits in a mapping as pairs of key and value, in the order of ``QuotaKind``."""
    given = read_mapping(value, {key: partial(parse_limit, key) for key in KIND_OF_KEY})
    if not given:
        raise TermsError((), "limits nothing; give a limit such as producer_byte_rate, or remove this")
    return tuple((key, given[key]) for key in KIND_OF_KEY if key in given)


def _steps(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_STEPS:
        raise TermsError((), f"must be a whole number from 1 to {_MAX_STEPS}")
    return value


def _ramp_duration_ms(value: object) -> int:
    duration_ms = parse_duration_ms(_text(value, "a duration such as 2h"))
    if duration_ms > MAX_RAMP_MS:
        raise TermsError((), f"must be at most {MAX_RAMP_MS // 3_600_000}h (a year)")
    return duration_ms
