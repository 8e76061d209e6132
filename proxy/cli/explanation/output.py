"""Formats an explanation of a client's quotas as text, with hints on rules that ``explain`` has not read."""

from collections.abc import Iterator, Mapping

from kafka_quota_proxy.config.model import ProxyConfig, QuotasFromBroker
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE
from kafka_quota_proxy.config.units import described_size
from kafka_quota_proxy.proxy.cli.explanation.resolve import Explanation, Fields
from kafka_quota_proxy.proxy.quota.entity import LEVELS
from kafka_quota_proxy.proxy.quota.rule_phrases import level_words


def lines(found: Explanation, *, user: str, client_id: str, ip: str | None, bound_ms: int | None) -> Iterator[str]:
    """Yield the lines of an explanation. ``bound_ms`` is None if throttle times have no upper bound."""
    yield f"user {user}, " + (f"client-id {client_id}" if client_id else "no client-id")
    if found.charged_user != user:
        yield f"  folded       charged as user {found.charged_user} (principals.fold)"
    if found.is_exempt:
        yield "  exempt       no quota applies to this user (principals.exempt)"
    else:
        bound = "without bound" if bound_ms is None else f"at most {bound_ms / 1_000:g} s each"
        yield f"  pauses       {bound} (max_throttle_time)"
        if found.guess:
            yield f"  no rule      applies to this client; {found.guess}"
        for key, fields in found.kinds.items():
            yield ""
            yield from _lines(key, fields)
    if ip is not None:
        yield ""
        yield from _lines(f"{CONNECTION_CREATION_RATE} of {ip}", found.of_ip)


def _lines(heading: str, fields: Fields | None) -> Iterator[str]:
    fields = fields or {"rule": None}
    if fields["rule"] is None:
        yield f"{heading}: not limited"
    else:
        yield f"{heading}: {fields['in_words']}"
        yield f"  rule         {_entity(fields['rule'])} ({fields['source']})"
        yield from (f"  time         {words}" for words in fields.get("times", ()))
        if "level" in fields:
            yield f"  level        {level_words(LEVELS[fields['level'] - 1])}"
        yield f"  bucket       {_sharing(**{key.replace('-', '_'): name for key, name in fields['bucket'].items()})}"
        for name, at in fields.get("listeners", {}).items():
            yield from _listener_lines(name, at)
    for key, name in (("lost", "lost"), ("not_now", "not now")):
        for other in fields.get(key, ()):
            level = f"level {other['level']}: " if "level" in other else ""
            yield f"  {name:<12} {_entity(other['rule'])}, {other['in_words']} ({other['source']})"
            yield f"               {level}{other['reason']}"


def _listener_lines(name: str, at: Fields | None) -> Iterator[str]:
    if at is None:
        yield f"  listener     {name}: not limited (inter_broker)"
        return
    closing = "closes nothing" if at["enforcement"] == "observe" else "closes connections above the limit"
    yield f"  listener     {name}: {at['enforcement']}, {at.get('shaping', closing)}"
    if at.get("max_fetch_bytes") is not None:
        yield f"               the max_bytes of a fetch is lowered to {described_size(at['max_fetch_bytes'])}"


def _entity(rule: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {name}" for key, name in rule.items())


def _sharing(*, user: str = "", client_id: str = "", ip: str = "") -> str:
    if ip:
        return f"{ip}; all connections from this address to a broker, for any user"
    if user and client_id:
        return f"user {user} with client-id {client_id}; all such connections to a broker share it"
    if user:
        return f"user {user}; shared by its client-ids at a broker, except those with a rule of their own"
    return f"client-id {client_id}; shared by all users at a broker, except those with a rule of their own"


def rule_hints(config: ProxyConfig) -> Iterator[str]:
    """Yield lines about rules in a topic or at the brokers, which ``explain`` does not read, and how to see them."""
    if config.store is not None and config.store.topic is not None:
        known = "only the file was read; the topic may have rules for other entities"
        yield ""
        yield f"store {config.store.topic}: {known}; to read the topic: kafka-quota-proxy quotas describe"
    if config.quotas_from is not None:
        others = (
            "the brokers may have quotas for other entities: see kafka-configs.sh --describe"
            if isinstance(config.quotas_from, QuotasFromBroker)
            else "the topic may have rules for other entities"
        )
        yield ""
        yield f"quotas_from {config.quotas_from}: only the file was read; {others}"
