"""The explanation as JSON: an object for each kind of quota, null for a kind without a limit."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE, QuotaKind
from kafka_quota_proxy.proxy.cli.explanation.model import (
    OWN_RULE,
    Explanation,
    IpVerdict,
    Verdict,
    entity,
    number,
)
from kafka_quota_proxy.proxy.quota.entity import Level


def as_json(
    found: Explanation,
    config: ProxyConfig,
    *,
    known_last: str | None = None,
    queues: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Return an explanation as one object.

    Args:
        found: The explanation.
        config: The file, which names other sources of rules.
        known_last: The directory with the last known rules of a store's topic; None: there is none.
        queues: A running proxy's report on the client's priority; None: no proxy was asked.
    """
    fields: dict[str, object] = {verdict.key: _fields(found, verdict) for verdict in found.verdicts}
    fields[CONNECTION_CREATION_RATE] = _ip_fields(found.of_ip)
    if config.quotas_from is not None:
        fields["quotas_from"] = str(config.quotas_from)
    if config.store is not None and config.store.topic is not None:
        fields["store"] = {"topic": str(config.store.topic), "known_last": known_last}
    if queues is not None:
        fields["fair_call_queue"] = queues
    return f"{json.dumps(fields, indent=2)}\n"


def _fields(found: Explanation, verdict: Verdict) -> dict[str, object] | None:
    not_now = [_other_fields(verdict.key, one.rule, one.level, one.reason) for one in verdict.not_now]
    if verdict.rule is None or verdict.level is None:
        return _only_at_other_times(not_now) if not found.is_exempt else None
    return {
        "limit": number(verdict.limit),
        "rule": entity(verdict.rule),
        "level": verdict.level.number,
        "source": verdict.rule.source,
        **({"times": list(verdict.times)} if verdict.times else {}),
        "bucket": {"user": verdict.bucket.user, "client-id": verdict.bucket.client_id},
        "charged_user": found.charged_user,
        "listeners": {
            at.listener: at.enforcement
            and {
                "enforcement": at.enforcement.value,
                **({"shaping": at.shaping.value} if at.shaping else {}),
                **({"max_fetch_bytes": at.max_fetch_bytes} if verdict.key == QuotaKind.FETCH.key else {}),
            }
            for at in verdict.at_listeners
        },
        "lost": [
            _other_fields(verdict.key, candidate.rule, candidate.level, candidate.reason)
            for candidate in verdict.lost
            if candidate.rule is not None
        ],
        **({"not_now": not_now} if not_now else {}),
    }


def _only_at_other_times(not_now: list[dict[str, object]]) -> dict[str, object] | None:
    return {"limit": None, "rule": None, "not_now": not_now} if not_now else None


def _other_fields(key: str, rule: QuotaRule, level: Level, reason: str) -> dict[str, object]:
    """Return the fields of a rule that does not apply to the client, with the reason."""
    return {
        "rule": entity(rule),
        "limit": number(rule.limits.get(key)),
        "level": level.number,
        "source": rule.source,
        "reason": reason,
    }


def _ip_fields(found: IpVerdict | None) -> dict[str, object] | None:
    if found is None:
        return None
    not_now: list[dict[str, object]] = [_ip_rule_fields(rule, reason) for rule, reason in found.not_now]
    if found.rule is None:
        return _only_at_other_times(not_now)
    return {
        "limit": number(found.rule.connection_creation_rate),
        "rule": {"ip": str(found.rule.ip)},
        "source": found.rule.source,
        **({"times": list(found.times)} if found.times else {}),
        "bucket": {"ip": found.ip},
        "lost": [] if found.lost is None else [_ip_rule_fields(found.lost, OWN_RULE)],
        **({"not_now": not_now} if not_now else {}),
    }


def _ip_rule_fields(rule: IpRule, reason: str) -> dict[str, object]:
    return {
        "rule": {"ip": str(rule.ip)},
        "limit": number(rule.connection_creation_rate),
        "source": rule.source,
        "reason": reason,
    }
