"""The values of a rule's terms as an operator writes them: instants, hours, days, zones, durations, limits.

Each function raises ``TermsError`` with the path to the value that is at fault.
"""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeVar

from kafka_quota_proxy.config.errors import TermsError, UnitError
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, parse_limit
from kafka_quota_proxy.config.schedule import (
    days_of,
    zone,
)
from kafka_quota_proxy.config.units import parse_duration_ms, shown

MAX_RAMP_MS: Final = 366 * 86_400_000
_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?) ?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
INSTANT_HELP: Final = "an instant with its zone, such as 2026-12-01T00:00:00Z or 2026-12-01T01:00:00+01:00"
_EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)
_MS: Final = timedelta(milliseconds=1)
# With these, a day earlier or later in any zone is a valid instant, too.
_FIRST_YEAR: Final = 1971
_LAST_YEAR: Final = 9998
_BEGIN_MS: Final = (datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_END_MS: Final = (datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*(?:([01]\d|2[0-3]):([0-5]\d)|(24):(00))", re.ASCII)
_HOURS_HELP: Final = '"08:00-18:00", or "22:00-06:00" over midnight'
_DAYS_HELP: Final = "days such as [mon-fri] or [mon, sat-sun]"
ZONE_HELP: Final = "the zone whose clocks count, such as Europe/Berlin or UTC"
MS_BY_UNIT: Final[Mapping[str, int]] = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_E = TypeVar("_E", bound=Enum)
# Keys and their limits.
Limits = tuple[tuple[str, float], ...]


def known_mapping(at: tuple[str, ...], value: object, known: Collection[str]) -> Mapping[str, object]:
    """Return a mapping that has known keys only. ``at`` is the path to the value, here and below."""
    if not isinstance(value, dict):
        raise TermsError(at, f"must be a mapping of {', '.join(known)}, not {shown(value)}")
    unknown = next((key for key in value if key not in known), None)
    if unknown is not None:
        raise TermsError((*at, str(unknown)), f"unknown key; known here: {', '.join(known)}")
    return value


def enum_member(at: tuple[str, ...], value: object, choices: type[_E]) -> _E:
    """Return the member of an Enum with this value."""
    names = [str(choice.value) for choice in choices]
    if not isinstance(value, str) or value not in names:
        raise TermsError(at, f"must be {', '.join(names[:-1])} or {names[-1]}, not {shown(value)}")
    return choices(value)


def _text(at: tuple[str, ...], value: object, help_text: str) -> str:
    if not isinstance(value, str):
        raise TermsError(at, "has no value; write " + help_text if value is None else f"must be {help_text}")
    return value


def instant_ms(at: tuple[str, ...], value: object) -> int:
    """Return an instant; Unix time."""
    text = _text(at, value, INSTANT_HELP)
    match = _INSTANT.fullmatch(text)
    try:
        instant = datetime.fromisoformat("{}T{}{}".format(*match.groups())) if match else None
    except ValueError:
        instant = None
    if instant is None:
        raise TermsError(at, f"{shown(text)} is not {INSTANT_HELP}")
    # The year is checked in UTC, in which instants are written.
    unix_ms = (instant - _EPOCH) // _MS
    if not _BEGIN_MS <= unix_ms < _END_MS:
        raise TermsError(at, f"must be of a year from {_FIRST_YEAR} to {_LAST_YEAR}, in UTC")
    return unix_ms


def zone_name(at: tuple[str, ...], value: object) -> str:
    """Return the name of a time zone that this machine knows."""
    name = _text(at, value, ZONE_HELP)
    try:
        zone(name)
    except ValueError:
        raise TermsError(at, f"{shown(name)} is no time zone that is known here; write {ZONE_HELP}") from None
    return name


def minutes_of_hours(at: tuple[str, ...], value: object) -> tuple[int, int]:
    """Return the first minute of the day within ``hours``, and the first after them."""
    match = _HOURS.fullmatch(_text(at, value, _HOURS_HELP).strip())
    if match is None:
        raise TermsError(at, f"{shown(value)} are no hours; write {_HOURS_HELP}")
    begin = int(match[1]) * 60 + int(match[2])
    end = int(match[3] or match[5]) * 60 + int(match[4] or match[6])
    if begin == end:
        raise TermsError(at, "end when they begin; leave hours out for whole days")
    return begin, end


def day_numbers(at: tuple[str, ...], value: object) -> frozenset[int]:
    """Return the days of the week; Monday is 0."""
    elements = [value] if isinstance(value, str) else value
    if not isinstance(elements, list) or not elements:
        raise TermsError(at, f"must be {_DAYS_HELP}")
    found: frozenset[int] = frozenset()
    for element in elements:
        try:
            found |= days_of(_text(at, element, _DAYS_HELP))
        except TermsError:
            raise
        except ValueError:
            raise TermsError(at, f"{shown(element)} names no days; write {_DAYS_HELP}") from None
    return found


def limit_pairs(at: tuple[str, ...], value: object) -> Limits:
    """Return limits by key, in the order of the table of kinds."""
    given = known_mapping(at, value, KIND_OF_KEY)
    if not given:
        raise TermsError(at, "limits nothing; give a limit such as producer_byte_rate, or leave this out")
    return tuple((key, _limit((*at, key), key, given[key])) for key in KIND_OF_KEY if key in given)


def _limit(at: tuple[str, ...], key: str, value: object) -> float:
    try:
        return parse_limit(key, value)
    except UnitError as error:
        raise TermsError(at, str(error)) from None


def ramp_duration_ms(at: tuple[str, ...], value: object) -> int:
    """Return the duration of a ramp, a year at the most."""
    try:
        duration_ms = parse_duration_ms(_text(at, value, "a duration such as 2h"))
    except UnitError as error:
        raise TermsError(at, str(error)) from None
    if duration_ms > MAX_RAMP_MS:
        raise TermsError(at, f"must be {MAX_RAMP_MS // 3_600_000}h, a year, at the most")
    return duration_ms
