"""Measure the pipeline on logs of a million records and more: ``python -m bench.pipeline [--rows 1e6,1e7,1e8]``.

Each command runs in a process of its own, as a user runs it. What it takes before there is a record is measured with a
log of a thousand, and is taken off before times are compared. Exit status 1: something grows faster than records, or
the engines of the comparison differ; stderr says what.
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
from bench.spark_run import REPOSITORY, Run, run

PAGE: Final = Path(__file__).with_name("PIPELINE.md")
ROWS: Final = (10**6, 10**7, 10**8)
START_UP_ROWS: Final = 1_000
# Up to here start-up is most of it, and differs by as much from run to run as the records take.
_REPEATED_ROWS: Final = 10**6
_REPETITIONS: Final = 3
COMMANDS: Final = ("simulate", "capacity", "whatif")
# 20 entities at one broker, producing and fetching.
_BUCKETS: Final = 40
# Time for each record beside that of a log a tenth as large, once what a start takes is off.
MOST_GROWTH: Final = 1.1
# What the JVM has beside its heap of 2 GB (code, threads, buffers) is Java's own; it does not grow with records.
MOST_JVM_BYTES: Final = 3 * 2**30
MOST_PYTHON_BYTES: Final = 2**30
# Of the log as it lies on the disk: 4 is what sorting 10^8 records by day took. More is spilling to death.
MOST_SPILLED: Final = 8
_AGGREGATED_ROWS: Final = 10**7
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log of about so many records of a second each, in so many bytes, and what each command took on it.

    Of several runs it is the median.
    """

    rows: int
    usage_bytes: int
    runs: dict[str, Run]


def measured(rows: int, directory: Path) -> Log:
    """Make up a log in ``directory`` and run each command on it. Its records are left in ``usage``."""
    usage, plan, forecast = (str(directory / name) for name in ("usage", "plan", "forecast"))
    days = f"{rows / _BUCKETS / _DAY_S:.9f}"
    words = {
        "simulate": f"--entities 20 --brokers 1 --interval 1s --days {days} --format parquet --out {usage}".split(),
        "capacity": ["--usage", usage, "--out", plan],
        "whatif": ["--usage", usage, "--quotas", f"{plan}/quotas.yaml", "--out", forecast],
    }
    runs = {}
    for command in COMMANDS:
        found = []
        for turn in range(_REPETITIONS if rows <= _REPEATED_ROWS else 1):
            found.append(run([command, *words[command]], events=directory / "events" / f"{command}-{turn}"))
            print(f"{rows:,} records, {command}: {found[-1].seconds:.1f} s", flush=True)
        runs[command] = sorted(found, key=lambda one: one.seconds)[len(found) // 2]
    usage_bytes = sum(path.stat().st_size for path in Path(usage).rglob("*.parquet"))
    return Log(rows=rows, usage_bytes=usage_bytes, runs=runs)


def growth(logs: Sequence[Log], command: str) -> list[float]:
    """Return for each log but the first two how many times as long it took as the one before, for each record.

    The first is the one for start-up. 1 means that time grew as records did.
    """
    start_up, *others = logs
    started_s = start_up.runs[command].seconds
    found = []
    for less, more in pairwise(others):
        took_s = [max(log.runs[command].seconds - started_s, 0.1) for log in (less, more)]
        found.append(took_s[1] / took_s[0] / (more.rows / less.rows))
    return found


def faults(logs: Sequence[Log], engines: dict[str, dict[str, Any]]) -> list[str]:
    """Return what is not as it is promised, a sentence each."""
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
            sizes = [
                ("the JVM had", taken.jvm_bytes, MOST_JVM_BYTES),
                ("Python had", taken.python_bytes, MOST_PYTHON_BYTES),
                ("Spark spilled", taken.spilled_bytes, MOST_SPILLED * log.usage_bytes),
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
    """Return what each engine took for the same aggregate, and what it found."""
    found = {}
    for engine in ENGINES:
        command = [sys.executable, "-m", "bench.aggregates", engine, str(usage / "days")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True)
        found[engine] = json.loads(done.stdout)
        print(f"{engine}: {found[engine]['start_s']:.1f} s, {found[engine]['query_s']:.1f} s", flush=True)
    return found


def page(logs: Sequence[Log], engines: dict[str, dict[str, Any]]) -> str:
    """Return what was measured, as Markdown."""
    head = [
        "# The pipeline on large logs",
        "",
        f"Measured {datetime.datetime.now(tz=datetime.UTC).date().isoformat()} on {machine.name()}; "
        f"Spark {version('pyspark')} with the settings that it comes with (2 GB for its heap). Records are of a second "
        f"each, of {_BUCKETS} buckets, in Parquet. Once more: `make bench-pipeline`.",
        "",
        "*Growth* is time for each record beside that of the log before, without what a log of "
        f"{START_UP_ROWS:,} records takes: 1 is as fast as records grow. Up to {_REPEATED_ROWS:,} records times are "
        f"the median of {_REPETITIONS} runs. Memory is the most at any time, of the JVM, and of all Python processes "
        "together.",
        "",
        "| records | command | time | growth | JVM | Python | spilled to disk |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows = []
    for place, log in enumerate(logs):
        for command in COMMANDS:
            taken = log.runs[command]
            ratio = f"{growth(logs, command)[place - 2]:.2f}" if place > 1 else "–"
            sizes = " | ".join(f"{size / 1e9:.2f} GB" for size in (taken.jvm_bytes, taken.python_bytes))
            spilled = f"{taken.spilled_bytes / 1e9:.2f} GB" if taken.spilled_bytes else "0"
            rows.append(f"| {log.rows:,} | {command} | {taken.seconds:.1f} s | {ratio} | {sizes} | {spilled} |")
    return "\n".join([*head, *rows, *_comparison(engines)]) + "\n"


def _comparison(engines: dict[str, dict[str, Any]]) -> list[str]:
    if not engines:
        return []
    versions = {"Spark": "pyspark", "DuckDB": "duckdb", "pandas": "pandas"}
    same = "The results are the same." if _is_same(engines) else "The results differ."
    return [
        "",
        f"## One aggregate, on {_AGGREGATED_ROWS:,} records",
        "",
        f"Peak, median and {PERCENTILE:g}th percentile of each bucket, as `capacity` has them, from the same Parquet "
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
