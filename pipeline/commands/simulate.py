"""``kafka-quota-pipeline simulate`` generates the usage log of a made-up cluster."""

import argparse
import sys
from typing import Final

from kafka_quota_proxy.pipeline.commands.execution import running, say
from kafka_quota_proxy.pipeline.simulate import SimulatedCluster, simulated

# Monday, 7 September 2026, 00:00 UTC.
_START_MS: Final = 1_788_739_200_000


def execute(args: argparse.Namespace) -> int:
    """Write the usage log, with a directory for each day, and return the exit status."""
    cluster = SimulatedCluster(
        entities=args.entities,
        brokers=args.brokers,
        days=args.days,
        interval_ms=args.interval,
        start_ms=_START_MS,
        seed=args.seed,
    )
    with running(args) as (spark, output):
        say(f"making up {cluster.intervals:,} intervals of {cluster.buckets:,} buckets")
        output.table("days", simulated(spark, cluster), partitions=["day"], form=args.format, files=None)
    sys.stdout.write(f"{args.out}\n")
    return 0
