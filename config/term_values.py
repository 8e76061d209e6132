"""Converts instants, schedules and ramps from the form in which operators write them, and back to that form.

A schedule says at what times a quota rule applies. A ramp changes the limits of a rule gradually. In all functions,
``at`` is the path of keys from the rule to the value, such as ``("ramp", "begins")``. A function that finds a value
invalid raises a ``TermsError`` with the path of that value.
"""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeVar

from kafka_quota_proxy.config.errors import TermsError, UnitError
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
_At = tuple[str, ...]
_E = TypeVar("_E", bound=Enum)


def known_mapping(at: _At, value: object, known: Collection[str]) -> Mapping[str, object]:
    """Return ``value`` if it is a mapping that has only keys in ``known``. Otherwise raise TermsError."""
    if not isinstance(value, dict):
        raise TermsError(at, f"must be a mapping of {', '.join(known)}, not {shown(value)}")
    unknown = next((key for key in value if key not in known), None)
    if unknown is not None:
        raise TermsError((*at, str(unknown)), f"unknown key; known here: {', '.join(known)}")
    return value


def parse_member(at: _At, value: object, choices: type[_E]) -> _E:
    """Return the member of the Enum ``choices`` whose value is ``value``. Raises TermsError if there is none."""
    names = [str(choice.value) for choice in choices]
    if not isinstance(value, str) or value not in names:
        raise TermsError(at, f"must be {', '.join(names[:-1])} or {names[-1]}, not {shown(value)}")
    return choices(value)


def parse_instant_ms(value: object, at: _At = ()) -> int:
    """Return the Unix time in ms of an instant such as ``2026-12-01T00:00:00Z``.

    Raises TermsError if ``value`` is not an instant with a time zone.
    """
    text = _text(at, value, _INSTANT_HELP)
    match = _INSTANT.fullmatch(text)
    try:
        instant = datetime.fromisoformat("{}T{}{}".format(*match.groups())) if match else None
    except ValueError:
        instant = None
    if instant is None:
        raise TermsError(at, f"{shown(text)} is not {_INSTANT_HELP}")
    # The year is checked in UTC, in which instants are written.
    unix_ms = (instant - _EPOCH) // _MS
    if not _BEGIN_MS <= unix_ms < _END_MS:
        raise TermsError(at, f"must be in a year from {_FIRST_YEAR} to {_LAST_YEAR}, in UTC")
    return unix_ms


def parse_schedule(value: object) -> Schedule:
    """Return the schedule that a mapping describes. Raises TermsError if the mapping is not valid."""
    at = ("schedule",)
    given = known_mapping(at, value, ("days", "hours", "time_zone", "otherwise"))
    if "time_zone" not in given:
        raise TermsError((*at, "time_zone"), f"is missing; write {_ZONE_HELP}")
    if "days" not in given and "hours" not in given:
        raise TermsError(at, "has no time; give days, hours or both")
    begin, end = _minutes((*at, "hours"), given["hours"]) if "hours" in given else (0, DAY_MINUTES)
    return Schedule(
        time_zone=_zone((*at, "time_zone"), given["time_zone"]),
        days=_days((*at, "days"), given["days"]) if "days" in given else EVERY_DAY,
        begin_minute=begin,
        end_minute=end,
        otherwise=_limits((*at, "otherwise"), given["otherwise"]) if "otherwise" in given else None,
    )


def parse_ramp(value: object) -> Ramp:
    """Return the ramp that a mapping describes. Raises TermsError if the mapping is not valid."""
    at = ("ramp",)
    given = known_mapping(at, value, ("from", "begins", "over", "steps"))
    for key, example in _RAMP_HELP.items():
        if key not in given:
            raise TermsError((*at, key), f"is missing; write {example}")
    steps = given.get("steps", _DEFAULT_STEPS)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= _MAX_STEPS:
        raise TermsError((*at, "steps"), f"must be a whole number from 1 to {_MAX_STEPS}")
    over_ms = _ramp_duration_ms((*at, "over"), given["over"])
    if over_ms < steps:
        raise TermsError((*at, "over"), "must be at least a millisecond for each step; write one such as 2h")
    return Ramp(
        start=_limits((*at, "from"), given["from"]),
        begins_ms=parse_instant_ms(given["begins"], (*at, "begins")),
        over_ms=over_ms,
        steps=steps,
    )


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


def _text(at: _At, value: object, help_text: str) -> str:
    if not isinstance(value, str):
        raise TermsError(at, "has no value; write " + help_text if value is None else f"must be {help_text}")
    return value


def _zone(at: _At, value: object) -> str:
    name = _text(at, value, _ZONE_HELP)
    try:
        zone(name)
    except ValueError:
        raise TermsError(at, f"{shown(name)} is not a known time zone; write {_ZONE_HELP}") from None
    return name


def _minutes(at: _At, value: object) -> tuple[int, int]:
    """Read a range of hours such as ``08:00-18:00``. Return its start and its end, in minutes after midnight."""
    match = _HOURS.fullmatch(_text(at, value, _HOURS_HELP).strip())
    if match is None:
        raise TermsError(at, f"{shown(value)} is not a range of hours; write {_HOURS_HELP}")
    begin = int(match[1]) * 60 + int(match[2])
    end = int(match[3] or match[5]) * 60 + int(match[4] or match[6])
    if begin == end:
        raise TermsError(at, "hours end when they begin; remove hours for whole days")
    return begin, end


def _days(at: _At, value: object) -> frozenset[int]:
    elements = [value] if isinstance(value, str) else value
    if not isinstance(elements, list) or not elements:
        raise TermsError(at, f"must be {_DAYS_HELP}")
    texts = [_text(at, element, _DAYS_HELP) for element in elements]
    found: frozenset[int] = frozenset()
    for text in texts:
        try:
            found |= days_of(text)
        except ValueError:
            raise TermsError(at, f"{shown(text)} is not a list of days; write {_DAYS_HELP}") from None
    return found


def _limits(at: _At, value: object) -> tuple[tuple[str, float], ...]:
    """Return the limits in a mapping as pairs of key and value, in the order of ``QuotaKind``."""
    given = known_mapping(at, value, KIND_OF_KEY)
    if not given:
        raise TermsError(at, "limits nothing; give a limit such as producer_byte_rate, or remove this")
    return tuple((key, _limit((*at, key), key, given[key])) for key in KIND_OF_KEY if key in given)


def _limit(at: _At, key: str, value: object) -> float:
    try:
        return parse_limit(key, value)
    except UnitError as error:
        raise TermsError(at, str(error)) from None


def _ramp_duration_ms(at: _At, value: object) -> int:
    try:
        duration_ms = parse_duration_ms(_text(at, value, "a duration such as 2h"))
    except UnitError as error:
        raise TermsError(at, str(error)) from None
    if duration_ms > MAX_RAMP_MS:
        raise TermsError(at, f"must be at most {MAX_RAMP_MS // 3_600_000}h (a year)")
    return duration_ms
