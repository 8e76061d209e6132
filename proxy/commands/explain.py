"""``kafka-quota-proxy explain``: which quota holds for a client, at which level, and why not another.

The answers come from the code that runs: rules are resolved and buckets made as the proxy does it, for a client that
comes at time 0.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from config.errors import ConfigError
from config.load import Loaded, load
from config.model import ANONYMOUS, UNLIMITED, Enforcement, Listener, QuotaRule, Shaping
from proxy.quota.broker import BrokerQuotas, PrincipalRules
from proxy.quota.client import Bucket
from proxy.quota.entity import Candidate, Level, QuotaKind, Tags

_UNITS: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True, slots=True, kw_only=True)
class AtListener:
    """What holds for the client at one listener."""

    listener: str
    enforcement: Enforcement
    shaping: Shaping
    max_fetch_bytes: int | None  # what a fetch's max_bytes is lowered to; None where nothing is enforced


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What holds for the client in one kind of quota. ``rule`` is None where nothing limits it."""

    kind: QuotaKind
    rule: QuotaRule | None
    level: Level | None
    limit: int  # bytes per second
    bucket: Tags
    at_listeners: tuple[AtListener, ...]
    lost: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that can be said of one client."""

    user: str
    client_id: str
    charged_user: str  # after folding
    is_exempt: bool
    verdicts: tuple[Verdict, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``explain``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file")
    parser.add_argument("--user", metavar="U", default=ANONYMOUS, help=f"the user, without User: (default {ANONYMOUS})")
    parser.add_argument("--client-id", metavar="C", default="", help="the client-id (default: the client sends none)")
    parser.add_argument("--json", action="store_true", help="print an object for each kind of quota")


def execute(args: argparse.Namespace) -> int:
    """Print the explanation; return the exit status."""
    if not args.user:
        sys.stderr.write(
            f"kafka-quota-proxy explain: a user has a name; one that did not authenticate is {ANONYMOUS}\n"
        )
        return 2
    try:
        loaded = load(args.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = explain(loaded, user=args.user, client_id=args.client_id)
    sys.stdout.write(_as_json(found) if args.json else "".join(f"{line}\n" for line in _as_text(found, loaded)))
    return 0


def explain(loaded: Loaded, *, user: str, client_id: str) -> Explanation:
    """Resolve what holds for a client. ``client_id`` is "" for one that sends none."""
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
        verdicts=tuple(
            _verdict(
                loaded,
                [(listener, buckets[index]) for listener, buckets in buckets_at],
                manager.table.explain(user=charged_user, client_id=client_id),
            )
            for index, manager in enumerate(quotas_at[0][1].managers)
        ),
    )


def _verdict(loaded: Loaded, buckets_at: Sequence[tuple[Listener, Bucket]], candidates: Iterable[Candidate]) -> Verdict:
    bucket = buckets_at[0][1]
    return Verdict(
        kind=bucket.kind,
        rule=_with_line(bucket.rule, loaded),
        level=bucket.level,
        limit=min(int(bucket.limit), UNLIMITED),
        bucket=bucket.tags,
        at_listeners=tuple(_at_listener(listener, bucket, loaded) for listener, bucket in buckets_at),
        lost=tuple(
            replace(candidate, rule=_with_line(candidate.rule, loaded))
            for candidate in candidates
            if candidate.rule is not None and not candidate.wins
        ),
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


def _as_json(found: Explanation) -> str:
    return f"{json.dumps({verdict.kind.value: _fields(found, verdict) for verdict in found.verdicts}, indent=2)}\n"


def _fields(found: Explanation, verdict: Verdict) -> dict[str, object] | None:
    if verdict.rule is None or verdict.level is None:
        return None
    return {
        "limit": verdict.limit,
        "rule": _entity(verdict.rule),
        "level": verdict.level.number,
        "source": verdict.rule.source,
        "bucket": {"user": verdict.bucket.user, "client-id": verdict.bucket.client_id},
        "charged_user": found.charged_user,
        "listeners": {
            at.listener: {
                "enforcement": at.enforcement.value,
                "shaping": at.shaping.value,
                **({"max_fetch_bytes": at.max_fetch_bytes} if verdict.kind is QuotaKind.FETCH else {}),
            }
            for at in verdict.at_listeners
        },
        "lost": [
            {
                "rule": _entity(candidate.rule),
                "limit": _whole(verdict.kind, candidate.rule),
                "level": candidate.level.number,
                "source": candidate.rule.source,
                "reason": candidate.reason,
            }
            for candidate in verdict.lost
            if candidate.rule is not None
        ],
    }


def _as_text(found: Explanation, loaded: Loaded) -> Iterator[str]:
    client = f"client-id {found.client_id}" if found.client_id else "no client-id"
    yield f"user {found.user}, {client}"
    if found.charged_user != found.user:
        yield f"  folded       charged as user {found.charged_user} (principals.fold)"
    if found.is_exempt:
        yield "  exempt       no quota holds for this user (principals.exempt)"
        return
    bound_ms = loaded.config.max_throttle_time_ms
    bound = "without bound" if bound_ms is None else f"at most {bound_ms / 1_000:g} s each"
    yield f"  pauses       {bound} (max_throttle_time)"
    for verdict in found.verdicts:
        yield ""
        yield from _verdict_lines(verdict)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    if verdict.rule is None or verdict.level is None:
        yield f"{verdict.kind.value}: not limited"
    else:
        yield f"{verdict.kind.value}: {_rate(verdict.limit)}"
        yield f"  rule         {_words(_entity(verdict.rule))} ({verdict.rule.source})"
        yield f"  level        {verdict.level.number} of 8: {verdict.level.says}"
        yield f"  bucket       {_sharing(verdict.bucket)}"
        yield from _listener_lines(verdict)
    for candidate in verdict.lost:
        if candidate.rule is not None:
            limit = _rate(_whole(verdict.kind, candidate.rule))
            yield f"  lost         {_words(_entity(candidate.rule))}, {limit} ({candidate.rule.source})"
            yield f"               level {candidate.level.number}: {candidate.reason}"


def _listener_lines(verdict: Verdict) -> Iterator[str]:
    for at in verdict.at_listeners:
        yield f"  listener     {at.listener}: {at.enforcement.value}, {at.shaping.value}"
        if at.max_fetch_bytes is not None:
            yield f"               the max_bytes of a fetch is lowered to {_size(at.max_fetch_bytes)}"


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


def _whole(kind: QuotaKind, rule: QuotaRule) -> int:
    return min(int(kind.limit_of(rule) or UNLIMITED), UNLIMITED)


def _rate(rate: int) -> str:
    return "unlimited" if rate >= UNLIMITED else f"{_size(rate)} per second"


def _size(size_bytes: int) -> str:
    for unit, factor in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes} bytes ({size_bytes / factor:.4g} {unit})"
    return f"{size_bytes} bytes"
