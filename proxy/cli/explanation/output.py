"""Formats an explanation of a client's quotas as JSON and as text.

The JSON has an object for each kind of quota, or null for a kind without a limit. The text may have hints on how to see
rules and priorities that ``explain`` has not read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka_quota_proxy.config.model import Enforcement, ProxyConfig, QuotasFromBroker
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED, described_size
from kafka_quota_proxy.proxy.cli.explanation.resolve import (
    AtListener,
    Explanation,
    IpVerdict,
    OtherRule,
    Verdict,
)
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.nearest_rule import guess_words
from kafka_quota_proxy.proxy.quota.rule_phrases import entity_words, level_words, limit_words, rule_entity, rule_words


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


def lines(found: Explanation, *, max_throttle_time_ms: int | None) -> Iterator[str]:
    """Yield the lines of an explanation. ``max_throttle_time_ms`` is None if throttle times have no upper bound."""
    client = f"client-id {found.client_id}" if found.client_id else "no client-id"
    yield f"user {found.user}, {client}"
    if found.charged_user != found.user:
        yield f"  folded       charged as user {found.charged_user} (principals.fold)"
    if found.is_exempt:
        yield "  exempt       no quota applies to this user (principals.exempt)"
    else:
        yield from _client_lines(found, max_throttle_time_ms)
    if found.of_ip is not None:
        yield ""
        yield from _ip_lines(found.of_ip)


def _client_lines(found: Explanation, bound_ms: int | None) -> Iterator[str]:
    bound = "without bound" if bound_ms is None else f"at most {bound_ms / 1_000:g} s each"
    yield f"  pauses       {bound} (max_throttle_time)"
    if found.nearest is not None:
        yield f"  no rule      applies to this client; {guess_words(found.nearest)}"
    for verdict in found.verdicts:
        yield ""
        yield from _verdict_lines(verdict)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    if verdict.rule is None or verdict.level is None:
        yield f"{verdict.key}: not limited"
        if verdict.why:
            yield f"  why          {verdict.why}"
    else:
        yield f"{verdict.key}: {limit_words(verdict.key, verdict.limit)}"
        yield f"  rule         {rule_words(verdict.rule)}"
        yield from (f"  time         {words}" for words in verdict.times)
        yield f"  level        {level_words(verdict.level)}"
        yield f"  bucket       {_sharing(verdict.bucket)}"
        yield from _listener_lines(verdict)
    yield from _other_lines("lost", verdict.key, verdict.lost)
    yield from _other_lines("not now", verdict.key, verdict.not_now)


def _other_lines(heading: str, key: str, others: Iterable[OtherRule]) -> Iterator[str]:
    for other in others:
        rule, level = other.rule, f"level {other.level.number}: " if other.level else ""
        yield f"  {heading:<12} {entity_words(rule)}, {limit_words(key, rule.limits.get(key))} ({rule.source})"
        yield f"               {level}{other.reason}"


def _listener_lines(verdict: Verdict) -> Iterator[str]:
    for at in verdict.at_listeners:
        if at.enforcement is None:
            yield f"  listener     {at.listener}: not limited (inter_broker)"
            continue
        yield f"  listener     {at.listener}: {at.enforcement.value}, {_manner(at)}"
        if at.max_fetch_bytes is not None:
            yield f"               the max_bytes of a fetch is lowered to {described_size(at.max_fetch_bytes)}"


def _manner(at: AtListener) -> str:
    if at.shaping is not None:
        return at.shaping.value
    return "closes nothing" if at.enforcement is Enforcement.OBSERVE else "closes connections above the limit"


def _ip_lines(found: IpVerdict) -> Iterator[str]:
    key, rule = CONNECTION_CREATION_RATE, found.rule
    if rule is None:
        yield f"{key} of {found.ip}: not limited"
    else:
        yield f"{key} of {found.ip}: {limit_words(key, rule.connection_creation_rate)}"
        yield f"  rule         {rule_words(rule)}"
        yield from (f"  time         {words}" for words in found.times)
        yield f"  bucket       {found.ip}; all connections from this address to a broker, for any user"
    yield from _other_lines("lost", key, found.lost)
    yield from _other_lines("not now", key, found.not_now)


def _sharing(bucket: Tags) -> str:
    if bucket.user and bucket.client_id:
        return f"user {bucket.user} with client-id {bucket.client_id}; all such connections to a broker share it"
    if bucket.user:
        return f"user {bucket.user}; shared by its client-ids at a broker, except those with a rule of their own"
    return f"client-id {bucket.client_id}; shared by all users at a broker, except those with a rule of their own"


def rule_hints(config: ProxyConfig, *, known_last: str | None) -> Iterator[str]:
    """Yield lines about rules in a topic or at the brokers, which ``explain`` does not read, and about how to see them.

    ``known_last`` is the directory from which a local copy of the topic was read, or None if none was read.
    """
    if config.store is not None and config.store.topic is not None:
        known = (
            "only the file was read; the topic may have rules for other entities"
            if known_last is None
            else f"its rules are shown as last known on this machine ({known_last}); they may have changed"
        )
        yield ""
        others = "kafka-quota-proxy quotas describe"
        yield f"store {config.store.topic}: {known}; to read the topic: {others}"
    if config.quotas_from is not None:
        others = (
            "the brokers may have quotas for other entities: see kafka-configs.sh --describe"
            if isinstance(config.quotas_from, QuotasFromBroker)
            else "the topic may have rules for other entities"
        )
        yield ""
        yield f"quotas_from {config.quotas_from}: only the file was read; {others}"


def queue_hints(config: ProxyConfig) -> Iterator[str]:
    """Yield a line on how to see the client's priority in fair call queues, if any listener has such a queue."""
    how = f"--url http://{config.admin.bind}" if config.admin else "--url (and admin.bind in the file)"
    names = [listener.name for listener in config.listeners if listener.fair_call_queue is not None]
    if names:
        yield ""
        yield (
            f"fair_call_queue at listener {', '.join(names)}: the client's priority depends on its recent "
            f"cost; {how} shows it"
        )
