"""``kafka-quota-pipeline chargeback``: bytes and cost for each owner, and what a reader of the bill has to know."""

import argparse
import sys
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.chargeback import NOBODY, bill, charged, gaps, month_of, steps_back
from pipeline.commands.running import running, say, usage_of
from pipeline.owners import read_owners
from pipeline.reading import Usage
from pipeline.record import BYTE_KINDS
from pipeline.report import size
from pipeline.writing import Output

_SHOWN = 20


def execute(args: argparse.Namespace) -> int:
    """Write the bill, print it, and print what was odd about the log."""
    owners = read_owners(args.owners)
    month = month_of(args.month) if args.month else None
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output)
        records = usage.records
        if month is not None:
            records = records.where(F.col("start_ms").between(month[0], month[1] - 1))
        say("adding up")
        days = output.keep("by_day", charged(records, owners))
        output.table("days", days.orderBy("day", "owner", "user", "client_id", "kind"), form="parquet")
        bills = output.keep("bills", bill(days, args.price))
        output.table("bill", bills.orderBy("owner", "kind"), form="csv")
        notes = _notes(usage, records, month, output)
        billed = bills.agg(F.sum("bytes")).first()
        in_log = records.where(F.col("kind").isin(*BYTE_KINDS)).agg(F.sum("amount")).first()
        totals = [(row[0] if row else 0) or 0 for row in (billed, in_log)]
        notes.append(f"billed {totals[0]:,} bytes, of {totals[1]:,} in the log")
        output.text("notes.txt", "\n".join(notes) + "\n")
        top = bills.groupBy("owner").agg(F.sum("bytes").alias("bytes"), F.sum("cost").alias("cost"))
        shown = top.orderBy(F.desc("bytes"), "owner").limit(_SHOWN).collect()
    for row in shown:
        name = "nobody (no line of the owners fits)" if row["owner"] == NOBODY else row["owner"]
        sys.stdout.write(f"{name}: {size(row['bytes'])}" + (f", {row['cost']:,.2f}\n" if args.price else "\n"))
    sys.stdout.write("".join(f"note: {note}\n" for note in notes))
    sys.stdout.write(f"{args.out}/bill\n")
    return 0 if totals[0] == totals[1] else 1


def _notes(usage: Usage, records: DataFrame, month: tuple[int, int] | None, output: Output) -> list[str]:
    missing = output.keep("gaps", gaps(records, month))
    again = output.keep("again", steps_back(records))
    output.table("missing_hours", missing.orderBy("proxy", "from_ms"), form="csv")
    output.table("clock_steps", again.orderBy("proxy", "day"), form="csv")
    notes = usage.words()
    for row in missing.orderBy("proxy", "from_ms").limit(_SHOWN).collect():
        notes.append(f"{row['proxy']} logged nothing from {_time(row['from_ms'])} to {_time(row['until_ms'])} UTC")
    for row in again.orderBy("proxy", "day").limit(_SHOWN).collect():
        notes.append(
            f"the clock of {row['proxy']} stepped back on {row['day']}: {_time(row['from_ms'])} to "
            f"{_time(row['until_ms'])} UTC came twice, and both count"
        )
    more = missing.count() + again.count() - 2 * _SHOWN
    return [*notes, "more of both in missing_hours/ and clock_steps/"] if more > 0 else notes


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
