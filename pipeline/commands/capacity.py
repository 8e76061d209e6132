"""``kafka-quota-pipeline capacity`` suggests limits from past use, and replays the usage log under these limits."""

import argparse
import sys
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import ProxyConfig, Shaping
from kafka_quota_proxy.pipeline.capacity import (
    ENTITY,
    Suggestion,
    brokers,
    byte_usage,
    config_of,
    entities,
    growth,
    hourly,
    minutes,
    oversubscription,
    percentiles,
    ramp_steps,
    rules,
    seasons,
    suggestion,
)
from kafka_quota_proxy.pipeline.capacity_report import capacity_page, label
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.input_files import capacities
from kafka_quota_proxy.pipeline.proposed_quotas import ProposedQuotas
from kafka_quota_proxy.pipeline.quotas_file import as_file
from kafka_quota_proxy.pipeline.record import BUCKET
from kafka_quota_proxy.pipeline.report import size
from kafka_quota_proxy.pipeline.usage_reader import Usage
from kafka_quota_proxy.pipeline.whatif import DEMAND, forecast, outcomes, resolved
from kafka_quota_proxy.pipeline.writing import Output

_TOP: Final = 6
_NAMES: Final = ", ".join(f"{name} string" for name in ENTITY)
_SUGGESTED: Final = f"{_NAMES}, percentile long, peak long, part long, limit long, why string, raises int"
_HAPPENED: Final = f"{_NAMES}, throttled_hours double, throttled_share double, longest_delay_ms long"
_HOUR_MS: Final = 3_600_000


def execute(args: argparse.Namespace) -> int:
    """Write the limits and the report, print where they are, and return the exit status."""
    known = capacities(args.capacities) if args.capacities else {}
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output)
        used = byte_usage(usage.records)
        say("measuring rates")
        buckets = output.keep("buckets", percentiles(used, args.percentile))
        # There is one row for each entity, as many as the rules of quotas.yaml, which one machine has to read anyway.
        every = entities(buckets).orderBy(F.desc("amount"), *ENTITY).collect()
        if not every:
            raise UsageError(f"--usage {args.usage}: has no record of kind produce or fetch")
        first = [suggestion(entity, headroom=args.headroom) for entity in every]
        suggested, happened = _replayed(usage.records, buckets, first, args, output)
        _write(spark, output, args, usage, used, buckets, suggested, happened, known)
    limited = sum(one.limit is not None for one in suggested)
    sys.stdout.write(f"{limited} limits for {len({one[1:3] for one in suggested})} entities: {args.out}/quotas.yaml\n")
    sys.stdout.write(f"{args.out}/report.html\n")
    return 0


def _replayed(
    records: DataFrame, buckets: DataFrame, suggested: list[Suggestion], args: argparse.Namespace, output: Output
) -> tuple[list[Suggestion], dict[tuple[str, str, str], dict[str, Any]]]:
    """Replay the log under all limits to try, and choose the lowest acceptable limit of each entity.

    Return the suggestions with the chosen limits, and the outcomes under these limits, keyed by entity.
    """
    quotas = ProposedQuotas(config=config_of(suggested), shaping=Shaping(args.shaping) if args.shaping else None)
    ladders = {one[:3]: one.ladder() for one in suggested if one.limit is not None}
    rungs = [(*one[:3], float(one.limit)) for ladder in ladders.values() for one in ladder if one.limit is not None]
    say(f"replaying the log under {len(ladders)} limits")
    limits = records.sparkSession.createDataFrame(rungs, f"{_NAMES}, limit double")
    used = buckets.select(*BUCKET, *DEMAND)
    found = output.keep("rungs", resolved(used, quotas).drop("limit").join(limits, on=[*ENTITY], how="inner"))
    hours = output.keep("replayed", forecast(records, used, found, quotas))
    worst = _worst(outcomes(used, found, hours)).collect()  # a few rows for each entity
    outcome = {(row["kind"], row["user"], row["client_id"], row["limit"]): row.asDict() for row in worst}
    # With --percentile 99, an acceptable limit throttles an entity for at most 1 % of its time.
    bearable = 1 - args.percentile / 100
    chosen = {
        names: next((one for one in ladder if outcome[*names, one.limit]["throttled_share"] <= bearable), ladder[-1])
        for names, ladder in ladders.items()
    }
    happened = {names: outcome[*names, one.limit] for names, one in chosen.items()}
    return [chosen.get(one[:3], one) for one in suggested], happened


def _worst(by_bucket: DataFrame) -> DataFrame:
    """Return what the replay found for each entity and limit, from what it found on the separate brokers.

    The fraction of throttled time and the longest delay are the highest on any broker. The other columns are sums over
    all brokers.
    """
    names = [F.col("kind"), F.col("bucket_user").alias("user"), F.col("bucket_client_id").alias("client_id")]
    summed = ("throttle_time_ms", "throttled_requests", "delayed_amount")
    return by_bucket.groupBy(*names, "limit").agg(
        F.max("throttled_share").alias("throttled_share"),
        F.max("longest_delay_ms").alias("longest_delay_ms"),
        *(F.sum(name).alias(name) for name in summed),
    )


def _write(
    spark: SparkSession,
    output: Output,
    args: argparse.Namespace,
    usage: Usage,
    used: DataFrame,
    buckets: DataFrame,
    suggested: list[Suggestion],
    happened: dict[tuple[str, str, str], dict[str, Any]],
    known: dict[tuple[int, str], float],
) -> None:
    say("writing tables and the report")
    limits = spark.createDataFrame([tuple(one) for one in suggested], _SUGGESTED)
    used = output.keep("minutes", minutes(used))
    hours = output.keep("hours", hourly(used))
    trends = output.keep("growth", growth(hours))
    table = limits.drop("raises").join(trends, on=[*ENTITY], how="left")
    output.table(
        "suggestions", table.join(_waits(spark, happened), on=[*ENTITY], how="left").orderBy(*ENTITY), form="csv"
    )
    output.table("buckets", buckets.orderBy(*buckets.columns[:5]), form="parquet")
    by_hour = seasons(used)
    output.table("seasons", by_hour.orderBy("kind", "weekday", "hour"), form="csv")
    sums = output.keep("brokers", oversubscription(brokers(used), buckets, limits.select(*ENTITY, "limit"), known))
    output.table("oversubscription", sums.orderBy("broker", "kind", "proxy"), form="csv")
    steps = ramp_steps(suggested, args.ramp_steps)
    output.text("ramp.csv", _ramp(steps))
    for number, step in enumerate(steps, 1):
        output.text(f"ramp/step-{number}.yaml", step_text(number, step, args))
    output.text("quotas.yaml", quotas_text(suggested, args))
    # The list of suggestions is ordered by use. The first rows of a DataFrame would be arbitrary on a cluster.
    top = spark.createDataFrame([one[: len(ENTITY)] for one in suggested[:_TOP]], _NAMES)
    span = buckets.agg(F.min("from_ms"), F.max("until_ms"), F.sum("amount"), F.sum("intervals")).first()
    first_ms, last_ms, amount, count = span if span is not None else (0, 0, 0, 0)
    text = capacity_page(
        suggestions=suggested,
        top=[row.asDict() for row in hours.join(F.broadcast(top), on=[*ENTITY], how="left_semi").collect()],
        seasons=[row.asDict() for row in by_hour.collect()],
        brokers=[row.asDict() for row in sums.collect()],
        throttled=happened,
        growth={(row["kind"], row["user"], row["client_id"]): row["percent_in_30_days"] for row in trends.collect()},
        log=f"From {count:,} records, {size(amount)} from {_day(first_ms)} to {_day(last_ms)} UTC.",
        notes=[*usage.words(), *_unlimited(suggested)],
        percentile=args.percentile,
    )
    output.text("report.html", text)


def _waits(spark: SparkSession, happened: dict[tuple[str, str, str], dict[str, Any]]) -> DataFrame:
    """Return a row for each entity that says for how long its suggested limit would have throttled it."""
    rows = [
        (*names, row["throttle_time_ms"] / _HOUR_MS, row["throttled_share"], row["longest_delay_ms"])
        for names, row in happened.items()
    ]
    return spark.createDataFrame(rows, _HAPPENED)


def _unlimited(suggested: list[Suggestion]) -> list[str]:
    return [
        f"No limit for {label(one.user, one.client_id)} ({one.kind}): {one.why}."
        for one in suggested
        if one.limit is None
    ]


def quotas_text(suggested: list[Suggestion], args: argparse.Namespace) -> str:
    """Return the text of the file quotas.yaml, which contains a quota rule for each suggested limit."""
    head = [
        f"Suggested by kafka-quota-pipeline capacity --percentile {args.percentile:g} --headroom {args.headroom:g}.",
        "Bytes per second, for each broker by itself. Try them with enforcement: observe; ramp/ has steps.",
        *_unlimited(suggested),
    ]
    return as_file(rules(suggested), head=head, held=_held(args))


def step_text(number: int, step: list[Suggestion], args: argparse.Namespace) -> str:
    """Return the text of ramp/step-NUMBER.yaml."""
    head = [
        f"Step {number} of {args.ramp_steps} of the ramp to the limits of quotas.yaml.",
        "Bytes per second, for each broker by itself.",
    ]
    return as_file(rules(step), head=head, held=_held(args))


def _held(args: argparse.Namespace) -> ProxyConfig:
    """Return a configuration whose only setting is the shaping (how rates are measured) that the replay used."""
    return ProxyConfig(listeners=(), shaping=Shaping(args.shaping) if args.shaping else Shaping.SAMPLED)


def _ramp(steps: list[list[Suggestion]]) -> str:
    lines = ["step,kind,user,client_id,limit"]
    for number, step in enumerate(steps, 1):
        for one in step:
            names = (f'"{name.replace(chr(34), chr(34) * 2)}"' for name in (one.user, one.client_id))
            lines.append(f"{number},{one.kind},{','.join(names)},{one.limit}")
    return "\n".join(lines) + "\n"


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
