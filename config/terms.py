"""The terms of a rule: everything but its limits. Enforcement, shaping, expiry, schedule and ramp.

This module has them as values and as they are in a file, a store or a request, in YAML or JSON::

    enforcement: observe
    shaping: paced
    expires: 2026-12-01T00:00:00Z                     the rule ends at this instant
    schedule:                                         at other times the rule does not apply, unless
      {days: [mon-fri], hours: 08:00-18:00, time_zone: Europe/Berlin,
       otherwise: {producer_byte_rate: 50MiB}}        it has limits for them
    ramp:                                             from old limits to the rule's own, in equal steps
      {from: {producer_byte_rate: 50MiB}, begins: 2026-11-22T20:00:00Z, over: 2h, steps: 8}

Instants have a zone, ``Z`` or ``+01:00``, and are written with ``Z``. Written terms are read as the same terms.
``proxy.quota.rule_terms`` applies them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.model import Enforcement, IpRule, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE
from kafka_quota_proxy.config.ramp import Ramp
from kafka_quota_proxy.config.schedule import DAY_MINUTES, EVERY_DAY, Schedule, written_days, written_minute
from kafka_quota_proxy.config.term_values import (
    INSTANT_HELP,
    MS_BY_UNIT,
    ZONE_HELP,
    day_numbers,
    enum_member,
    instant_ms,
    known_mapping,
    limit_pairs,
    minutes_of_hours,
    ramp_duration_ms,
    zone_name,
)
from kafka_quota_proxy.config.units import shown

# The keys of terms.
TERMS: Final = ("enforcement", "shaping", "expires", "schedule", "ramp")
# The fields of ``Terms`` with other names than their keys.
_FIELDS: Final[Mapping[str, str]] = {"expires": "expires_ms"}
DEFAULT_STEPS: Final = 10
MAX_STEPS: Final = 1_000
_OF_SCHEDULE: Final = ("days", "hours", "time_zone", "otherwise")
_OF_RAMP: Final = ("from", "begins", "over", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a rule; None: not set. The names are those of ``QuotaRule``."""

    enforcement: Enforcement | None = None
    shaping: Shaping | None = None
    expires_ms: int | None = None  # Unix time
    schedule: Schedule | None = None
    ramp: Ramp | None = None


NO_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsChange:
    """Terms to set, and keys of ``TERMS`` to remove. All others stay."""

    given: Terms = NO_TERMS
    removed: frozenset[str] = frozenset()


def replacement(terms: Terms) -> TermsChange:
    """Return the change that leaves a rule with exactly these terms."""
    return TermsChange(given=terms, removed=frozenset(TERMS) - written_terms(terms).keys())


def changed_terms(terms: Terms, change: TermsChange) -> Terms:
    """Return the terms after a change."""
    removed = {_FIELDS.get(key, key) for key in change.removed}
    values = ((field.name, getattr(change.given, field.name)) for field in fields(Terms))
    new: dict[str, Any] = {name: value for name, value in values if value is not None or name in removed}
    return replace(terms, **new) if new else terms


def terms_of(rule: QuotaRule | IpRule) -> Terms:
    """Return the terms of a rule."""
    enforcement, shaping = (rule.enforcement, rule.shaping) if isinstance(rule, QuotaRule) else (None, None)
    # A fast path: of a hundred thousand rules most have none.
    has_times = rule.expires_ms is not None or rule.schedule is not None or rule.ramp is not None
    if enforcement is None and shaping is None and not has_times:
        return NO_TERMS
    return Terms(
        enforcement=enforcement,
        shaping=shaping,
        expires_ms=rule.expires_ms,
        schedule=rule.schedule,
        ramp=rule.ramp,
    )


def read_terms(given: object) -> Terms:
    """Return the terms of a mapping. ``check_terms`` checks that they fit a rule.

    Raises:
        TermsError: The mapping is not valid.
    """
    values = known_mapping((), given, TERMS)
    return Terms(
        enforcement=enum_member(("enforcement",), values["enforcement"], Enforcement)
        if "enforcement" in values
        else None,
        shaping=enum_member(("shaping",), values["shaping"], Shaping) if "shaping" in values else None,
        expires_ms=parse_expires_ms(values["expires"]) if "expires" in values else None,
        schedule=parse_schedule(values["schedule"]) if "schedule" in values else None,
        ramp=parse_ramp(values["ramp"]) if "ramp" in values else None,
    )


def read_terms_change(given: object) -> TermsChange:
    """Return the change of a mapping, in which None removes a key. None instead of a mapping removes all.

    Raises:
        TermsError: The mapping is not valid.
    """
    if given is None:
        return replacement(NO_TERMS)
    values = known_mapping((), given, TERMS)
    terms = read_terms({key: value for key, value in values.items() if value is not None})
    return TermsChange(given=terms, removed=frozenset(key for key, value in values.items() if value is None))


def check_terms(terms: Terms, *, limits: Collection[str], allowed: Collection[str]) -> None:
    """Check that terms fit a rule.

    Args:
        terms: The terms.
        limits: The rule's keys.
        allowed: The keys that a rule of its entity may have; ``connection_creation_rate`` for an address.

    Raises:
        TermsError: They do not fit.
    """
    for key, _ in terms.ramp.start if terms.ramp else ():
        if key not in limits:
            message = "is not limited by the rule, which is where a ramp leads to; give it a limit, or remove it here"
            raise TermsError(("ramp", "from", key), message)
    for key, _ in (terms.schedule.otherwise or ()) if terms.schedule else ():
        if key not in allowed:
            message = f"is no limit of such an entity; those are {', '.join(allowed)}"
            raise TermsError(("schedule", "otherwise", key), message)
    if CONNECTION_CREATION_RATE in allowed:
        for name in ("enforcement", "shaping"):
            if getattr(terms, name) is not None:
                raise TermsError((name,), "is not for addresses; the listener's holds for them")


def check_kept(terms: Terms) -> None:
    """Check that terms, once written, are read as the same. Raises TermsError: they are not."""
    if terms == NO_TERMS:
        return
    written = written_terms(terms)
    try:
        is_same = read_terms(written) == terms
    except TermsError as error:
        raise TermsError(error.path, f"could not be read again as they are written: {error.message}") from None
    if not is_same:
        raise TermsError((), f"could not be read again as they are written: {shown(written)}")


def parse_expires_ms(value: object) -> int:
    """Return the instant at which a rule expires; Unix time. Raises TermsError: not an instant."""
    return instant_ms(("expires",), value)


def parse_instant_ms(text: str) -> int:
    """Return an instant that is not part of terms; Unix time. Raises TermsError: not an instant."""
    return instant_ms((), text)


def parse_schedule(value: object) -> Schedule:
    """Return a schedule. Raises TermsError: not a schedule."""
    at = ("schedule",)
    given = known_mapping(at, value, _OF_SCHEDULE)
    if "time_zone" not in given:
        raise TermsError((*at, "time_zone"), f"is missing; write {ZONE_HELP}")
    if "days" not in given and "hours" not in given:
        raise TermsError(at, "says no time; give days, hours or both")
    begin, end = minutes_of_hours((*at, "hours"), given["hours"]) if "hours" in given else (0, DAY_MINUTES)
    return Schedule(
        time_zone=zone_name((*at, "time_zone"), given["time_zone"]),
        days=day_numbers((*at, "days"), given["days"]) if "days" in given else EVERY_DAY,
        begin_minute=begin,
        end_minute=end,
        otherwise=limit_pairs((*at, "otherwise"), given["otherwise"]) if "otherwise" in given else None,
    )


def parse_ramp(value: object) -> Ramp:
    """Return a ramp. Raises TermsError: not a ramp."""
    at = ("ramp",)
    given = known_mapping(at, value, _OF_RAMP)
    for key, example in (
        ("from", "the limits that it begins with, such as {producer_byte_rate: 50MiB}"),
        ("begins", INSTANT_HELP),
        ("over", "how long it takes, such as 2h"),
    ):
        if key not in given:
            raise TermsError((*at, key), f"is missing; write {example}")
    steps = given.get("steps", DEFAULT_STEPS)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise TermsError((*at, "steps"), f"must be a whole number from 1 to {MAX_STEPS}")
    over_ms = ramp_duration_ms((*at, "over"), given["over"])
    if over_ms < steps:
        raise TermsError((*at, "over"), "must be above 0, a millisecond for each step at least; write one such as 2h")
    return Ramp(
        start=limit_pairs((*at, "from"), given["from"]),
        begins_ms=instant_ms((*at, "begins"), given["begins"]),
        over_ms=over_ms,
        steps=steps,
    )


def written_terms(terms: Terms) -> dict[str, object]:
    """Return the mapping for ``read_terms``, with text, numbers, lists and mappings only."""
    written: dict[str, object] = {}
    if terms.enforcement is not None:
        written["enforcement"] = terms.enforcement.value
    if terms.shaping is not None:
        written["shaping"] = terms.shaping.value
    if terms.expires_ms is not None:
        written["expires"] = written_instant(terms.expires_ms)
    if terms.schedule is not None:
        written["schedule"] = _written_schedule(terms.schedule)
    if terms.ramp is not None:
        written["ramp"] = _written_ramp(terms.ramp)
    return written


def written_terms_change(change: TermsChange) -> dict[str, object]:
    """Return the mapping for ``read_terms_change``."""
    return written_terms(change.given) | {key: None for key in TERMS if key in change.removed}


def written_instant(unix_ms: int) -> str:
    """Return an instant as the file has it, in UTC."""
    seconds, ms = divmod(unix_ms, 1_000)
    text = datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{ms:03}Z" if ms else f"{text}Z"


def _written_schedule(schedule: Schedule) -> dict[str, object]:
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


def _written_ramp(ramp: Ramp) -> dict[str, object]:
    return {
        "from": dict(ramp.start),
        "begins": written_instant(ramp.begins_ms),
        "over": written_duration(ramp.over_ms),
        "steps": ramp.steps,
    }


def written_duration(duration_ms: int) -> str:
    """Return a duration above 0 as the file has it, in the largest unit that keeps it whole."""
    unit, factor = next((unit, factor) for unit, factor in MS_BY_UNIT.items() if duration_ms % factor == 0)
    return f"{duration_ms // factor}{unit}"
