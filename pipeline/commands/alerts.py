"""``kafka-quota-pipeline alerts`` prints each bucket that was over its limit or near it, for each window of time."""

import argparse
import sys

from kafka_quota_proxy.pipeline.alerts import alerts, as_json, in_order
from kafka_quota_proxy.pipeline.commands.execution import running, usage_of


def execute(args: argparse.Namespace) -> int:
    """Print the alerts as JSON Lines, in the order of their windows. Return the exit status."""
    with running(args) as (spark, output):
        found = in_order(alerts(usage_of(args, spark, output).records, window_ms=args.window, near=args.near))
        for row in as_json(found).toLocalIterator():
            sys.stdout.write(f"{row['value']}\n")
        if args.out is not None:
            output.table("alerts", found, form="json")
    return 0
