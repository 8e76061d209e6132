"""Works out which rules apply to a client and why the others do not, with the same code as a running proxy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, IpRule, Listener, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas, PrincipalRules
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Candidate, Level, RuleTable, Tags, bounded
from kafka_quota_proxy.proxy.quota.nearest_rule import nearest_rule
from kafka_quota_proxy.proxy.quota.rule_phrases import as_written, upcoming_changes, why_inactive
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.quota.rule_terms import in_force
from kafka_quota_proxy.proxy.rules.model import Entity as StoreEntity


@dataclass(frozen=True, slots=True, kw_only=True)
class AtListener:
    """How one listener of the proxy enforces a client's limit of one kind of quota."""

    listener: str
    enforcement: Enforcement | None  # None for an inter-broker listener, which has no limits
    shaping: Shaping | None  # None for a quota that is not a rate
    max_fetch_bytes: int | None  # the bound on a fetch's max_bytes, or None if there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRule:
    """A rule for the client that does not apply, and the reason why."""

    rule: QuotaRule | IpRule
    level: Level | None  # None for a rule of an address
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which limit applies to the client for one kind of quota, and which rule sets it.

    If no limit applies, ``rule`` is None, and ``why`` may give the reason.
    """

    key: str  # the key of the quota, which is Kafka's or the proxy's own
    rule: QuotaRule | None
    level: Level | None
    limit: float | None  # in the unit of the key
    bucket: Tags
    at_listeners: tuple[AtListener, ...]
    lost: tuple[OtherRule, ...]  # rules that lost to a rule of a more specific level
    times: tuple[str, ...] = ()  # future changes of the rule, in words
    not_now: tuple[OtherRule, ...] = ()  # rules that have expired or are outside their schedules
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IpVerdict:
    """The limit on new connections from an IP address. ``rule`` is None if nothing limits the address."""

    ip: str
    rule: IpRule | None
    lost: tuple[OtherRule, ...]
    times: tuple[str, ...]
    not_now: tuple[OtherRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of the configuration file and the quotas that clients have set, as they apply at one instant."""

    config: ProxyConfig  # the configuration, with its quotas replaced by the rules that apply
    kafka_sources: Mapping[str, str]  # FILE:LINE of each key under ``kafka``
    timed: Mapping[StoreEntity, QuotaRule | IpRule]  # the rules that change with time, as they were set
    now_ms: int  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The limits that apply to one client, and the rules that set them."""

    user: str
    client_id: str
    charged_user: str  # the user after folding (principals.fold), to which requests are charged
    is_exempt: bool
    verdicts: tuple[Verdict, ...]
    of_ip: IpVerdict | None  # None if no address was given
    nearest: QuotaRule | None = None  # if no rule names the client at any time: the rule that is spelt most like it


_OWN_RULE: Final = "the address has a rule of its own"
_OF_BROKERS: Final = "the user is a broker's (principals.brokers) and may have any number"


def explain(rules: Rules, *, user: str, client_id: str, ip: str | None = None) -> Explanation:
    """Explain which quotas apply to a client. ``client_id`` is "" if the client sends none.

    ``ip`` is the client's address in canonical form, as ``parse_ip`` returns it. If it is None, the limits on new
    connections are left out.
    """
    principals = rules.config.principals
    charged_user, is_exempt = PrincipalRules(principals).charged_user(user)
    of_connections = _of_connections(
        rules, user=charged_user, client_id=client_id, is_exempt=is_exempt, is_broker=user in principals.brokers
    )
    found = [*_of_buckets(rules, user, charged_user, client_id), (QuotaKind.CONNECTIONS, of_connections)]
    verdicts = tuple(
        _with_times(verdict, rules, kind, user=charged_user, client_id=client_id) for kind, verdict in found
    )
    is_limited = any(verdict.rule or verdict.not_now for verdict in verdicts)
    return Explanation(
        user=user,
        client_id=client_id,
        charged_user=charged_user,
        is_exempt=is_exempt,
        verdicts=verdicts,
        of_ip=None if ip is None else _of_ip(rules, ip),
        nearest=None if is_limited else nearest_rule(RuleTables(rules.config), Tags(charged_user, client_id)),
    )


def _of_buckets(rules: Rules, user: str, charged_user: str, client_id: str) -> Iterator[tuple[QuotaKind, Verdict]]:
    """Yield each kind of quota that is enforced with buckets, and the verdict about the client's limit of this kind."""
    config = rules.config
    # Listeners in front of one broker share its buckets; only their enforcement and shaping differ.
    quotas_at = [(listener, BrokerQuotas(config, shaping=listener.shaping)) for listener in config.listeners]
    buckets_at = [
        (listener, quotas.buckets(principal=user, client_id=client_id, now_ms=0)) for listener, quotas in quotas_at
    ]
    for index, manager in enumerate(quotas_at[0][1].managers):
        buckets = [(listener, buckets[index]) for listener, buckets in buckets_at]
        candidates = manager.table.explain(user=charged_user, client_id=client_id)
        yield manager.kind, _verdict(rules, manager, buckets, candidates)


def _verdict(
    rules: Rules,
    manager: ClientQuotaManager,
    buckets_at: Sequence[tuple[Listener, Bucket]],
    candidates: Iterable[Candidate],
) -> Verdict:
    bucket = buckets_at[0][1]
    return Verdict(
        key=bucket.kind.key,
        rule=bucket.rule and _with_line(bucket.rule, rules),
        level=bucket.level,
        limit=_limit(manager, bucket),
        bucket=bucket.tags,
        at_listeners=tuple(_at_listener(listener, bucket, rules) for listener, bucket in buckets_at),
        lost=_lost(candidates, rules),
    )


def _limit(manager: ClientQuotaManager, bucket: Bucket) -> float | None:
    limit = manager.limit_of(bucket)
    return limit if limit is None or bucket.rule is None else as_written(bucket.kind, limit, bucket.rule)


def _with_times(verdict: Verdict, rules: Rules, kind: QuotaKind, *, user: str, client_id: str) -> Verdict:
    """Return ``verdict`` with future changes of its rule, and with rules that do not apply now.

    The latter rules have expired, or are outside their schedules.
    """
    now_ms = rules.now_ms
    winner = verdict.rule and rules.timed.get(StoreEntity(verdict.rule.user, verdict.rule.client_id))
    of_clients = [rule for rule in rules.timed.values() if isinstance(rule, QuotaRule)]
    out_of_time = RuleTable(kind, [rule for rule in of_clients if _is_silent(rule, kind, now_ms)])
    return replace(
        verdict,
        times=tuple(upcoming_changes(winner, now_ms=now_ms)) if winner else (),
        not_now=tuple(
            OtherRule(rule=candidate.rule, level=candidate.level, reason=why_inactive(candidate.rule, now_ms=now_ms))
            for candidate in out_of_time.explain(user=user, client_id=client_id)
            if candidate.rule is not None
        ),
    )


def _is_silent(rule: QuotaRule, kind: QuotaKind, now_ms: int) -> bool:
    held = in_force(rule, now_ms=now_ms)
    return held is None or kind.limit_of(held) is None


def _of_connections(rules: Rules, *, user: str, client_id: str, is_exempt: bool, is_broker: bool) -> Verdict:
    """Return the verdict about the limit on a client's open connections.

    This limit is not enforced with a bucket, and brokers are exempt from it.
    """
    table = RuleTable(QuotaKind.CONNECTIONS, rules.config.quotas)
    found = table.resolve(user=bounded(user), client_id=bounded(client_id))
    is_free = is_exempt or is_broker
    rule = None if is_free else found.rule
    return Verdict(
        key=QuotaKind.CONNECTIONS.key,
        rule=rule,
        level=found.level if rule else None,
        limit=found.limit if rule else None,
        bucket=found.tags,
        at_listeners=tuple(
            AtListener(
                listener=listener.name,
                enforcement=(
                    None
                    if listener.inter_broker
                    else (rule.enforcement if rule else None) or listener.enforcement or rules.config.enforcement
                ),
                shaping=None,
                max_fetch_bytes=None,
            )
            for listener in rules.config.listeners
        ),
        lost=() if is_free else _lost(table.explain(user=user, client_id=client_id), rules),
        why=_OF_BROKERS if is_broker else "",
    )


def _of_ip(rules: Rules, ip: str) -> IpVerdict:
    found = {rule.ip: rule for rule in rules.config.ip_quotas}
    own, for_others = found.get(ip), found.get(DEFAULT)
    rule, now_ms = own or for_others, rules.now_ms
    timed = {rule.ip: rule for rule in rules.timed.values() if isinstance(rule, IpRule)}
    winner = timed.get(rule.ip) if rule else None
    return IpVerdict(
        ip=ip,
        rule=rule,
        lost=(OtherRule(rule=for_others, level=None, reason=_OWN_RULE),) if own and for_others else (),
        times=tuple(upcoming_changes(winner, now_ms=now_ms)) if winner else (),
        not_now=tuple(
            OtherRule(rule=one, level=None, reason=why_inactive(one, now_ms=now_ms))
            for one in (timed.get(ip), timed.get(DEFAULT))
            if one is not None and in_force(one, now_ms=now_ms) is None
        ),
    )


def _lost(candidates: Iterable[Candidate], rules: Rules) -> tuple[OtherRule, ...]:
    return tuple(
        OtherRule(rule=_with_line(candidate.rule, rules), level=candidate.level, reason=candidate.reason)
        for candidate in candidates
        if candidate.rule is not None and not candidate.wins
    )


def _at_listener(listener: Listener, bucket: Bucket, rules: Rules) -> AtListener:
    enforcement = bucket.enforcement or listener.enforcement or rules.config.enforcement
    is_capped = bucket.kind is QuotaKind.FETCH and bucket.is_limited and enforcement is not Enforcement.OBSERVE
    return AtListener(
        listener=listener.name,
        enforcement=enforcement,
        shaping=bucket.shaping,
        max_fetch_bytes=bucket.max_fetch_bytes if is_capped else None,
    )


def _with_line(rule: QuotaRule, rules: Rules) -> QuotaRule:
    """Return ``rule`` with FILE:LINE as its source.

    For a rule from the section ``kafka``, this replaces the name of a key in that section.
    """
    return replace(rule, source=rules.kafka_sources.get(rule.source, rule.source))
