"""``kafka-quota-pipeline chargeback`` adds up bytes and cost for each owner, with remarks on the log."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.chargeback import (
    NOBODY,
    Charge,
    Owner,
    bill,
    charged,
    gaps,
    handed_over,
    handovers,
    month_of,
    steps_back,
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
        notes = [*usage.words(), *_notes(records, days, month, lines, output)]
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


def _notes(
    records: DataFrame, days: DataFrame, month: tuple[int, int] | None, lines: list[Owner], output: Output
) -> list[str]:
    """Write tables of the log's oddities: hours without records, clocks that were set back, and changes of owner.

    Return the first rows of each table as sentences.
    """
    odd = (
        ("missing_hours", gaps(records, month), ("proxy", "from_ms"), _missing),
        ("clock_steps", steps_back(records), ("proxy", "day"), _again),
        ("owner_changes", handed_over(days, handovers(lines)), ("day", "user", "client_id"), _changed),
    )
    notes, cut = [], []
    for name, frame, order, words in odd:
        # There are few of these.
        rows = frame.repartition(1).sortWithinPartitions(*order).collect()
        output.rows(name, frame.columns, rows)
        notes += [words(row) for row in rows[:_SHOWN]]
        if len(rows) > _SHOWN:
            cut.append(f"{name}/")
    return [*notes, f"more of these in {' and '.join(cut)}"] if cut else notes


def _missing(row: Row) -> str:
    return f"{row['proxy']} logged nothing from {_time(row['from_ms'])} to {_time(row['until_ms'])} UTC"


def _again(row: Row) -> str:
    return (
        f"the clock of {row['proxy']} stepped back on {row['day']}: {_time(row['from_ms'])} to "
        f"{_time(row['until_ms'])} UTC came twice, and both count"
    )


def _changed(row: Row) -> str:
    names = " / ".join(name for name in (row["user"], row["client_id"]) if name)
    return f"{names}: {_named(row['before'])} until {row['day']}, then {_named(row['after'])}"


def _named(owner: str) -> str:
    return "nobody (no line of the owners fits)" if owner == NOBODY else owner


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
