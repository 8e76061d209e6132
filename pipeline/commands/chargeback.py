"""``kafka-quota-pipeline chargeback`` adds up bytes and cost for each owner, with remarks on the log."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.chargeback import (
    NOBODY,
    Charge,
    bill,
    charged,
    gaps,
    month_of,
)
from kafka_quota_proxy.pipeline.commands.execution import running, say, span_of, usage_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.record import BYTE_KINDS
from kafka_quota_proxy.pipeline.report import size
from kafka_quota_proxy.pipeline.session import local_frame
from kafka_quota_proxy.pipeline.side_inputs import owners
from kafka_quota_proxy.pipeline.time_span import TimeSpan
from kafka_quota_proxy.pipeline.writing import Output

_SHOWN: Final = 20
_BILL: Final = "owner string, kind string, bytes long, cost decimal(38, 4)"


def execute(args: argparse.Namespace) -> int:
    """Write and print the bill, with remarks on the log.

    Return the exit status: 1 if the billed bytes differ from the bytes in the log, otherwise 0.
    """
    lines = owners(args.owners)
    span = span_of(args)
    if args.month and not span.is_all:
        raise UsageError(f"--month {args.month}: goes without --from and --until, which also name a time to bill")
    month = month_of(args.month) if args.month else None
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output, span=span if month is None else TimeSpan(*month))
        records = usage.records
        say("adding up")
        of_log = Observation()
        in_log = F.sum(F.when(F.col("kind").isin(*BYTE_KINDS), F.col("amount"))).alias("bytes")
        days = output.keep("by_day", charged(records.observe(of_log, in_log), lines))
        output.daily("days", days, "owner", "user", "client_id", "kind")
        bills = bill(days, args.price)
        output.rows("bill", Charge._fields, bills)
        output.table("bill.parquet", local_frame(spark, bills, _BILL))
        notes = [*usage.words(), *_missing_hours(records, month, output)]
        billed, total = sum(one.bytes for one in bills), of_log.get["bytes"] or 0
        notes.append(f"billed {billed:,} bytes, of {total:,} in the log")
        output.text("notes.txt", "\n".join(notes) + "\n")
    _print(bills, is_priced=args.price != 0)
    sys.stdout.write("".join(f"note: {note}\n" for note in notes))
    sys.stdout.write(f"{args.out}/bill\n")
    return 0 if billed == total else 1


def _print(bills: Sequence[Charge], *, is_priced: bool) -> None:
    """Print the owners with the most bytes."""
    sums: dict[str, tuple[int, Decimal]] = {}
    for one in bills:
        amount, cost = sums.get(one.owner, (0, Decimal(0)))
        sums[one.owner] = (amount + one.bytes, cost + one.cost)
    for owner, (amount, cost) in sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))[:_SHOWN]:
        sys.stdout.write(f"{_named(owner)}: {size(amount)}" + (f", {cost:,.2f}\n" if is_priced else "\n"))


def _missing_hours(records: DataFrame, month: tuple[int, int] | None, output: Output) -> list[str]:
    """Write a table of the hours without records, of which there are few. Return its first rows as sentences."""
    rows = gaps(records, month).repartition(1).sortWithinPartitions("proxy", "from_ms").collect()
    output.rows("missing_hours", ("proxy", "from_ms", "until_ms"), rows)
    notes = [
        f"{proxy} logged nothing from {_time(from_ms)} to {_time(until_ms)} UTC"
        for proxy, from_ms, until_ms in rows[:_SHOWN]
    ]
    return [*notes, "more of these in missing_hours/"] if len(rows) > _SHOWN else notes


def _named(owner: str) -> str:
    return "nobody (no line of the owners fits)" if owner == NOBODY else owner


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
