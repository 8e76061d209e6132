"""Computes the status of a rule at an instant, and reads and writes it as JSON and as text.

The status is the field ``now`` of a rule that has terms or is hidden:

    now         {"limits":{"producer_byte_rate":5242880.0},"why":"expires at 2026-12-01T00:00:00Z"}

``limits`` is null if the rule is not in force. ``why`` says from when or until when the rule is in force, or which rule
hides it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kafka_quota_proxy.config.terms import NO_TERMS
from kafka_quota_proxy.proxy.client_quotas.formats.format_rule import shown_limits
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import JsonFormError
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import as_rule
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.quota.rule_phrases import upcoming_changes, why_inactive
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, limits_of


class RuleStatus(NamedTuple):
    """Which limits of a rule are in force at an instant, and why.

    ``limits`` is None if the rule is not in force. ``why`` is empty if the rule is always in force.
    """

    limits: Mapping[str, float] | None
    why: str


def status_of(entity: Entity, stored: StoredRule, *, now_ms: int) -> RuleStatus | None:
    """Return the status of a rule at a Unix time; None if it has no terms and thus is always in force."""
    if stored.terms == NO_TERMS:
        return None
    rule = as_rule(entity, stored, source="")
    held = in_force(rule, now_ms=now_ms)
    if held is None:
        return RuleStatus(None, why_inactive(rule, now_ms=now_ms))
    limits = {key: float(limit) for key, limit in limits_of(held).items()}
    return RuleStatus(limits, ", ".join(upcoming_changes(rule, now_ms=now_ms)))


def shadowed(by: str) -> RuleStatus:
    """Return the status of a rule that is not in force because a rule of the source ``by`` hides it."""
    return RuleStatus(None, f"for {by} sets quotas of the same")


def status_as_json(status: RuleStatus) -> Mapping[str, object]:
    """Return the status of a rule (which limits are in force, and why) as a mapping that can be encoded as JSON."""
    return {"limits": None if status.limits is None else dict(status.limits), "why": status.why}


def written_as_of(entity: Entity, stored: StoredRule, *, now_ms: int) -> Mapping[str, object]:
    """Return a mapping with the field ``now`` for the JSON of a rule. It is empty if the rule has no terms."""
    status = status_of(entity, stored, now_ms=now_ms)
    return {} if status is None else {"now": status_as_json(status)}


def read_status(given: object) -> RuleStatus | None:
    """Read a status from parsed JSON, or None from null. Raises JsonFormError for any other form."""
    if given is None:
        return None
    if not isinstance(given, dict) or given.keys() != {"limits", "why"}:
        raise JsonFormError("now: must have limits and why")
    limits, why = given["limits"], given["why"]
    if limits is not None and not (isinstance(limits, dict) and all(map(_is_number, limits.values()))):
        raise JsonFormError("now.limits: must be keys and numbers, or null")
    return RuleStatus(limits, str(why))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_status(status: RuleStatus | None) -> str:
    """Return a status as text that can be appended to the text of its rule, or "" if the rule is always in force."""
    if status is None or not status.why:
        return ""
    why = status.why if status.why.isprintable() else repr(status.why)
    return f"; now: {shown_limits(StoredRule(limits=status.limits)) if status.limits else 'nothing'}, {why}"
