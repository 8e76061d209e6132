"""A command on a small log runs few Spark jobs, and no Python process of Spark."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.spark_run import below
from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.support import record, write_log

MOST_JOBS = 25
OWNERS = "user,client_id,owner,from,until\nalice,,team a,,2026-09-08\nalice,,team b,2026-09-08,\n"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log of 1,000 records, in which clients of two brokers sometimes send much more than usual."""
    directory = tmp_path_factory.mktemp("jobs")
    records = [
        record(at_s=at, broker=broker, client_id=name, amount=9_000_000 if at % 50 == 0 else 100_000, requests=10)
        for at in range(125)
        for broker in (1, 2)
        for name in ("a", "b", "c", "d")
    ]
    write_log(directory / "usage" / "a.jsonl", records)
    (directory / "owners.csv").write_text(OWNERS, encoding="utf-8")
    (directory / "capacities.csv").write_text("broker,produce,fetch\n1,2MB,2MB\n2,2MB,2MB\n", encoding="utf-8")
    (directory / "quotas.yaml").write_text("quotas: [{user: alice, producer_byte_rate: 100000}]\n", encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    "words",
    [
        ["capacity", "--capacities", "capacities.csv"],
        pytest.param(["whatif", "--quotas", "quotas.yaml"], marks=pytest.mark.kafka),
        pytest.param(["chargeback", "--owners", "owners.csv", "--price", "0.05"], marks=pytest.mark.kafka),
    ],
    ids=lambda words: words[0],
)
def test_a_small_log_needs_few_jobs(spark: SparkSession, log: Path, tmp_path: Path, words: Sequence[str]) -> None:
    before, processes = jobs(spark), python_processes()

    files = [str(log / word) if word.endswith((".csv", ".yaml")) else word for word in words]
    assert main([*files, "--usage", str(log / "usage"), "--out", str(tmp_path / "out")]) == 0

    assert 5 < jobs(spark) - before <= MOST_JOBS
    assert python_processes() <= processes


def jobs(spark: SparkSession) -> int:
    """Return how many jobs a session has run."""
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=-1) + 1


def python_processes() -> set[int]:
    """Return the processes below this one: the JVM, and Spark's Python processes."""
    return set(below(os.getpid()))
