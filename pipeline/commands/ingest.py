"""``kafka-quota-pipeline ingest`` adds the records of a usage log to a lake that does not have them."""

import argparse
import sys

from kafka_quota_proxy.pipeline.commands.execution import check_apart, running, usage_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.lake import add, is_lake


def execute(args: argparse.Namespace) -> int:
    """Add the records, print their number, and return the exit status."""
    if is_lake(args.usage):
        raise UsageError(f"--usage {args.usage}: is a lake; ingest reads the log itself")
    check_apart(args.usage, "--lake", args.lake)
    with running(args) as (spark, output):
        added = add(usage_of(args, spark, output).records, args.lake, args.into)
    sys.stdout.write(f"{added:,} records added to {args.lake}\n")
    return 0
