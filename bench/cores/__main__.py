"""Measures the prototype, and writes RESULTS.md: ``python -m bench.cores [--only charges|quota|throughput]``."""

import argparse
import asyncio
import datetime
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING

import uvloop

from bench import machine
from bench.cores import charges
from bench.cores.extension import compiled, loaded
from bench.cores.quota_run import DEMAND, PRODUCERS, QUOTA, SPAN_S, QuotaRun, hold_quota, proxy
from bench.measure import cpu_seconds

if TYPE_CHECKING:
    from bench.cores.shared_buckets import Buckets

RESULTS = Path(__file__).with_name("RESULTS.md")
KILLS = (0, 1)
SUPERVISOR = 7  # its column in the bucket
THROUGHPUT_ROUNDS, THROUGHPUT_S = 3, 2.0
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory


def spread(values: list[float]) -> str:
    return f"{min(values):.0f}–{max(values):.0f}"


def charge_lines(found: charges.Charges) -> list[str]:
    return [
        "## One charge",
        "",
        f"Least and greatest mean of {charges.ROUNDS} runs of {charges.COUNT:,} charges in a loop of C, or of a tenth "
        "of that in Python.",
        "",
        "| | ns |",
        "|---|---:|",
        f"| one process, under the limit | {spread(found.alone_ns)} |",
        f"| one process, over the limit: measured and throttled each time | {spread(found.at_limit_ns)} |",
        f"| one process, called from Python | {spread(found.python_ns)} |",
        f"| two processes on one bucket, for each charge of a process | {spread(found.two_ns)} |",
        "",
        f"Two processes made {found.charges_of_two:,} charges of 1. After that, the bucket's sum was "
        f"{found.sum_of_two:,}.",
        "",
        f"A process was killed once at each of {len(charges.STEPS)} steps under the lock, and {charges.KILLS} times at "
        f"random while another one charged, too, {found.holders_killed} times of these while it held the lock. "
        f"Inexact sums: {len(found.inexact)}.",
        *found.inexact,
    ]


def quota_lines(run: QuotaRun) -> list[str]:
    lines = [
        "## One quota, two workers",
        "",
        f"{QUOTA / 1e6:.0f} MB/s, {PRODUCERS} producers that ask for {DEMAND} times as much. The run begins as after a "
        f"long load at the quota. A rate is that of acknowledged bytes over a window of {SPAN_S:.0f} s, relative to "
        "the quota: the window before the kill, the one with the kill in its middle, and the one after the kill.",
        "",
        "| killed | before | during | after | in flight | given back | next worker after |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in run.kills:
        rates = [run.relative_rate(one.at_s - back * SPAN_S) for back in (1, 0.5, 0)]
        cells = [f"worker {one.worker}", *(f"{rate:.4f}" for rate in rates), f"{one.in_flight:,} B"]
        lines.append("| " + " | ".join([*cells, f"{one.returned:,} B", f"{one.restarted_s * 1_000:.0f} ms"]) + " |")
    first, last = run.kills[0].at_s - SPAN_S, run.kills[-1].at_s
    spans = [run.relative_rate(first + n / 10) for n in range(int((last - first) * 10) + 1)]
    shares = ", ".join(f"{one / sum(run.charged):.0%}" for one in run.charged)
    return [
        *lines,
        "",
        f"{len(spans)} windows of the run, one each 100 ms: {min(spans):.4f} to {max(spans):.4f}. "
        f"The workers charged {shares} of the bytes. {run.unanswered} requests were not answered because of the kills.",
    ]


async def throughput(library: Path, file: Path, buckets: "Buckets", workers: int) -> tuple[float, list[float]]:
    """Return the requests per second without a limit, and the cores that workers, broker and load use."""

    def reading(groups: list[list[int]]) -> list[float]:
        requests = sum(column[2] for column in buckets.state(0)[1])
        return [monotonic(), requests, *(sum(map(cpu_seconds, group)) for group in groups)]

    async with proxy(library, file, buckets, workers) as (supervisor, broker):
        options = [
            "--size",
            "16384",
            "--connections",
            "16",
            "--seconds",
            str(THROUGHPUT_S),
            "--port",
            str(supervisor.port),
        ]
        load = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.load", "pipeline", *options, stdout=asyncio.subprocess.DEVNULL
        )
        await asyncio.sleep(1.0)
        groups = [list(supervisor.pids.values()), [broker], [load.pid]]
        before = reading(groups)
        await asyncio.sleep(1.2)
        seconds, requests, *cpu_s = (b - a for a, b in zip(before, reading(groups), strict=True))
        await load.wait()
    return requests / seconds, [one / seconds for one in cpu_s]


def throughput_lines(found: dict[int, list[tuple[float, list[float]]]]) -> list[str]:
    lines = [
        "## Throughput without a limit",
        "",
        f"Produce requests of 16 KiB, 16 connections with one in flight. Median of {THROUGHPUT_ROUNDS} runs in turn.",
        "",
        "| workers | requests/s | cores: workers | broker | load | CPU µs of workers for a request |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    rates = {}
    for workers, runs in found.items():
        rates[workers] = median(rate for rate, _ in runs)
        cores = [median(run[1][n] for run in runs) for n in range(3)]
        cpu_us = median(run[1][0] / run[0] * 1e6 for run in runs)
        cells = [f"{rates[workers]:,.0f}", *(f"{one:.2f}" for one in cores), f"{cpu_us:.0f}"]
        lines.append(f"| {workers} | " + " | ".join(cells) + " |")
    ratios = [two[0] / one[0] for one, two in zip(found[1], found[2], strict=True)]
    return [*lines, "", f"Two workers to one: {median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]."]


def document(parts: list[list[str]], load: float) -> str:
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    head = f"Measured {date} on {machine.name()}; load before {load:.2f}. To repeat: `python -m bench.cores`."
    return (
        "\n".join(["# Workers that share a bucket", "", head, *(line for part in parts for line in ("", *part))]) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cores", description=__doc__)
    parser.add_argument("--only", choices=["charges", "quota", "throughput"], help="one part; printed, not written")
    only = parser.parse_args().only
    load, parts = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        library = compiled(folder)
        buckets_class = loaded(library)

        def fresh(name: str, limit: float) -> "tuple[Path, Buckets]":
            buckets = buckets_class(str(folder / name), create=1, limit=limit)
            buckets.join(SUPERVISOR)
            return folder / name, buckets

        if only in (None, "charges"):
            parts.append(charge_lines(charges.measured(library, folder, buckets_class)))
        if only in (None, "quota"):
            parts.append(quota_lines(uvloop.run(hold_quota(library, *fresh("quota", QUOTA), KILLS))))
        if only in (None, "throughput"):
            found: dict[int, list[tuple[float, list[float]]]] = {1: [], 2: []}
            for n in range(THROUGHPUT_ROUNDS):
                for workers, runs in found.items():
                    runs.append(uvloop.run(throughput(library, *fresh(f"load-{n}-{workers}", 1e18), workers)))
            parts.append(throughput_lines(found))
    text = document(parts, load)
    print(text)
    if only is None:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
