"""Logs of millions of records: what the short tests cannot show. ``make test-pipeline``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import pipeline
from config.load import load
from pipeline.simulate import Fleet
from tests.pipeline.support import START_MS

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(7_200)]

REPOSITORY = Path(__file__).parent.parent.parent


def run(*words: str) -> None:
    """Run the pipeline as a user does, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-m", "pipeline", *words], cwd=REPOSITORY, check=True, env=environment)


def simulated(out: Path, rows: int, *, skew: bool = False) -> str:
    """Make up a log of about so many records of a second each, and return where it is."""
    fleet = Fleet(entities=20, brokers=1, days=1, interval_ms=1_000, start_ms=START_MS, seed=1, skew=skew)
    in_an_interval = 2 if skew else fleet.buckets
    days = rows / in_an_interval / 86_400
    words = ["--entities", "20", "--brokers", "1", "--interval", "1s", "--days", f"{days:.6f}", "--format", "parquet"]
    run("simulate", "--out", str(out), *words, *(["--skew"] if skew else []))
    return str(out)


def test_time_grows_no_faster_than_records_and_memory_does_not(tmp_path: Path) -> None:
    """The proof on 10^8 records takes some 20 minutes more: ``PIPELINE_ROWS=1e6,1e7,1e8``."""
    sizes = [int(float(rows)) for rows in os.environ.get("PIPELINE_ROWS", "1e6,1e7").split(",")]

    logs = [pipeline.measured(rows, tmp_path / f"{rows}") for rows in (pipeline.START_UP_ROWS, *sizes)]

    for command in pipeline.COMMANDS:
        assert all(ratio <= 1.1 for ratio in pipeline.growth(logs, command)), (command, logs)
        for log in logs:
            # What the JVM has beside its heap (code, threads, buffers) is Java's own; it does not grow with records.
            assert log.runs[command].jvm_bytes < 3 * 2**30, (command, log)
            assert log.runs[command].python_bytes < 2**30, (command, log)
    assert load(tmp_path / f"{sizes[-1]}" / "plan" / "quotas.yaml").config.quotas


def test_a_client_with_half_of_all_records_needs_no_more_memory(tmp_path: Path) -> None:
    usage = simulated(tmp_path / "usage", 2 * 10**6, skew=True)

    run("capacity", "--usage", usage, "--out", str(tmp_path / "plan"), "--conf", "spark.driver.memory=1g")

    assert load(tmp_path / "plan" / "quotas.yaml").config.quotas
