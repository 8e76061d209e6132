"""Works out which rules apply to a client and why the others do not, with the same code as a running proxy."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, IpRule, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, CONNECTION_CREATION_RATE, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas, PrincipalRules
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import Level, Tags
from kafka_quota_proxy.proxy.quota.nearest_rule import guess_words, nearest_rule
from kafka_quota_proxy.proxy.quota.rule_phrases import limit_words, rule_entity, upcoming_changes, why_inactive
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable, RuleTables
from kafka_quota_proxy.proxy.quota.rule_terms import in_force
from kafka_quota_proxy.proxy.rules.model import Entity as StoreEntity

# What --json prints for a kind of quota.
Fields: TypeAlias = dict[str, Any]

_OWN_RULE: Final = "the address has a rule of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of the configuration file and the quotas that clients have set, as they apply at one instant."""

    config: ProxyConfig  # the configuration, with its quotas replaced by the rules that apply
    kafka_sources: Mapping[str, str]  # FILE:LINE of each key under ``kafka``
    timed: Mapping[StoreEntity, QuotaRule | IpRule]  # the rules that change with time, as they were set
    now_ms: int  # Unix time


class Explanation(NamedTuple):
    """The limits that apply to one client, and the rules that set them.

    ``kinds`` and ``of_ip`` are JSON: an object for each kind of quota, or None without a limit. An object whose
    ``rule`` is None has rules that apply at other times, under ``not_now``.
    """

    charged_user: str  # the user after folding (principals.fold), to which requests are charged
    is_exempt: bool
    guess: str  # if no rule names the client at any time: the rule that is spelt most like it
    kinds: Mapping[str, Fields | None]
    of_ip: Fields | None  # None if no address was given, or nothing limits it


def explain(rules: Rules, *, user: str, client_id: str, ip: str | None = None) -> Explanation:
    """Explain which quotas apply to a client. ``client_id`` is "" if the client sends none.

    ``ip`` is the client's address in canonical form, as ``parse_ip`` returns it. If it is None, the limits on new
    connections are left out.
    """
    principals = rules.config.principals
    charged_user, is_exempt = PrincipalRules(principals).charged_user(user)
    client, tables = Tags(charged_user, client_id), RuleTables(rules.config)
    kinds: dict[str, Fields | None] = dict.fromkeys(kind.key for kind in (*BUCKET_KINDS, QuotaKind.CONNECTIONS))
    if not is_exempt:
        listeners = _listeners(rules.config, user, client_id)
        for kind, table in tables.tables.items():
            kinds[kind.key] = _of_kind(rules, table, client, listeners[kind])
        if user not in principals.brokers:  # a broker may have any number
            kinds[QuotaKind.CONNECTIONS.key] = _of_kind(
                rules, tables.connections, client, _listeners_of_connections(rules.config, tables.connections, client)
            )
    is_unknown = not is_exempt and not any(kinds.values())
    nearest = nearest_rule(tables, client) if is_unknown else None
    return Explanation(
        charged_user=charged_user,
        is_exempt=is_exempt,
        guess="" if nearest is None else guess_words(nearest),
        kinds=kinds,
        of_ip=None if ip is None else _of_ip(rules, ip),
    )


def _of_kind(rules: Rules, table: RuleTable, client: Tags, listeners: Fields) -> Fields | None:
    key, candidates = table.kind.key, table.explain(user=client.user, client_id=client.client_id)
    not_now = list(_not_now(rules, table.kind, client))
    winner = next((one for one in candidates if one.wins), None)
    if winner is None or winner.rule is None:
        return _at_other_times(not_now)
    timed = rules.timed.get(StoreEntity(winner.rule.user, winner.rule.client_id))
    user, client_id = table.resolve(user=client.user, client_id=client.client_id).tags
    return {
        **_limit(rules, key, winner.rule, winner.level),
        **_times(timed, rules.now_ms),
        "bucket": {"user": user, "client-id": client_id},
        "charged_user": client.user,
        "listeners": listeners,
        "lost": [
            _limit(rules, key, one.rule, one.level) | {"reason": one.reason}
            for one in candidates
            if one.rule is not None and not one.wins
        ],
        **({"not_now": not_now} if not_now else {}),
    }


def _listeners(config: ProxyConfig, user: str, client_id: str) -> dict[QuotaKind, Fields]:
    """Return how each listener enforces the limits of each kind of quota."""
    found: dict[QuotaKind, Fields] = {kind: {} for kind in BUCKET_KINDS}
    # Listeners in front of one broker share its buckets; only their enforcement and shaping differ.
    for listener in config.listeners:
        quotas = BrokerQuotas(config, shaping=listener.shaping)
        for bucket in quotas.buckets(principal=user, client_id=client_id, now_ms=0):
            found[bucket.kind][listener.name] = _at_listener(listener, bucket, config)
    return found


def _at_listener(listener: Listener, bucket: Bucket, config: ProxyConfig) -> Fields:
    enforcement = bucket.enforcement or listener.enforcement or config.enforcement
    found: Fields = {"enforcement": enforcement.value, "shaping": bucket.shaping.value}
    if bucket.kind is QuotaKind.FETCH:
        is_capped = bucket.is_limited and enforcement is not Enforcement.OBSERVE
        found["max_fetch_bytes"] = bucket.max_fetch_bytes if is_capped else None
    return found


def _listeners_of_connections(config: ProxyConfig, table: RuleTable, client: Tags) -> Fields:
    """Return how each listener enforces the limit on open connections, or None for an inter-broker listener."""
    rule = table.resolve(user=client.user, client_id=client.client_id).rule
    of_rule = None if rule is None else rule.enforcement
    return {
        one.name: None
        if one.inter_broker
        else {"enforcement": (of_rule or one.enforcement or config.enforcement).value}
        for one in config.listeners
    }


def _of_ip(rules: Rules, ip: str) -> Fields | None:
    found = {rule.ip: rule for rule in rules.config.ip_quotas}
    own, for_others = found.get(ip), found.get(DEFAULT)
    rule, key = own or for_others, CONNECTION_CREATION_RATE
    timed = {one.ip: one for one in rules.timed.values() if isinstance(one, IpRule)}
    not_now = [
        _limit(rules, key, one) | {"reason": why_inactive(one, now_ms=rules.now_ms)}
        for one in (timed.get(ip), timed.get(DEFAULT))
        if one is not None and in_force(one, now_ms=rules.now_ms) is None
    ]
    if rule is None:
        return _at_other_times(not_now)
    lost = [_limit(rules, key, for_others) | {"reason": _OWN_RULE}] if own and for_others else []
    return {
        **_limit(rules, key, rule),
        **_times(timed.get(rule.ip), rules.now_ms),
        "bucket": {"ip": ip},
        "lost": lost,
        **({"not_now": not_now} if not_now else {}),
    }


def _not_now(rules: Rules, kind: QuotaKind, client: Tags) -> Iterator[Fields]:
    """Yield the rules that have expired or are outside their schedules."""
    of_clients = [rule for rule in rules.timed.values() if isinstance(rule, QuotaRule)]
    out_of_time = RuleTable(kind, [rule for rule in of_clients if _is_silent(rule, kind, rules.now_ms)])
    for one in out_of_time.explain(user=client.user, client_id=client.client_id):
        if one.rule is not None:
            reason = why_inactive(one.rule, now_ms=rules.now_ms)
            yield _limit(rules, kind.key, one.rule, one.level) | {"reason": reason}


def _is_silent(rule: QuotaRule, kind: QuotaKind, now_ms: int) -> bool:
    held = in_force(rule, now_ms=now_ms)
    return held is None or kind.limit_of(held) is None


def _at_other_times(not_now: Iterable[Fields]) -> Fields | None:
    return {"limit": None, "rule": None, "not_now": not_now} if not_now else None


def _times(rule: QuotaRule | IpRule | None, now_ms: int) -> Fields:
    times = [] if rule is None else list(upcoming_changes(rule, now_ms=now_ms))
    return {"times": times} if times else {}


def _limit(rules: Rules, key: str, rule: QuotaRule | IpRule, level: Level | None = None) -> Fields:
    """Return a rule and its limit, which is Kafka's number for "unlimited" if it is None."""
    limit = rule.limits.get(key)
    number = UNLIMITED if limit is None else min(limit, UNLIMITED)
    return {
        "limit": int(number) if number == int(number) else float(number),
        "in_words": limit_words(key, limit),
        "rule": dict(rule_entity(rule)),
        **({"level": level.number} if level else {}),
        # A rule of the section ``kafka`` has the name of a key there as its source.
        "source": rules.kafka_sources.get(rule.source, rule.source),
    }
