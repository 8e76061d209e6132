"""``kafka-quota-proxy explain``: which quota holds for a client, at which level, and why not another.

The answers come from the code that runs: rules are resolved and buckets made as the proxy does it, for a client that
comes at time 0 of its clock, and under the rules that hold now, or at another instant.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Final

from config.errors import ConfigError, TermsError, UnitError
from config.load import Loaded, load
from config.model import (
    ANONYMOUS,
    DEFAULT,
    UNLIMITED,
    Enforcement,
    IpRule,
    Listener,
    ProxyConfig,
    QuotaRule,
    QuotasFromBroker,
    Shaping,
    Store,
)
from config.terms import parse_instant_ms
from config.units import parse_ip
from proxy.commands import priority
from proxy.quota.broker import BrokerQuotas, PrincipalRules
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.entity import Candidate, Level, Limits, QuotaKind, RuleTable, Tags, bounded
from proxy.quota.open_connections import CONNECTIONS
from proxy.quota.terms import in_force
from proxy.quota.timing import until_when, why_not
from proxy.quota_store.alter import Change
from proxy.quota_store.directory import StoreDirectory
from proxy.quota_store.entity import Entity as StoreEntity
from proxy.quota_store.in_force import InForce
from proxy.quota_store.journal import ForeignStoreError

_UNITS: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_OF_IPS: Final = "connection_creation_rate"
_OWN_RULE: Final = "the address has a rule of its own"
_OF_BROKERS: Final = "the user is a broker's (principals.brokers), and may have any number"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtListener:
    """What holds for the client at one listener."""

    listener: str
    enforcement: Enforcement | None  # None where brokers come, who are not limited
    shaping: Shaping | None  # None where nothing is measured over time
    max_fetch_bytes: int | None  # what a fetch's max_bytes is lowered to; None where nothing is enforced


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNow:
    """A rule for the client that does not hold at this time."""

    rule: QuotaRule
    level: Level
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What holds for the client in one kind of quota. ``rule`` is None where nothing limits it; ``why`` may say why.

    ``times`` says what will change of the rule, in words.
    """

    key: str  # Kafka's, or ours of the same form
    rule: QuotaRule | None
    level: Level | None
    limit: float | None  # in the unit of the key
    bucket: Tags
    at_listeners: tuple[AtListener, ...]
    lost: tuple[Candidate, ...]
    times: tuple[str, ...] = ()
    not_now: tuple[NotNow, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IpVerdict:
    """What holds for an address. ``rule`` is None where nothing limits it; ``lost`` is that for all others.

    ``not_now`` has rules that do not hold at this time, and why.
    """

    ip: str
    rule: IpRule | None
    lost: IpRule | None
    times: tuple[str, ...] = ()
    not_now: tuple[tuple[IpRule, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The file with the rules that hold at an instant, those of a store among them.

    Attributes:
        loaded: The file, with them.
        timed: The rules that are not the same at all times, as they were set.
        now_ms: The instant; Unix time.
    """

    loaded: Loaded
    timed: Mapping[StoreEntity, QuotaRule | IpRule]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that can be said of one client."""

    user: str
    client_id: str
    charged_user: str  # after folding
    is_exempt: bool
    verdicts: tuple[Verdict, ...]
    of_ip: IpVerdict | None  # None where no address was asked about


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``explain``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file")
    parser.add_argument("--user", metavar="U", default=ANONYMOUS, help=f"the user, without User: (default {ANONYMOUS})")
    parser.add_argument("--client-id", metavar="C", default="", help="the client-id (default: the client sends none)")
    parser.add_argument("--ip", metavar="I", help=f"the client's address: tell its {_OF_IPS}, too")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the admin port of the proxy that runs, such as http://127.0.0.1:9308: tell which priority the client has "
        "there now, and why (fair_call_queue; for a client that does not log in give --ip, too)",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="when, such as 2026-12-01T00:00:00Z: rules may expire, hold at some hours, change in steps (default: now)",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def execute(args: argparse.Namespace) -> int:
    """Print the explanation; return the exit status."""
    if not args.user:
        sys.stderr.write(
            f"kafka-quota-proxy explain: a user has a name; one that did not authenticate is {ANONYMOUS}\n"
        )
        return 2
    if args.url is not None and args.user == ANONYMOUS and args.ip is None:
        sys.stderr.write(
            "kafka-quota-proxy explain: --url: in a queue, who does not log in goes by client-id and address; give "
            "--ip, or --user\n"
        )
        return 2
    try:
        ip = None if args.ip is None else parse_ip(args.ip)
        now_ms = time_ns() // 1_000_000 if args.at is None else parse_instant_ms(args.at)
        rules = rules_at(load(args.config), now_ms=now_ms)
    except UnitError as error:
        sys.stderr.write(f"kafka-quota-proxy explain: --ip: {error}\n")
        return 2
    except TermsError as error:
        sys.stderr.write(f"kafka-quota-proxy explain: --at: {error}\n")
        return 2
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, ForeignStoreError) as error:
        sys.stderr.write(f"kafka-quota-proxy explain: the store cannot be read: {error}\n")
        return 1
    loaded = rules.loaded
    found = explain(rules, user=args.user, client_id=args.client_id, ip=ip)
    try:
        queues = None if args.url is None else priority.ask(args.url, args.user, args.client_id, ip or "")
    except priority.NotToldError as error:
        sys.stderr.write(f"kafka-quota-proxy explain: --url {args.url}: {error}\n")
        return 1
    if args.json:
        sys.stdout.write(_as_json(found, queues, loaded.config))
    else:
        names = [listener.name for listener in loaded.config.listeners]
        of_queues = _queue_hints(loaded.config) if queues is None else priority.lines(queues, names)
        sys.stdout.write(
            "".join(f"{line}\n" for line in (*_as_text(found, loaded), *_topic_hint(loaded.config), *of_queues))
        )
    return 0


def explain(rules: Rules, *, user: str, client_id: str, ip: str | None = None) -> Explanation:
    """Resolve what holds for a client. ``client_id`` is "" for one that sends none, ``ip`` as ``parse_ip`` gives it."""
    loaded = rules.loaded
    config = loaded.config
    charged_user, is_exempt = PrincipalRules(config.principals).charged_user(user)
    # Listeners in front of one broker share its buckets; what differs between them is how, not how much.
    quotas_at = [(listener, BrokerQuotas(config, shaping=listener.shaping)) for listener in config.listeners]
    buckets_at = [
        (listener, quotas.buckets(principal=user, client_id=client_id, now_ms=0)) for listener, quotas in quotas_at
    ]
    return Explanation(
        user=user,
        client_id=client_id,
        charged_user=charged_user,
        is_exempt=is_exempt,
        verdicts=(
            *(
                _with_times(
                    _verdict(
                        loaded,
                        manager,
                        [(listener, buckets[index]) for listener, buckets in buckets_at],
                        manager.table.explain(user=charged_user, client_id=client_id),
                    ),
                    rules,
                    manager.kind,
                    user=charged_user,
                    client_id=client_id,
                )
                for index, manager in enumerate(quotas_at[0][1].managers)
            ),
            _with_times(
                _of_connections(
                    loaded,
                    user=charged_user,
                    client_id=client_id,
                    is_exempt=is_exempt,
                    is_broker=user in config.principals.brokers,
                ),
                rules,
                CONNECTIONS,
                user=charged_user,
                client_id=client_id,
            ),
        ),
        of_ip=None if ip is None else _of_ip(rules, ip),
    )


def _verdict(
    loaded: Loaded,
    manager: ClientQuotaManager,
    buckets_at: Sequence[tuple[Listener, Bucket]],
    candidates: Iterable[Candidate],
) -> Verdict:
    bucket = buckets_at[0][1]
    return Verdict(
        key=bucket.kind.value,
        rule=_with_line(bucket.rule, loaded),
        level=bucket.level,
        limit=manager.limit_of(bucket),
        bucket=bucket.tags,
        at_listeners=tuple(_at_listener(listener, bucket, loaded) for listener, bucket in buckets_at),
        lost=_lost(candidates, loaded),
    )


def _look_for_hosts(both: InForce) -> None:
    # Here, for it loads asyncio, which this command has no need of else.
    import asyncio

    from proxy.host_finder import find_hosts

    both.know(asyncio.run(find_hosts(both.unknown_hosts)))


def rules_at(loaded: Loaded, *, now_ms: int) -> Rules:
    """Return the file with the rules that hold then, among them those that its store has now.

    Raises:
        OSError: The store cannot be read.
        ForeignStoreError: Another program has written it.
    """
    store = loaded.config.store
    both = InForce(loaded.config, name=str(store or ""), now_ms=now_ms)
    if store is not None and store.path is not None and Path(store.path).exists():
        restored = StoreDirectory(Path(store.path)).look()
        for fault in restored.faults:
            sys.stderr.write(f"kafka-quota-proxy explain: the store is damaged: {store.path}/{fault}\n")
        both.change((Change(entity, rule) for entity, rule in restored.rules.items()), now_ms=now_ms)
        if both.unknown_hosts:
            _look_for_hosts(both)
        for host in sorted(both.unknown_hosts):
            told = f"no address is known of {host}, which has quotas in the store"
            sys.stderr.write(f"kafka-quota-proxy explain: {told}\n")
    config = replace(loaded.config, quotas=both.quotas, ip_quotas=both.ip_quotas)
    return Rules(loaded=replace(loaded, config=config), timed=both.timed, now_ms=now_ms)


def _with_times(verdict: Verdict, rules: Rules, kind: Limits, *, user: str, client_id: str) -> Verdict:
    """Return the verdict with what the time has to do with it."""
    now_ms = rules.now_ms
    winner = verdict.rule and rules.timed.get(StoreEntity(verdict.rule.user, verdict.rule.client_id))
    of_clients = [rule for rule in rules.timed.values() if isinstance(rule, QuotaRule)]
    out_of_time = RuleTable(kind, [rule for rule in of_clients if _is_silent(rule, kind, now_ms)])
    return replace(
        verdict,
        times=tuple(until_when(winner, now_ms=now_ms)) if winner else (),
        not_now=tuple(
            NotNow(rule=candidate.rule, level=candidate.level, reason=why_not(candidate.rule, now_ms=now_ms))
            for candidate in out_of_time.explain(user=user, client_id=client_id)
            if candidate.rule is not None
        ),
    )


def _is_silent(rule: QuotaRule, kind: Limits, now_ms: int) -> bool:
    held = in_force(rule, now_ms=now_ms)
    return held is None or kind.limit_of(held) is None


def _of_connections(loaded: Loaded, *, user: str, client_id: str, is_exempt: bool, is_broker: bool) -> Verdict:
    """Resolve how many connections a client may have open: nothing is charged for them, so there is no bucket.

    Brokers may have any number, as in ``Account.count``.
    """
    table = RuleTable(CONNECTIONS, loaded.config.quotas)
    found = table.resolve(user=bounded(user), client_id=bounded(client_id))
    is_free = is_exempt or is_broker
    rule = None if is_free else found.rule
    return Verdict(
        key=CONNECTIONS.label,
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
                    else (rule.enforcement if rule else None) or listener.enforcement or loaded.config.enforcement
                ),
                shaping=None,
                max_fetch_bytes=None,
            )
            for listener in loaded.config.listeners
        ),
        lost=() if is_free else _lost(table.explain(user=user, client_id=client_id), loaded),
        why=_OF_BROKERS if is_broker else "",
    )


def _of_ip(rules: Rules, ip: str) -> IpVerdict:
    found = {rule.ip: rule for rule in rules.loaded.config.ip_quotas}
    own, for_others = found.get(ip), found.get(DEFAULT)
    rule, now_ms = own or for_others, rules.now_ms
    timed = {rule.ip: rule for rule in rules.timed.values() if isinstance(rule, IpRule)}
    winner = timed.get(rule.ip) if rule else None
    return IpVerdict(
        ip=ip,
        rule=rule,
        lost=for_others if own else None,
        times=tuple(until_when(winner, now_ms=now_ms)) if winner else (),
        not_now=tuple(
            (one, why_not(one, now_ms=now_ms))
            for one in (timed.get(ip), timed.get(DEFAULT))
            if one is not None and in_force(one, now_ms=now_ms) is None
        ),
    )


def _lost(candidates: Iterable[Candidate], loaded: Loaded) -> tuple[Candidate, ...]:
    return tuple(
        replace(candidate, rule=_with_line(candidate.rule, loaded))
        for candidate in candidates
        if candidate.rule is not None and not candidate.wins
    )


def _at_listener(listener: Listener, bucket: Bucket, loaded: Loaded) -> AtListener:
    enforcement = bucket.enforcement or listener.enforcement or loaded.config.enforcement
    is_capped = bucket.kind is QuotaKind.FETCH and bucket.is_limited and enforcement is not Enforcement.OBSERVE
    return AtListener(
        listener=listener.name,
        enforcement=enforcement,
        shaping=bucket.shaping,
        max_fetch_bytes=bucket.max_fetch_bytes if is_capped else None,
    )


def _with_line(rule: QuotaRule | None, loaded: Loaded) -> QuotaRule | None:
    """Return the rule with FILE:LINE as its source, also one that stands for a static default under ``kafka``."""
    return replace(rule, source=loaded.kafka_sources.get(rule.source, rule.source)) if rule else None


def _as_json(found: Explanation, queues: priority.Queues | None, config: ProxyConfig) -> str:
    fields = {verdict.key: _fields(found, verdict) for verdict in found.verdicts}
    of_queues = {} if queues is None else {"fair_call_queue": queues}
    of_topic: dict[str, object] = {} if config.quotas_from is None else {"quotas_from": str(config.quotas_from)}
    if config.store is not None and config.store.topic is not None:
        of_topic["store"] = {"topic": str(config.store.topic), "known_last": _known_last(config.store)}
    return f"{json.dumps(fields | {_OF_IPS: _ip_fields(found.of_ip)} | of_topic | of_queues, indent=2)}\n"


def _fields(found: Explanation, verdict: Verdict) -> dict[str, object] | None:
    not_now = [_not_now_fields(verdict.key, one) for one in verdict.not_now]
    if verdict.rule is None or verdict.level is None:
        return _only_at_other_times(not_now) if not found.is_exempt else None
    return {
        "limit": _number(verdict.limit),
        "rule": _entity(verdict.rule),
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
                **({"max_fetch_bytes": at.max_fetch_bytes} if verdict.key == QuotaKind.FETCH.value else {}),
            }
            for at in verdict.at_listeners
        },
        "lost": [
            {
                "rule": _entity(candidate.rule),
                "limit": _number(_limit(verdict.key, candidate.rule)),
                "level": candidate.level.number,
                "source": candidate.rule.source,
                "reason": candidate.reason,
            }
            for candidate in verdict.lost
            if candidate.rule is not None
        ],
        **({"not_now": not_now} if not_now else {}),
    }


def _only_at_other_times(not_now: list[dict[str, object]]) -> dict[str, object] | None:
    return {"limit": None, "rule": None, "not_now": not_now} if not_now else None


def _not_now_fields(key: str, one: NotNow) -> dict[str, object]:
    return {
        "rule": _entity(one.rule),
        "limit": _number(_limit(key, one.rule)),
        "level": one.level.number,
        "source": one.rule.source,
        "reason": one.reason,
    }


def _ip_fields(found: IpVerdict | None) -> dict[str, object] | None:
    if found is None:
        return None
    not_now: list[dict[str, object]] = [_ip_rule_fields(rule, reason) for rule, reason in found.not_now]
    if found.rule is None:
        return _only_at_other_times(not_now)
    return {
        "limit": _number(found.rule.connection_creation_rate),
        "rule": {"ip": str(found.rule.ip)},
        "source": found.rule.source,
        **({"times": list(found.times)} if found.times else {}),
        "bucket": {"ip": found.ip},
        "lost": [] if found.lost is None else [_ip_rule_fields(found.lost, _OWN_RULE)],
        **({"not_now": not_now} if not_now else {}),
    }


def _ip_rule_fields(rule: IpRule, reason: str) -> dict[str, object]:
    return {
        "rule": {"ip": str(rule.ip)},
        "limit": _number(rule.connection_creation_rate),
        "source": rule.source,
        "reason": reason,
    }


def _as_text(found: Explanation, loaded: Loaded) -> Iterator[str]:
    client = f"client-id {found.client_id}" if found.client_id else "no client-id"
    yield f"user {found.user}, {client}"
    if found.charged_user != found.user:
        yield f"  folded       charged as user {found.charged_user} (principals.fold)"
    if found.is_exempt:
        yield "  exempt       no quota holds for this user (principals.exempt)"
    else:
        yield from _client_lines(found, loaded)
    if found.of_ip is not None:
        yield ""
        yield from _ip_lines(found.of_ip)


def _client_lines(found: Explanation, loaded: Loaded) -> Iterator[str]:
    bound_ms = loaded.config.max_throttle_time_ms
    bound = "without bound" if bound_ms is None else f"at most {bound_ms / 1_000:g} s each"
    yield f"  pauses       {bound} (max_throttle_time)"
    for verdict in found.verdicts:
        yield ""
        yield from _verdict_lines(verdict)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    if verdict.rule is None or verdict.level is None:
        yield f"{verdict.key}: not limited"
        if verdict.why:
            yield f"  why          {verdict.why}"
    else:
        yield f"{verdict.key}: {_amount(verdict.key, verdict.limit)}"
        yield f"  rule         {_words(_entity(verdict.rule))} ({verdict.rule.source})"
        yield from (f"  time         {words}" for words in verdict.times)
        yield f"  level        {verdict.level.number} of 8: {verdict.level.says}"
        yield f"  bucket       {_sharing(verdict.bucket)}"
        yield from _listener_lines(verdict)
    for candidate in verdict.lost:
        if candidate.rule is not None:
            limit = _amount(verdict.key, _limit(verdict.key, candidate.rule))
            yield f"  lost         {_words(_entity(candidate.rule))}, {limit} ({candidate.rule.source})"
            yield f"               level {candidate.level.number}: {candidate.reason}"
    for one in verdict.not_now:
        limit = _amount(verdict.key, _limit(verdict.key, one.rule))
        yield f"  not now      {_words(_entity(one.rule))}, {limit} ({one.rule.source})"
        yield f"               level {one.level.number}: {one.reason}"


def _listener_lines(verdict: Verdict) -> Iterator[str]:
    for at in verdict.at_listeners:
        if at.enforcement is None:
            yield f"  listener     {at.listener}: not limited (inter_broker)"
            continue
        yield f"  listener     {at.listener}: {at.enforcement.value}, {_manner(at)}"
        if at.max_fetch_bytes is not None:
            yield f"               the max_bytes of a fetch is lowered to {_size(at.max_fetch_bytes)}"


def _manner(at: AtListener) -> str:
    if at.shaping is not None:
        return at.shaping.value
    return "closes nothing" if at.enforcement is Enforcement.OBSERVE else "closes what is too many"


def _ip_lines(found: IpVerdict) -> Iterator[str]:
    rule, lost = found.rule, found.lost
    if rule is None:
        yield f"{_OF_IPS} of {found.ip}: not limited"
    else:
        yield f"{_OF_IPS} of {found.ip}: {_amount(_OF_IPS, rule.connection_creation_rate)}"
        yield f"  rule         ip {rule.ip} ({rule.source})"
        yield from (f"  time         {words}" for words in found.times)
        yield f"  bucket       {found.ip}; all its connections to a broker, whoever they log in as"
    if lost is not None:
        yield f"  lost         ip {lost.ip}, {_amount(_OF_IPS, lost.connection_creation_rate)} ({lost.source})"
        yield f"               {_OWN_RULE}"
    for one, reason in found.not_now:
        yield f"  not now      ip {one.ip}, {_amount(_OF_IPS, one.connection_creation_rate)} ({one.source})"
        yield f"               {reason}"


def _known_last(store: Store) -> str | None:
    """Return the directory with what this machine knew last of a store's topic; None where there is nothing."""
    return store.path if store.path is not None and Path(store.path).exists() else None


def _store_hint(store: Store) -> Iterator[str]:
    """Say how old the topic's rules may be; a store that is a directory is this machine's, and never older."""
    if store.topic is None:
        return
    known_last = _known_last(store)
    told = (
        "this is what the file says; the topic may have rules for other entities"
        if known_last is None
        else f"its rules are shown as this machine knew it last ({known_last}); it may have others by now"
    )
    yield ""
    others = "kafka-quota-proxy quotas describe asks a proxy that runs"
    yield f"store {store.topic}: {told}, and is not asked here: {others}"


def _topic_hint(config: ProxyConfig) -> Iterator[str]:
    if config.store is not None:
        yield from _store_hint(config.store)
    if config.quotas_from is not None:
        others = (
            "the brokers may have quotas of other entities, and are not asked here: see kafka-configs.sh --describe"
            if isinstance(config.quotas_from, QuotasFromBroker)
            else "the topic may have rules for other entities, and shares for this proxy, and is not asked here"
        )
        yield ""
        yield f"quotas_from {config.quotas_from}: this is what the file says; {others}"


def _queue_hints(config: ProxyConfig) -> Iterator[str]:
    how = f"--url http://{config.admin.bind}" if config.admin else "--url (and admin.bind in the file)"
    names = [listener.name for listener in config.listeners if listener.fair_call_queue is not None]
    if names:
        yield ""
        yield (
            f"fair_call_queue at listener {', '.join(names)}: the client's priority follows from what it has cost of "
            f"late; {how} tells it"
        )


def _sharing(bucket: Tags) -> str:
    if bucket.user and bucket.client_id:
        return f"user {bucket.user} with client-id {bucket.client_id}; all such connections to a broker share it"
    if bucket.user:
        return f"user {bucket.user}; shared by its client-ids at a broker, but those with a rule of user and client-id"
    return f"client-id {bucket.client_id}; shared by all users at a broker, but those with a rule of their own"


def _entity(rule: QuotaRule) -> Mapping[str, str]:
    names = {"user": rule.user, "client-id": rule.client_id}
    return {key: str(name) for key, name in names.items() if name is not None}


def _words(entity: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {name}" for key, name in entity.items())


def _limit(key: str, rule: QuotaRule) -> float | None:
    limit: float | None = getattr(rule, key)
    return limit


def _amount(key: str, limit: float | None) -> str:
    if limit is None or limit >= UNLIMITED:
        return "unlimited"
    return _WORDS[key](limit) if key in _WORDS else f"{_size(int(limit))} per second"


def _number(limit: float | None) -> float:
    """Return a limit as JSON has it: a whole number without a fraction, for no limit Kafka's."""
    limit = UNLIMITED if limit is None else min(limit, UNLIMITED)
    return int(limit) if limit == int(limit) else limit


# By key; bytes per second where there is none.
_WORDS: Final[Mapping[str, Callable[[float], str]]] = {
    QuotaKind.REQUEST.value: lambda limit: f"{_number(limit)} % of a thread's time",
    QuotaKind.REQUEST_RATE.value: lambda limit: f"{_number(limit)} requests per second",
    QuotaKind.MUTATION.value: lambda limit: f"{_number(limit)} partitions per second, created or deleted",
    CONNECTIONS.label: lambda limit: f"{_number(limit)} connections open at once",
    _OF_IPS: lambda limit: f"{_number(limit)} connections per second",
}


def _size(size_bytes: int) -> str:
    for unit, factor in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes} bytes ({size_bytes / factor:.4g} {unit})"
    return f"{size_bytes} bytes"
