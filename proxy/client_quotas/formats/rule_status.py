"""What holds of a rule that has terms at an instant, and why: as JSON, and as a person reads it.

    now         {"limits":{"producer_byte_rate":5242880.0},"why":"expires at 2026-12-01T00:00:00Z"}

``limits`` is null where the rule is as if it was not there; ``why`` says from when on it holds, or until when, and is
empty where that is at all times. Of a rule that another one hides it says which.
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
    """The limits that hold, None for no rule; and why, "" for at all times."""

    limits: Mapping[str, float] | None
    why: str


def status_of(entity: Entity, stored: StoredRule, *, now_ms: int) -> RuleStatus | None:
    """Return what holds of a rule at an instant of Unix time; None: it has no terms, and is as it was set."""
    if stored.terms == NO_TERMS:
        return None
    rule = as_rule(entity, stored, source="")
    held = in_force(rule, now_ms=now_ms)
    if held is None:
        return RuleStatus(None, why_inactive(rule, now_ms=now_ms))
    limits = {key: float(limit) for key, limit in limits_of(held).items()}
    return RuleStatus(limits, ", ".join(upcoming_changes(rule, now_ms=now_ms)))


def shadowed(by: str) -> RuleStatus:
    """Return what holds of a rule in whose place another one does; ``by``: where that is set."""
    return RuleStatus(None, f"for {by} sets quotas of the same")


def status_as_json(now: RuleStatus) -> Mapping[str, object]:
    """Return it as JSON has it."""
    return {"limits": None if now.limits is None else dict(now.limits), "why": now.why}


def written_as_of(entity: Entity, stored: StoredRule, *, now_ms: int) -> Mapping[str, object]:
    """Return what is told of a rule beside what was set."""
    now = status_of(entity, stored, now_ms=now_ms)
    return {} if now is None else {"now": status_as_json(now)}


def read_status(given: object) -> RuleStatus | None:
    """Read what ``status_as_json`` has written; None of null.

    Raises:
        JsonFormError: It is something else.
    """
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


def format_status(now: RuleStatus | None) -> str:
    """Return what is to be read behind a rule; "" where it is at all times what was set."""
    if now is None or not now.why:
        return ""
    why = now.why if now.why.isprintable() else repr(now.why)
    return f"; now: {shown_limits(StoredRule(limits=now.limits)) if now.limits else 'nothing'}, {why}"
