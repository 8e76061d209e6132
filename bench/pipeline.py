"""Measures the pipeline on logs of a million records and more: ``python -m bench.pipeline [--rows 1e6,1e7,1e8]``.

A run with a thousand records gives the start-up time, which is subtracted. The exit status is 1 if time, memory or
spilling grows too much, or if the results of the engines differ.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.aggregates import ENGINES, PERCENTILE
from bench.pipeline_plan import plan
from bench.spark_run import REPOSITORY, Run, run

PAGE: Final = Path(__file__).with_name("PIPELINE.md")
_PLANNED: Final = ("capacity", "whatif", "chargeback")
ROWS: Final = (10**6, 10**7, 10**8)
START_UP_ROWS: Final = 1_000
# Up to this size, runs are repeated, because the start-up time dominates and varies.
_REPEATED_ROWS: Final = 10**6
_REPETITIONS: Final = 3
COMMANDS: Final = ("simulate", *_PLANNED, "ingest", *(f"{name} on the lake" for name in _PLANNED))
# 20 entities at one broker, producing and fetching.
_BUCKETS: Final = 40
# Time per record relative to a log a tenth as large, without start-up.
MOST_GROWTH: Final = 1.1
# Beyond its heap of 2 GB the JVM has code, threads and buffers, which do not grow with records.
MOST_JVM_BYTES: Final = 3 * 2**30
MOST_PYTHON_BYTES: Final = 2**30
# The most bytes to spill, in multiples of the bytes that a command reads. Sorting 10^8 records by day took 4.
MOST_SPILLED: Final = 8
_AGGREGATED_ROWS: Final = 10**7
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log of one-second records, and the median run of each command on it."""

    rows: int
    usage_bytes: int  # as Parquet
    runs: dict[str, Run]
    log_bytes: int = 0  # as compressed JSON Lines
    lake_bytes: int = 0


def measured(rows: int, directory: Path) -> Log:
    """Simulate a log in ``directory``, and run each command on it. ``ingest`` reads it as compressed JSON Lines."""
    usage, log, lake, owners = (str(directory / name) for name in ("usage", "log", "lake", "owners.csv"))
    quotas = str(directory / "capacity" / "quotas.yaml")
    Path(owners).write_text("user,client_id,owner,from,until\n", encoding="utf-8")
    days = f"{rows / _BUCKETS / _DAY_S:.9f}"
    simulate = f"simulate --entities 20 --brokers 1 --interval 1s --days {days}".split()
    run([*simulate, "--format", "json.gz", "--out", log], events=directory / "events" / "log")
    words = {
        "simulate": [*simulate, "--format", "parquet", "--out", usage],
        "ingest": ["ingest", "--usage", log, "--lake", lake],
        "capacity": ["capacity"],
        "whatif": ["whatif", "--quotas", quotas],
        "chargeback": ["chargeback", "--owners", owners],
    }
    runs = {}
    for command in COMMANDS:
        name, _, of_lake = command.partition(" on the ")
        place = ["--usage", lake if of_lake else usage, "--out", str(directory / command.replace(" ", "-"))]
        given = [*words[name], *(place if name in _PLANNED else [])]
        found = []
        # A second run of ingest would find nothing new.
        for turn in range(_REPETITIONS if rows <= _REPEATED_ROWS and name != "ingest" else 1):
            found.append(run(given, events=directory / "events" / f"{command}-{turn}"))
            print(f"{rows:,} records, {command}: {found[-1].seconds:.1f} s", flush=True)
        runs[command] = sorted(found, key=lambda one: one.seconds)[len(found) // 2]
    usage_bytes, log_bytes, lake_bytes = (
        sum(path.stat().st_size for path in Path(at).rglob(pattern))
        for at, pattern in ((usage, "*.parquet"), (log, "*.json.gz"), (lake, "*.parquet"))
    )
    return Log(rows=rows, usage_bytes=usage_bytes, log_bytes=log_bytes, lake_bytes=lake_bytes, runs=runs)


def growth(logs: Sequence[Log], command: str) -> list[float]:
    """Return the time per record relative to the next smaller log, from the third log on.

    1 means that the time grows in proportion. The first log gives the start-up time.
    """
    start_up, *others = logs
    started_s = start_up.runs[command].seconds
    found = []
    for less, more in pairwise(others):
        took_s = [max(log.runs[command].seconds - started_s, 0.1) for log in (less, more)]
        found.append(took_s[1] / took_s[0] / (more.rows / less.rows))
    return found


def faults(logs: Sequence[Log], engines: dict[str, dict[str, Any]]) -> list[str]:
    """Return a sentence for each violated bound."""
    found = []
    for command in COMMANDS:
        for (less, more), ratio in zip(pairwise(logs[1:]), growth(logs, command), strict=True):
            if ratio > MOST_GROWTH:
                found.append(
                    f"{command}: {ratio:.2f} times as long for each of {more.rows:,} records as for each of "
                    f"{less.rows:,}; {MOST_GROWTH:g} is the most"
                )
        for log in logs:
            taken = log.runs[command]
            read_bytes = log.log_bytes if command == "ingest" else log.usage_bytes
            sizes = [
                ("the JVM had", taken.jvm_bytes, MOST_JVM_BYTES),
                ("Python had", taken.python_bytes, MOST_PYTHON_BYTES),
                ("Spark spilled", taken.spilled_bytes, MOST_SPILLED * read_bytes),
            ]
            found += [
                f"{command} on {log.rows:,} records: {who} {size / 1e9:.2f} GB; {most / 1e9:.2f} GB is the most"
                for who, size, most in sizes
                if size > most
            ]
    if not _is_same(engines):
        found.append(f"{', '.join(engines)}: the results differ")
    return found


def _is_same(engines: dict[str, dict[str, Any]]) -> bool:
    found = [one["found"] for one in engines.values()]
    return all(one == found[0] for one in found)


def aggregated(usage: Path) -> dict[str, dict[str, Any]]:
    """Return the time and the result of the same aggregate for each engine."""
    found = {}
    for engine in ENGINES:
        command = [sys.executable, "-m", "bench.aggregates", engine, str(usage / "days")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True)
        found[engine] = json.loads(done.stdout)
        print(f"{engine}: {found[engine]['start_s']:.1f} s, {found[engine]['query_s']:.1f} s", flush=True)
    return found


def page(logs: Sequence[Log], engines: dict[str, dict[str, Any]]) -> str:
    """Return the measurements as Markdown."""
    counts = tuple(log.rows for log in logs[1:])
    options = "" if counts == ROWS else f' ARGS="--rows {",".join(f"{rows:.0e}" for rows in counts)}"'
    head = [
        "# The pipeline on large logs",
        "",
        f"Measured {datetime.datetime.now(tz=datetime.UTC).date().isoformat()} on {machine.name()}; "
        f"Spark {version('pyspark')} with its default settings (2 GB of heap). One-second records of "
        f"{_BUCKETS} buckets in Parquet; `ingest` reads them as compressed JSON Lines. To repeat: "
        f"`make bench-pipeline{options}`.",
        "",
        "*Growth* is the time per record relative to the log before, less the time of "
        f"{START_UP_ROWS:,} records: 1 is in proportion. Up to {_REPEATED_ROWS:,} records times are the median of "
        f"{_REPETITIONS} runs. Memory is the peak of the JVM, and of all Python processes together.",
        "",
        "| records | command | time | growth | jobs | JVM | Python | spilled to disk |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows = []
    for place, log in enumerate(logs):
        for command in COMMANDS:
            taken = log.runs[command]
            ratio = f"{growth(logs, command)[place - 2]:.2f}" if place > 1 else "–"
            sizes = " | ".join(f"{size / 1e9:.2f} GB" for size in (taken.jvm_bytes, taken.python_bytes))
            spilled = f"{taken.spilled_bytes / 1e9:.2f} GB" if taken.spilled_bytes else "0"
            cost = f"{taken.seconds:.1f} s | {ratio} | {taken.jobs} | {sizes} | {spilled}"
            rows.append(f"| {log.rows:,} | {command} | {cost} |")
    planned = plan(
        {log.rows: log.runs for log in logs},
        {log.rows: {"log": log.log_bytes, "lake": log.lake_bytes} for log in logs},
    )
    return "\n".join([*head, *rows, *planned, *_comparison(engines)]) + "\n"


def _comparison(engines: dict[str, dict[str, Any]]) -> list[str]:
    if not engines:
        return []
    versions = {"Spark": "pyspark", "DuckDB": "duckdb", "pandas": "pandas"}
    same = "The results are equal." if _is_same(engines) else "The results differ."
    return [
        "",
        f"## One aggregate, on {_AGGREGATED_ROWS:,} records",
        "",
        f"Peak, median and {PERCENTILE:g}th percentile of each bucket, as in `capacity`, from the same Parquet "
        f"files. {same}",
        "",
        "| engine | before the first query | query |",
        "| --- | ---: | ---: |",
        *(
            f"| {engine} {version(versions[engine])} | {one['start_s']:.1f} s | {one['query_s']:.1f} s |"
            for engine, one in engines.items()
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", default=",".join(str(rows) for rows in ROWS), help="of which logs (1e6,1e7,1e8)")
    parser.add_argument("--scratch", type=Path, help="where logs are kept meanwhile; 10^8 records need 10 GB")
    options = parser.parse_args()
    sizes = [START_UP_ROWS, *(int(float(rows)) for rows in options.rows.split(","))]
    logs, engines = [], {}
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-pipeline-", dir=options.scratch) as directory:
            logs.append(measured(rows, Path(directory)))
            if rows == _AGGREGATED_ROWS:
                engines = aggregated(Path(directory) / "usage")
    written = page(logs, engines)
    print(f"\n{written}")
    PAGE.write_text(written, encoding="utf-8")
    wrong = faults(logs, engines)
    sys.stderr.write("".join(f"{fault}\n" for fault in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
