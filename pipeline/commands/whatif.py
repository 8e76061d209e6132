"""``kafka-quota-pipeline whatif`` forecasts which clients a set of proposed quotas would throttle, and for how long."""

import argparse
import sys
from typing import Final

import pandas as pd
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.quotas_file import read_quotas
from kafka_quota_proxy.pipeline.record import CANDIDATE_BUCKET, ENTITY
from kafka_quota_proxy.pipeline.report import duration, size
from kafka_quota_proxy.pipeline.session import is_small
from kafka_quota_proxy.pipeline.whatif import LogReplay, outcomes, resolved, total_demand

_SHOWN: Final = 20
_BUCKET: Final = "proxy string, broker int, kind string, bucket_user string, bucket_client_id string"
_ENTITIES: Final = (
    f"{_BUCKET}, limit double, clients long, amount long, delayed_amount long, throttled_requests long, "
    "throttle_time_ms long, longest_delay_ms long, throttled_share double, asked_rate double, achieved_rate double, "
    "late_ms long"
)
_RULES: Final = (
    "kind string, user string, client_id string, bucket_user string, bucket_client_id string, limit double, rule string"
)


def execute(args: argparse.Namespace) -> int:
    """Write tables that forecast the throttling by each proposed quota and hour, and print where it would last longest.

    Return the exit status.
    """
    config = read_quotas(args.quotas)
    quotas = CandidateQuotas(config=config, shaping=Shaping(args.shaping) if args.shaping else None)
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output)
        used: pd.DataFrame = total_demand(usage.records).toPandas()
        found = resolved(sorted(set(used[[*ENTITY]].itertuples(index=False, name=None))), quotas)
        say(f"replaying the log under {len(config.quotas)} rules")
        replay = LogReplay(usage.records, used, quotas, count=usage.count, is_small=is_small(usage.count))
        hours = output.keep("replayed", replay.hours(found))
        by_bucket = outcomes(used, found, hours)
        output.table("entities", spark.createDataFrame(by_bucket, _ENTITIES), form="csv")
        columns = [name for name in hours.columns if name not in ("limit", "sent_ms", "busy_ms")]
        day = F.date_format(F.timestamp_millis("hour_ms"), "yyyy-MM-dd").alias("day")
        output.daily("hours", hours.select(*columns, day), *CANDIDATE_BUCKET, "hour_ms", form="csv")
        output.table("rules", spark.createDataFrame(found, _RULES), form="csv")
    waited = by_bucket[by_bucket["throttle_time_ms"] > 0]
    # The rows are sorted by bucket already.
    worst = waited.sort_values("throttle_time_ms", ascending=False, kind="stable").head(_SHOWN).to_dict("records")
    count = len(waited)
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
