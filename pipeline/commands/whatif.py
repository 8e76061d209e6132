"""``kafka-quota-pipeline whatif`` forecasts which clients a set of proposed quotas would throttle, and for how long."""

import argparse
import sys

from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.quotas_file import read_quotas
from kafka_quota_proxy.pipeline.record import CANDIDATE_BUCKET
from kafka_quota_proxy.pipeline.report import duration, size
from kafka_quota_proxy.pipeline.whatif import forecast, outcomes, resolved, total_demand

_SHOWN = 20


def execute(args: argparse.Namespace) -> int:
    """Write tables that forecast the throttling by each proposed quota and hour, and print where it would last longest.

    Return the exit status.
    """
    config = read_quotas(args.quotas)
    quotas = CandidateQuotas(config=config, shaping=Shaping(args.shaping) if args.shaping else None)
    with running(args) as (spark, output):
        records = usage_of(args, spark, output).records
        used = output.keep("demand", total_demand(records))
        found = output.keep("resolved", resolved(used, quotas))
        say(f"replaying the log under {len(config.quotas)} rules")
        hours = output.keep("replayed", forecast(records, used, found, quotas))
        by_bucket = output.keep("outcomes", outcomes(used, found, hours))
        output.table("entities", by_bucket.orderBy(*CANDIDATE_BUCKET), form="csv")
        columns = [name for name in hours.columns if name not in ("limit", "sent_ms", "busy_ms")]
        day = F.date_format(F.timestamp_millis("hour_ms"), "yyyy-MM-dd").alias("day")
        output.daily("hours", hours.select(*columns, day), *CANDIDATE_BUCKET, "hour_ms", form="csv")
        output.table("rules", found.orderBy("kind", "user", "client_id"), form="csv")
        waited = by_bucket.where("throttle_time_ms > 0")
        count = waited.count()
        worst = waited.orderBy(F.desc("throttle_time_ms"), *CANDIDATE_BUCKET).limit(_SHOWN).collect()
    for row in worst:
        name = " / ".join(part for part in (row["bucket_user"], row["bucket_client_id"]) if part) or "(no name)"
        shared = f" ({row['clients']} clients together)" if row["clients"] > 1 else ""
        sys.stdout.write(
            f"{name}{shared}, {row['kind']}, broker {row['broker']}: throttled for {duration(row['throttle_time_ms'])} "
            f"({row['throttled_share']:.2%} of its time), {size(row['delayed_amount'])} of {size(row['amount'])} "
            f"later, by {duration(row['longest_delay_ms'])} at most; {size(row['achieved_rate'])}/s of "
            f"{size(row['asked_rate'])}/s\n"
        )
    if count > _SHOWN:
        sys.stdout.write(f"and {count - _SHOWN} more\n")
    elif not count:
        sys.stdout.write("no client would have waited\n")
    sys.stdout.write(f"{args.out}/entities\n")
    return 0
