"""Logs of millions of records: what the short tests cannot show. ``make test-pipeline``."""

import os
from pathlib import Path

import pytest

from bench import pipeline
from bench.spark_run import Run, run
from config.load import load
from pipeline.simulate import Fleet
from tests.pipeline.support import START_MS

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(7_200)]

SKEWED_ROWS = 2 * 10**6


def test_time_grows_no_faster_than_records_and_memory_and_spilling_are_bounded(tmp_path: Path) -> None:
    """On 10^8 records: ``make test-pipeline-large``."""
    sizes = [int(float(rows)) for rows in os.environ.get("PIPELINE_ROWS", "1e6,1e7").split(",")]

    logs = [pipeline.measured(rows, tmp_path / f"{rows}") for rows in (pipeline.START_UP_ROWS, *sizes)]

    assert pipeline.faults(logs, {}) == []
    assert load(tmp_path / f"{sizes[-1]}" / "plan" / "quotas.yaml").config.quotas


def taken(directory: Path, *, skew: bool) -> Run:
    """Make up a log of about ``SKEWED_ROWS`` records of a second each, and return what ``capacity`` takes on it."""
    fleet = Fleet(entities=20, brokers=1, days=1, interval_ms=1_000, start_ms=START_MS, seed=1, skew=skew)
    in_an_interval = 2 if skew else fleet.buckets
    days = SKEWED_ROWS / in_an_interval / 86_400
    usage, plan = str(directory / "usage"), str(directory / "plan")
    words = ["--entities", "20", "--brokers", "1", "--interval", "1s", "--days", f"{days:.6f}", "--format", "parquet"]
    run(["simulate", "--out", usage, *words, *(["--skew"] if skew else [])], events=directory / "simulate")
    memory = ["--conf", "spark.driver.memory=1g"]
    return run(["capacity", "--usage", usage, "--out", plan, *memory], events=directory / "capacity")


def test_a_client_with_half_of_all_records_needs_no_more_memory(tmp_path: Path) -> None:
    even, skewed = (taken(tmp_path / name, skew=name == "skewed") for name in ("even", "skewed"))

    assert load(tmp_path / "skewed" / "plan" / "quotas.yaml").config.quotas
    # The heap is of the same size in both; how much of it garbage takes is chance, and of records Python has a batch.
    assert skewed.python_bytes < 1.25 * even.python_bytes, (even, skewed)
    assert skewed.jvm_bytes < 1.25 * even.jvm_bytes, (even, skewed)
    assert skewed.spilled_bytes <= even.spilled_bytes, (even, skewed)
