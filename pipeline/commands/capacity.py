"""``kafka-quota-pipeline capacity`` suggests limits from past use, and replays the usage log under these limits."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import ProxyConfig, Shaping
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.capacity import (
    Suggestion,
    broker_minutes,
    brokers,
    byte_usage,
    entities,
    hours,
    minutes,
    oversubscription,
    percentiles,
    rates,
    rules,
    suggestion,
)
from kafka_quota_proxy.pipeline.capacity_report import Findings, capacity_page
from kafka_quota_proxy.pipeline.chargeback import Owner, owner_at
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.limit_search import LEAST_LIMIT, Bounds, Entity
from kafka_quota_proxy.pipeline.quota_comparison import Comparison, Use, compare
from kafka_quota_proxy.pipeline.quotas_file import as_file, read_quotas
from kafka_quota_proxy.pipeline.record import BUCKET, ENTITY
from kafka_quota_proxy.pipeline.report import duration, label, size
from kafka_quota_proxy.pipeline.safe_limits import full_brokers, log_replays, safe_limits
from kafka_quota_proxy.pipeline.session import is_small
from kafka_quota_proxy.pipeline.side_inputs import capacities, owners
from kafka_quota_proxy.pipeline.usage_reader import Usage
from kafka_quota_proxy.pipeline.whatif import LogReplay
from kafka_quota_proxy.pipeline.writing import Output

_TOP: Final = 6
# The columns of tables.
_WORST: Final = ("throttled_share", "longest_delay_ms")
_SUGGESTED: Final = (*Suggestion._fields, "throttled_hours", *_WORST)
_SUMS: Final = (
    "proxy", "broker", "kind", "peak", "current", "limits", "limited", "capacity", "oversubscription",
    "peak_utilisation",
)  # fmt: skip
_HOUR_MS: Final = 3_600_000


def execute(args: argparse.Namespace) -> int:
    """Write the limits and the report, print where they are, and return the exit status."""
    bounds, known = _bounds(args), capacities(args.capacities) if args.capacities else {}
    current = read_quotas(args.current) if args.current else None
    teams = owners(args.owners) if args.owners else None
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output)
        say("measuring rates")
        measured = output.keep("measured", percentiles(rates(byte_usage(usage.records)), args.percentile))
        # There is one row for each entity and broker. One machine has to read the rules of quotas.yaml anyway.
        buckets: pd.DataFrame = measured.toPandas()
        if buckets.empty:
            raise UsageError(f"--usage {args.usage}: has no record of kind produce or fetch")
        every = entities(buckets)
        first = [suggestion(entity) for entity in every]
        quotas = CandidateQuotas(config=replace(_held(args), quotas=tuple(rule for rule, _ in rules(first))))
        replay = LogReplay(usage.records, buckets, count=usage.count, is_small=is_small(usage.count))
        replays = log_replays(replay, buckets, first, quotas, max_delay_ms=args.max_delay, say=say)
        suggested, happened = safe_limits(first, replays, bounds, headroom=args.headroom)
        warnings = full_brokers(suggested, buckets, known)
        logged = {(row["kind"], row["user"], row["client_id"]): row for row in every}
        uses = {
            one[:3]: Use(
                one.percentile if one.need is None else one.need,
                logged[one[:3]]["logged_limit"],
                logged[one[:3]]["logged_share"],
            )
            for one in suggested
        }
        compared = compare(current, uses, headroom=args.headroom, share=bounds.share)
        say("writing tables and the report")
        output.table("buckets", measured.coalesce(1).sortWithinPartitions(*BUCKET))
        _write(output, args, usage, buckets, _Found(suggested, happened, warnings, compared), known, teams)
    for warning in warnings:
        sys.stdout.write(f"{warning}\n")
    decided = Counter(one.decided_by for one in suggested if one.limit is not None)
    words = ", ".join(
        f"{count} by {bound}" for bound, count in sorted(decided.items(), key=lambda one: (-one[1], one[0]))
    )
    names = len({one[1:3] for one in suggested})
    sys.stdout.write(f"{decided.total()} limits for {names} entities ({words or 'none'}): {args.out}/quotas.yaml\n")
    sys.stdout.write(f"{args.out}/report.html\n")
    return 0


class _Found(NamedTuple):
    """The suggested limits, the outcome of a replay under each, sentences about full brokers, and what is in force."""

    suggestions: list[Suggestion]
    outcomes: Mapping[Entity, dict[str, Any]]
    warnings: Sequence[str]
    compared: Comparison


def _bounds(args: argparse.Namespace) -> Bounds:
    # With --percentile 99, an acceptable limit throttles an entity for at most 1 % of its time.
    return Bounds(1 - args.percentile / 100, args.max_delay)


def _write(
    output: Output,
    args: argparse.Namespace,
    usage: Usage,
    buckets: pd.DataFrame,
    found: _Found,
    known: Mapping[tuple[int, str], float],
    teams: Sequence[Owner] | None,
) -> None:
    suggested, happened, warnings, compared = found
    used = output.keep("minutes", minutes(byte_usage(usage.records)))
    hourly, of_brokers = output.keep("hours", hours(used)), broker_minutes(used)
    first_ms, last_ms = int(buckets["from_ms"].min()), int(buckets["until_ms"].max())
    output.rows("suggestions", _SUGGESTED, _suggestions(suggested, happened))
    limits = {one[:3]: one.limit for one in suggested}
    sums = oversubscription(brokers(of_brokers).toPandas(), buckets, limits, compared.in_force, known)
    sums = sums.astype(object).where(sums.notna(), None)
    output.rows("oversubscription", _SUMS, sums[[*_SUMS]].itertuples(index=False))
    quotas = quotas_text(suggested, args, warnings)
    output.text("quotas.yaml", quotas)
    span = f"{size(int(buckets['amount'].sum()))} from {_day(first_ms)} to {_day(last_ms)} UTC"
    findings = Findings(
        suggestions=suggested,
        top=_busiest(hourly, suggested),
        brokers=sums.to_dict("records"),
        throttled=happened,
        log=f"From {int(buckets['intervals'].sum()):,} records, {span}.",
        warnings=warnings,
        notes=[*usage.words(), *_unlimited(suggested)],
        percentile=args.percentile,
        bounds=_bounds(args),
        quotas=quotas,
        in_force=compared.in_force,
        states=compared.states,
        unused=compared.unused,
        owner=None if teams is None else owner_at(teams, last_ms - 1),
    )
    output.text("report.html", capacity_page(findings))


def _busiest(hourly: DataFrame, suggested: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Return the highest rate in each hour of the entities that use most. The suggestions are ordered by use."""
    is_one = [
        (F.col("kind") == kind) & (F.col("user") == user) & (F.col("client_id") == client_id)
        for kind, user, client_id in (one[:3] for one in suggested[:_TOP])
    ]
    rows = hourly.where(reduce(or_, is_one)).groupBy(*ENTITY, "hour_ms").agg(F.max("peak").alias("peak"))
    return [row.asDict() for row in rows.collect()]


def _suggestions(
    suggested: Iterable[Suggestion], happened: Mapping[Entity, Mapping[str, Any]]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the table ``suggestions``, sorted by entity.

    Each says how its suggested limit would have throttled the entity, on the worst broker.
    """
    for one in sorted(suggested, key=lambda one: one[:3]):
        row = happened.get(one[:3])
        worst = [row[name] for name in _WORST] if row else [None] * len(_WORST)
        yield *one, row["throttle_time_ms"] / _HOUR_MS if row else None, *worst


def _unlimited(suggested: list[Suggestion]) -> list[str]:
    return [
        f"No limit for {label(one.user, one.client_id)} ({one.kind}): {one.why}."
        for one in suggested
        if one.limit is None
    ]


def quotas_text(suggested: list[Suggestion], args: argparse.Namespace, warnings: Sequence[str] = ()) -> str:
    """Return the text of the file quotas.yaml, which contains a quota rule for each suggested limit."""
    head = [
        f"Suggested by kafka-quota-pipeline capacity --percentile {args.percentile:g} --headroom {args.headroom:g} "
        f"--max-delay {args.max_delay / 1_000:g}s.",
        "Bytes per second, for each broker by itself. Try them with enforcement: observe.",
        f"Comments say what decided: the percentile; the share of time throttled ({100 - args.percentile:.3g} %);",
        f"the longest delay ({duration(args.max_delay)}); or the minimum of {LEAST_LIMIT:,} B/s.",
        *warnings,
        *_unlimited(suggested),
    ]
    return as_file(rules(suggested), head=head, held=_held(args))


def _held(args: argparse.Namespace) -> ProxyConfig:
    """Return a configuration whose only setting is the shaping (how rates are measured) that the replay used."""
    return ProxyConfig(listeners=(), shaping=Shaping(args.shaping))


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
