"""Reads and writes the terms of a quota rule, which say when and how the limits of the rule apply.

The terms are enforcement, shaping, expiry, schedule and ramp. They are written as a mapping, in YAML in the
configuration file, and in JSON in the store and in requests to the admin port::

    enforcement: observe
    shaping: paced
    expires: 2026-12-01T00:00:00Z                         the rule ends at this instant
    schedule:                                             at other times the rule does not apply
      {days: [mon-fri], hours: 08:00-18:00, time_zone: Europe/Berlin,
       otherwise: {producer_byte_rate: 50MiB}}            or, if given, has these limits
    ramp:                                                 from old limits to the rule's own, in equal steps
      {from: {producer_byte_rate: 50MiB}, begins: 2026-11-22T20:00:00Z, over: 2h, steps: 8}

An instant needs a time zone, which is ``Z`` or an offset such as ``+01:00``. This module always writes ``Z``. Terms
that are written and read again are the same. ``proxy.quota.rule_terms`` applies terms to rules.
"""

from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.model import Enforcement, IpRule, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE
from kafka_quota_proxy.config.schedule import Ramp, Schedule
from kafka_quota_proxy.config.term_values import (
    parse_instant_ms,
    parse_member,
    parse_ramp,
    parse_schedule,
    read_mapping,
    written_instant,
    written_ramp,
    written_schedule,
)


def _value_of(member: Enum) -> object:
    return member.value


class _Term(NamedTuple):
    field: str  # the name of its field in ``Terms``
    read: Callable[[object], Any]
    write: Callable[[Any], object]


_TERMS: Final = {
    "enforcement": _Term("enforcement", partial(parse_member, choices=Enforcement), _value_of),
    "shaping": _Term("shaping", partial(parse_member, choices=Shaping), _value_of),
    "expires": _Term("expires_ms", parse_instant_ms, written_instant),
    "schedule": _Term("schedule", parse_schedule, written_schedule),
    "ramp": _Term("ramp", parse_ramp, written_ramp),
}
# The keys that a mapping of terms may have.
TERMS: Final = tuple(_TERMS)


class Terms(NamedTuple):
    """The terms of a rule. The fields have the same names as in ``QuotaRule``. A term that is None is not set."""

    enforcement: Enforcement | None = None
    shaping: Shaping | None = None
    expires_ms: int | None = None  # Unix time
    schedule: Schedule | None = None
    ramp: Ramp | None = None


NO_TERMS: Final = Terms()


class TermsChange(NamedTuple):
    """A requested change to the terms of a rule.

    The terms in ``given`` are set, and those whose keys are in ``removed`` are removed.
    """

    given: Terms = NO_TERMS
    removed: frozenset[str] = frozenset()


def replacement(terms: Terms) -> TermsChange:
    """Return a change that replaces all terms of a quota rule (expiry, schedule, ramp, ...) by ``terms``."""
    return TermsChange(given=terms, removed=frozenset(TERMS) - written_terms(terms).keys())


def changed_terms(terms: Terms, change: TermsChange) -> Terms:
    """Apply ``change`` to the terms of a quota rule (expiry, schedule, ramp, ...), and return the new terms."""
    values = ((key, term.field, getattr(change.given, term.field)) for key, term in _TERMS.items())
    new = {field: value for key, field, value in values if value is not None or key in change.removed}
    return terms._replace(**new)


def terms_of(rule: QuotaRule | IpRule) -> Terms:
    """Return the terms of a quota rule, such as its expiry, schedule and ramp."""
    enforcement, shaping = (rule.enforcement, rule.shaping) if isinstance(rule, QuotaRule) else (None, None)
    times = (rule.expires_ms, rule.schedule, rule.ramp)
    # This is a fast path, because most of a hundred thousand rules have no terms.
    if enforcement is None and shaping is None and times == (None, None, None):
        return NO_TERMS
    return Terms(
        enforcement=enforcement, shaping=shaping, expires_ms=rule.expires_ms, schedule=rule.schedule, ramp=rule.ramp
    )


def read_terms(given: object) -> Terms:
    """Return the terms that a mapping describes. Raises TermsError if the mapping is not valid.

    Whether the terms suit a particular rule must be checked with ``check_terms``.
    """
    values = read_mapping(given, {key: term.read for key, term in _TERMS.items()})
    return Terms(**{_TERMS[key].field: value for key, value in values.items()})


def read_terms_change(given: object) -> TermsChange:
    """Return the change of terms that a mapping describes. Raises TermsError if the mapping is not valid.

    A key whose value is None removes that term. If ``given`` itself is None, all terms are removed.
    """
    if given is None:
        return replacement(NO_TERMS)
    values = given if isinstance(given, dict) else {}
    removed = frozenset(key for key in TERMS if key in values and values[key] is None)
    terms = read_terms({key: value for key, value in values.items() if key not in removed} if values else given)
    return TermsChange(given=terms, removed=removed)


def check_terms(terms: Terms, *, limits: Collection[str], allowed: Collection[str]) -> None:
    """Raise TermsError if terms do not suit a rule. For example, a ramp cannot change a limit that the rule lacks.

    ``limits`` contains the keys of the rule's limits. ``allowed`` contains the keys of all limits that a rule for the
    same entity could have.
    """
    for key, _ in terms.ramp.start if terms.ramp else ():
        if key not in limits:
            message = (
                "is not limited by the rule, so the ramp has no target; give the rule this limit, or remove it here"
            )
            raise TermsError(("ramp", "from", key), message)
    for key, _ in (terms.schedule.otherwise or ()) if terms.schedule else ():
        if key not in allowed:
            message = f"is not a limit of such an entity; its limits are {', '.join(allowed)}"
            raise TermsError(("schedule", "otherwise", key), message)
    if CONNECTION_CREATION_RATE in allowed:
        for name in ("enforcement", "shaping"):
            if getattr(terms, name) is not None:
                raise TermsError((name,), "is not for addresses; the setting of the listener applies to them")


def written_terms(terms: Terms) -> dict[str, object]:
    """Convert terms to a mapping that ``read_terms`` reads. It contains only text, numbers, lists and mappings."""
    values = ((key, term, getattr(terms, term.field)) for key, term in _TERMS.items())
    return {key: term.write(value) for key, term, value in values if value is not None}


def written_terms_change(change: TermsChange) -> dict[str, object]:
    """Convert a change to the terms of a quota rule (expiry, ...) to a mapping that ``read_terms_change`` reads."""
    return written_terms(change.given) | {key: None for key in TERMS if key in change.removed}
