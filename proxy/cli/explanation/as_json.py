"""Formats an explanation of a client's quotas as JSON.

The JSON has an object for each kind of quota, or null for a kind without a limit.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.cli.explanation.model import Explanation, IpVerdict, OtherRule, Verdict
from kafka_quota_proxy.proxy.quota.rule_phrases import rule_entity


def as_json(
    found: Explanation,
    config: ProxyConfig,
    *,
    known_last: str | None = None,
    queues: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Return an explanation as the text of one JSON object.

    ``known_last`` is the directory with a copy of the rules in the store's topic, if there is one. ``queues`` contains
    the client's priority in each fair call queue, if a running proxy was asked for it.
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
    not_now = _other_rules(verdict.key, verdict.not_now)
    if verdict.rule is None or verdict.level is None:
        return None if found.is_exempt else _only_at_other_times(not_now)
    return {
        "limit": _number(verdict.limit),
        "rule": rule_entity(verdict.rule),
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
        "lost": _other_rules(verdict.key, verdict.lost),
        **({"not_now": not_now} if not_now else {}),
    }


def _ip_fields(found: IpVerdict | None) -> dict[str, object] | None:
    if found is None:
        return None
    not_now = _other_rules(CONNECTION_CREATION_RATE, found.not_now)
    if found.rule is None:
        return _only_at_other_times(not_now)
    return {
        "limit": _number(found.rule.connection_creation_rate),
        "rule": rule_entity(found.rule),
        "source": found.rule.source,
        **({"times": list(found.times)} if found.times else {}),
        "bucket": {"ip": found.ip},
        "lost": _other_rules(CONNECTION_CREATION_RATE, found.lost),
        **({"not_now": not_now} if not_now else {}),
    }


def _only_at_other_times(not_now: list[dict[str, object]]) -> dict[str, object] | None:
    return {"limit": None, "rule": None, "not_now": not_now} if not_now else None


def _other_rules(key: str, others: Iterable[OtherRule]) -> list[dict[str, object]]:
    return [
        {
            "rule": rule_entity(other.rule),
            "limit": _number(other.rule.limits.get(key)),
            **({"level": other.level.number} if other.level else {}),
            "source": other.rule.source,
            "reason": other.reason,
        }
        for other in others
    ]


def _number(limit: float | None) -> float:
    """Return a limit as a JSON number. A limit of None becomes ``UNLIMITED``, Kafka's number for "unlimited"."""
    limit = UNLIMITED if limit is None else min(limit, UNLIMITED)
    return int(limit) if limit == int(limit) else limit
