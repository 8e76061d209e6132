"""Plans a day of 10^10 records on paper, from what the pipeline's commands took for each record."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

from bench.spark_run import Run

PLANNED_RECORDS: Final = 10**10
# What one executor has, and how long a day's job may take.
_CORES: Final = 4
_HOURS: Final = 4
_STEPS: Final = ("ingest", "capacity on the lake", "whatif on the lake", "chargeback on the lake")


def plan(runs: Mapping[int, Mapping[str, Run]], sizes: Mapping[int, Mapping[str, int]]) -> list[str]:
    """Return the plan as lines of Markdown.

    ``runs`` has the run of each command by the number of records, and ``sizes`` the bytes of the log and the lake.
    Only the two largest logs count.
    """
    measured = sorted(runs)[-2:]
    largest = measured[-1]
    counts = [f"{rows:,}" for rows in measured]
    head = [
        "",
        f"## A day of {PLANNED_RECORDS:,} records, on paper",
        "",
        "115,000 buckets with a record each second make that many in a day. *A record* is the time for which a task "
        f"keeps a core, measured on {' and '.join(counts)} records. *Shuffled* is what tasks write for each other. The "
        "larger of two measurements counts, and is multiplied by the number of records. This holds if time grows in "
        "proportion, and if storage and network are as fast for each core as here.",
        "",
        f"| step | a record | core hours | executors of {_CORES} cores for {_HOURS} hours | shuffled |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    rows = [_row(step, [runs[count][step] for count in measured], measured) for step in _STEPS]
    stored = sizes[largest]
    tail = [
        "",
        f"As compressed JSON Lines, a record takes {stored['log'] / largest:.1f} bytes, and in the lake "
        f"{stored['lake'] / largest:.1f}, measured on {largest:,} records. So a day takes "
        f"{_size(stored['log'] / largest)} and {_size(stored['lake'] / largest)}.",
    ]
    return [*head, *rows, *tail]


def _row(step: str, of: Sequence[Run], counts: Sequence[int]) -> str:
    each_us = [run.core_seconds * 1e6 / rows for run, rows in zip(of, counts, strict=True)]
    shuffled = max(run.shuffled_bytes / rows for run, rows in zip(of, counts, strict=True))
    hours = max(each_us) / 1e6 * PLANNED_RECORDS / 3_600
    measured = " and ".join(f"{one:.2f} µs" for one in each_us)
    return f"| {step} | {measured} | {hours:,.0f} | {ceil(hours / _CORES / _HOURS)} | {_size(shuffled)} |"


def _size(bytes_of_a_record: float) -> str:
    return f"{bytes_of_a_record * PLANNED_RECORDS / 1e9:,.0f} GB"
