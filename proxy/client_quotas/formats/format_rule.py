"""Entities, limits and terms as a line of text for people.

Clients choose names, and the text goes to a terminal: other than plain names are quoted, control characters escaped.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, Default
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY
from kafka_quota_proxy.config.terms import written_terms
from kafka_quota_proxy.config.units import written_number
from kafka_quota_proxy.proxy.client_quotas.rules.entity import ENTITY_TYPES, Entity, StoredRule

_PLAIN: Final = re.compile(r"[^\s\"',:<>{}\[\]\\\x00-\x1f\x7f-\x9f]+")


def shown_entity(entity: Entity) -> str:
    """Return ``user alice, client-id <default>``; names that are not plain are in quotes."""
    parts = zip(ENTITY_TYPES, entity, strict=True)
    return ", ".join(f"{kind} {shown_name(name)}" for kind, name in parts if name is not None)


def shown_name(name: str | Default) -> str:
    """Return a name, or ``<default>``."""
    if isinstance(name, Default):
        return str(DEFAULT)
    return name if _PLAIN.fullmatch(name) and name.isprintable() else json.dumps(name)


def shown_limit(key: str, value: float) -> str:
    """Return a limit as a file has it, with a unit if it is exact; never rounded."""
    kind = KIND_OF_KEY.get(key)
    return written_number(value) if kind is None else kind.spec.unit.written(value)


def shown_limits(rule: StoredRule) -> str:
    """Return limits and terms as ``KEY=VALUE``, separated by spaces."""
    limits = [f"{key}={shown_limit(key, value)}" for key, value in in_order(rule.limits)]
    return " ".join((*limits, *(f"{key}={shown_term(value)}" for key, value in written_terms(rule.terms).items())))


def log_words(rule: StoredRule | None) -> str:
    """Return limits and terms as a line of the log has them, as plain numbers."""
    fields: dict[str, object] = {**rule.limits, **written_terms(rule.terms)} if rule else {}
    return ", ".join(f"{key}={value}" for key, value in fields.items()) or "none"


def in_order(limits: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return limits in the order of the documentation."""
    known = list(KIND_OF_KEY)
    return sorted(limits.items(), key=lambda limit: known.index(limit[0]) if limit[0] in known else len(known))


def shown_term(value: object) -> str:
    """Return the value of a term."""
    return value if isinstance(value, str) else json.dumps(value)
