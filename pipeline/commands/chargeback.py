"""``kafka-quota-pipeline chargeback`` adds up bytes and cost for each owner, with remarks on the log."""

import argparse
import sys
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.chargeback import (
    NOBODY,
    Owner,
    bill,
    charged,
    gaps,
    handed_over,
    handovers,
    month_of,
    steps_back,
)
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.record import BYTE_KINDS
from kafka_quota_proxy.pipeline.report import size
from kafka_quota_proxy.pipeline.side_inputs import owners
from kafka_quota_proxy.pipeline.writing import Output

_SHOWN = 20


def execute(args: argparse.Namespace) -> int:
    """Write and print the bill, with remarks on the log.

    Return the exit status: 1 if the billed bytes differ from the bytes in the log, otherwise 0.
    """
    lines = owners(args.owners)
    month = month_of(args.month) if args.month else None
    with running(args) as (spark, output):
        usage = usage_of(args, spark, output)
        records = usage.records
        if month is not None:
            records = records.where(F.col("start_ms").between(month[0], month[1] - 1))
        say("adding up")
        days = output.keep("by_day", charged(records, lines))
        output.daily("days", days, "owner", "user", "client_id", "kind")
        bills = output.keep("bills", bill(days, args.price))
        output.table("bill", bills.orderBy("owner", "kind"), form="csv")
        output.table("bill.parquet", bills.orderBy("owner", "kind"), form="parquet")
        notes = [*usage.words(), *_notes(records, days, month, lines, output)]
        billed = bills.agg(F.sum("bytes")).first()
        in_log = records.where(F.col("kind").isin(*BYTE_KINDS)).agg(F.sum("amount")).first()
        totals = [(row[0] if row else 0) or 0 for row in (billed, in_log)]
        notes.append(f"billed {totals[0]:,} bytes, of {totals[1]:,} in the log")
        output.text("notes.txt", "\n".join(notes) + "\n")
        top = bills.groupBy("owner").agg(F.sum("bytes").alias("bytes"), F.sum("cost").alias("cost"))
        shown = top.orderBy(F.desc("bytes"), "owner").limit(_SHOWN).collect()
    for row in shown:
        sys.stdout.write(
            f"{_named(row['owner'])}: {size(row['bytes'])}" + (f", {row['cost']:,.2f}\n" if args.price else "\n")
        )
    sys.stdout.write("".join(f"note: {note}\n" for note in notes))
    sys.stdout.write(f"{args.out}/bill\n")
    return 0 if totals[0] == totals[1] else 1


def _notes(
    records: DataFrame, days: DataFrame, month: tuple[int, int] | None, lines: list[Owner], output: Output
) -> list[str]:
    """Write tables of the log's oddities: hours without records, clocks that were set back, and changes of owner.

    Return the first rows of each table as sentences.
    """
    missing = output.keep("gaps", gaps(records, month)).orderBy("proxy", "from_ms")
    again = output.keep("again", steps_back(records)).orderBy("proxy", "day")
    changed = output.keep("changed", handed_over(days, handovers(lines))).orderBy("day", "user", "client_id")
    odd = (("missing_hours", missing, _missing), ("clock_steps", again, _again), ("owner_changes", changed, _changed))
    notes, cut = [], []
    for name, rows, words in odd:
        output.table(name, rows, form="csv")
        found = rows.limit(_SHOWN + 1).collect()
        notes += [words(row) for row in found[:_SHOWN]]
        if len(found) > _SHOWN:
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
