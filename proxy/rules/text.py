"""Writes quota rules as a line of text for people: whom a rule is for, its limits, and when the limits apply.

Clients choose their names, and the text goes to a terminal. So a name with special characters is quoted, and its
control characters are escaped.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, Default
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY
from kafka_quota_proxy.config.terms import written_terms
from kafka_quota_proxy.config.units import written_number
from kafka_quota_proxy.proxy.rules.effective import RuleStatus
from kafka_quota_proxy.proxy.rules.model import ENTITY_TYPES, Entity, StoredRule

_PLAIN: Final = re.compile(r"[^\s\"',:<>{}\[\]\\\x00-\x1f\x7f-\x9f]+")


def shown_entity(entity: Entity) -> str:
    """Return an entity as text such as ``user alice, client-id <default>``."""
    parts = zip(ENTITY_TYPES, entity, strict=True)
    return ", ".join(f"{kind} {shown_name(name)}" for kind, name in parts if name is not None)


def shown_name(name: str | Default) -> str:
    """Return a name as text, in quotes if it has special characters. The default name is ``<default>``."""
    if isinstance(name, Default):
        return str(DEFAULT)
    return name if _PLAIN.fullmatch(name) and name.isprintable() else json.dumps(name)


def shown_limit(key: str, value: float) -> str:
    """Return a limit as in a configuration file, with a unit such as MB if this needs no rounding."""
    kind = KIND_OF_KEY.get(key)
    return written_number(value) if kind is None else kind.spec.unit.written(value)


def shown_limits(rule: StoredRule | None) -> str:
    """Return the limits and terms of a rule as text such as ``KEY=VALUE KEY=VALUE``, or ``none``."""
    if rule is None:
        return "none"
    limits = [f"{key}={shown_limit(key, value)}" for key, value in in_order(rule.limits)]
    return " ".join((*limits, *(f"{key}={shown_term(value)}" for key, value in written_terms(rule.terms).items())))


def format_status(status: RuleStatus | None) -> str:
    """Return a status as text that can be appended to the text of its rule, or "" if the rule is always in force."""
    if status is None or not status.why:
        return ""
    why = status.why if status.why.isprintable() else repr(status.why)
    return f"; now: {shown_limits(StoredRule(limits=status.limits)) if status.limits else 'nothing'}, {why}"


def in_order(limits: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the limits in the order in which the documentation lists their keys."""
    known = list(KIND_OF_KEY)
    return sorted(limits.items(), key=lambda limit: known.index(limit[0]) if limit[0] in known else len(known))


def shown_term(value: object) -> str:
    """Return the value of one of a rule's terms, such as its expiry or schedule, as text. Other types become JSON."""
    return value if isinstance(value, str) else json.dumps(value)
