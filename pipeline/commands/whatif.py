"""``kafka-quota-pipeline whatif`` forecasts which clients a set of proposed quotas would throttle, and for how long."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.chargeback import owner_at
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.limit_search import Bounds, Entity
from kafka_quota_proxy.pipeline.quota_comparison import Unused, limits_in_force
from kafka_quota_proxy.pipeline.quotas_file import read_quotas
from kafka_quota_proxy.pipeline.record import CANDIDATE_BUCKET, ENTITY
from kafka_quota_proxy.pipeline.report import duration, label, size
from kafka_quota_proxy.pipeline.safe_limits import on_worst_broker
from kafka_quota_proxy.pipeline.session import is_small
from kafka_quota_proxy.pipeline.side_inputs import owners
from kafka_quota_proxy.pipeline.whatif import LogReplay, outcomes, resolved, total_demand
from kafka_quota_proxy.pipeline.whatif_report import Client, Forecast, Outcome, whatif_page

# A client may be throttled for this part of its time.
_SHARE: Final = 0.01
_SHOWN: Final = 20


def execute(args: argparse.Namespace) -> int:
    """Write tables that forecast the throttling by each proposed quota and hour, and print where it would last longest.

    Return the exit status.
    """
    config = read_quotas(args.quotas)
    teams = owners(args.owners) if args.owners else None
    quotas = CandidateQuotas(config=config)
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output)
        used: pd.DataFrame = total_demand(usage.records).toPandas()
        clients = _clients(used)
        entities = [client.entity for client in clients]
        replay = LogReplay(usage.records, used, count=usage.count, is_small=is_small(usage.count))
        say(f"replaying the log under {len(config.quotas)} rules")
        names = resolved(sorted(entities), quotas)
        hours = output.keep("replayed", replay.hours(names, quotas))
        by_bucket = outcomes(used, names, hours)
        output.rows("entities", [*by_bucket.columns], _rows(by_bucket))
        columns = [name for name in hours.columns if name not in ("limit", "sent_ms", "busy_ms")]
        day = F.date_format(F.timestamp_millis("hour_ms"), "yyyy-MM-dd").alias("day")
        output.daily("hours", hours.select(*columns, day), *CANDIDATE_BUCKET, "hour_ms", form="csv")
        output.rows("rules", [*names.columns], _rows(names))
        outcome, unused = _outcome(config, entities, by_bucket)
        page = Forecast(
            clients=clients,
            outcome=outcome,
            unused=unused,
            bounds=Bounds(_SHARE, args.max_delay),
            owner=None if teams is None else owner_at(teams, max(used["until_ms"], default=0) - 1),
            notes=usage.words(),
        )
        output.text("report.html", whatif_page(page))
    _print(by_bucket)
    sys.stdout.write(f"{args.out}/entities\n{args.out}/report.html\n")
    return 0


def _print(by_bucket: pd.DataFrame) -> None:
    """Print the buckets that would be throttled longest."""
    waited = by_bucket[by_bucket["throttle_time_ms"] > 0]
    # The rows are sorted by bucket already.
    worst = waited.sort_values("throttle_time_ms", ascending=False, kind="stable").head(_SHOWN)
    for row in worst.to_dict("records"):
        name = label(row["bucket_user"], row["bucket_client_id"])
        shared = f" ({row['clients']} clients together)" if row["clients"] > 1 else ""
        sys.stdout.write(
            f"{name}{shared}, {row['kind']}, broker {row['broker']}: throttled for {duration(row['throttle_time_ms'])} "
            f"({row['throttled_share']:.2%} of its time), {size(row['delayed_amount'])} of {size(row['amount'])} "
            f"later, by {duration(row['longest_delay_ms'])} at most; {size(row['achieved_rate'])}/s of "
            f"{size(row['asked_rate'])}/s\n"
        )
    if len(waited) > _SHOWN:
        sys.stdout.write(f"and {len(waited) - _SHOWN} more\n")
    elif waited.empty:
        sys.stdout.write("no client would have waited\n")


def _rows(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, with None for a value that is missing."""
    yield from frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)


def _clients(used: pd.DataFrame) -> list[Client]:
    """Return all clients of the log, the busiest first."""
    found = used.groupby([*ENTITY], as_index=False).agg(
        amount=("amount", "sum"), densest=("densest", "max"), logged_limit=("logged_limit", "min")
    )
    return sorted((Client(*row) for row in _rows(found)), key=lambda one: (-one.amount, one.entity))


def _outcome(config: ProxyConfig, entities: list[Entity], by_bucket: pd.DataFrame) -> tuple[Outcome, list[Unused]]:
    limits, unused = limits_in_force(config, entities)
    rows = on_worst_broker(by_bucket).to_dict("records")
    throttled = {(row["kind"], row["user"], row["client_id"]): row for row in rows}
    return Outcome(limits=limits, throttled=throttled), unused
