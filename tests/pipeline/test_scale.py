"""The time of a command grows in proportion to its log, and its memory does not grow.

The short test uses the running session. ``make test-pipeline`` runs the commands on millions of records.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from bench import pipeline
from bench.spark_run import Run, run
from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.capacity import byte_usage, entities, hours, minutes, percentiles, rates
from kafka_quota_proxy.pipeline.record import ENTITY, RECORD
from kafka_quota_proxy.pipeline.whatif import LogReplay, outcomes, resolved, total_demand
from tests.pipeline.conftest import CONF
from tests.pipeline.spark_work import spent
from tests.pipeline.support import START_MS, record

SKEWED_ROWS = 2 * 10**6
SHORT = (30_000, 300_000)
BUCKETS = 40
# The bound for the time per record, relative to a log a tenth as large. 1 means proportional time, and 10 means time
# that grows with the square of the records. The smaller log takes half a second, so its time varies.
MOST_GROWTH = 2
# The heap of the session, and the bound for the whole JVM, which has other memory in addition to the heap.
HEAP_BYTES = 2**30
MOST_JVM_BYTES = HEAP_BYTES + pipeline.MOST_JVM_BYTES - 2 * 2**30


def short_log(rows: int, directory: Path) -> Path:
    """Write 40 buckets with a record each second, mostly of 1 MB and some of 8 MB. Return the log's path."""
    chance = np.random.default_rng(1)
    second, bucket = np.divmod(np.arange(rows), BUCKETS)
    amount = 1e6 * chance.lognormal(0, 0.25, rows) * np.where(chance.random(rows) < 0.02, 8, 1)
    log = pd.DataFrame({name: value for name, value in record().items() if value is not None}, index=range(rows))
    log = log.assign(
        start_ms=START_MS + second * 1_000,
        kind=np.where(bucket % 2, "fetch", "produce"),
        client_id=np.array([f"app-{number}" for number in range(BUCKETS // 2)])[bucket // 2],
        amount=amount.astype(np.int64),
        broker=log["broker"].astype(np.int32),
    )
    directory.mkdir()
    for part in range(2):
        log[part::2].to_parquet(directory / f"{part}.parquet")
    return directory


def worked(spark: SparkSession, rows: int, usage: Path) -> pipeline.Log:
    """Return the costs of the steps of ``capacity`` and ``whatif`` on a log."""
    records = spark.read.schema(RECORD).parquet(str(usage))
    rule = QuotaRule(user="alice", client_id=DEFAULT, producer_byte_rate=1_300_000.0, consumer_byte_rate=1_500_000.0)
    quotas = CandidateQuotas(config=ProxyConfig(listeners=(), quotas=(rule,)))

    def capacity() -> None:
        used = byte_usage(records)
        measured: pd.DataFrame = percentiles(rates(used), 99.0).toPandas()
        assert len(entities(measured)) == BUCKETS
        assert len(hours(minutes(used)).collect()) >= BUCKETS

    def whatif() -> None:
        used: pd.DataFrame = total_demand(records).toPandas()
        found = resolved(set(used[[*ENTITY]].itertuples(index=False, name=None)), quotas)
        replay = LogReplay(records, used, count=rows, is_small=False)
        happened = outcomes(used, found, replay.hours(found, quotas))
        assert happened["amount"].sum() > 1e6 * rows
        assert happened["throttled_requests"].sum() > rows / 1_000

    runs = {"capacity": spent(spark, capacity), "whatif": spent(spark, whatif)}
    return pipeline.Log(rows=rows, usage_bytes=sum(path.stat().st_size for path in usage.iterdir()), runs=runs)


@pytest.mark.pipeline
def test_work_grows_no_faster_than_records_and_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    sizes = (pipeline.START_UP_ROWS, *SHORT)
    usage = {rows: short_log(rows, tmp_path / f"{rows}") for rows in sizes}
    worked(spark, sizes[0], usage[sizes[0]])  # this first run loads classes and starts the Python workers

    logs = [worked(spark, rows, usage[rows]) for rows in sizes]

    assert CONF["spark.driver.memory"] == f"{HEAP_BYTES >> 30}g"
    for command in logs[0].runs:
        (ratio,) = pipeline.growth(logs, command)
        small, large = (log.runs[command] for log in logs[1:])
        assert ratio <= MOST_GROWTH, (command, logs)
        assert large.spilled_bytes == 0, (command, large)
        assert large.jvm_bytes <= MOST_JVM_BYTES, (command, large)
        assert large.python_bytes <= 1.25 * small.python_bytes, (command, small, large)


@pytest.mark.pipeline
@pytest.mark.timeout(7_200)
def test_time_grows_no_faster_than_records_and_memory_and_spilling_are_bounded(tmp_path: Path) -> None:
    """``make test-pipeline-large`` has 10^8 records."""
    sizes = [int(float(rows)) for rows in os.environ.get("PIPELINE_ROWS", "1e6,1e7").split(",")]

    logs = [pipeline.measured(rows, tmp_path / f"{rows}") for rows in (pipeline.START_UP_ROWS, *sizes)]

    assert pipeline.faults(logs, {}) == []
    assert load(tmp_path / f"{sizes[-1]}" / "plan" / "quotas.yaml").config.quotas


def taken(directory: Path, *, skew: bool) -> Run:
    """Simulate a log of about ``SKEWED_ROWS`` records, and return the cost of ``capacity`` on that log.

    With ``skew``, the first client has as many records as all 20 together: it has one each second, and the others have
    one in 20 seconds.
    """
    usage, plan = directory / "usage", str(directory / "plan")
    each_second = {"20": 40, "1": 2}  # records by the number of entities
    logs = [("1", 1), ("20", 20)] if skew else [("20", 1)]
    days = SKEWED_ROWS / sum(each_second[count] / seconds for count, seconds in logs) / 86_400
    for count, seconds in logs:
        words = ["--entities", count, "--brokers", "1", "--interval", f"{seconds}s", "--days", f"{days:.6f}"]
        out = ["--format", "parquet", "--out", str(usage / count)]
        run(["simulate", *words, *out], events=directory / f"simulate-{count}")
    memory = ["--conf", "spark.driver.memory=1g"]
    return run(["capacity", "--usage", str(usage), "--out", plan, *memory], events=directory / "capacity")


@pytest.mark.pipeline
@pytest.mark.timeout(7_200)
def test_a_client_with_half_of_all_records_needs_no_more_memory(tmp_path: Path) -> None:
    even, skewed = (taken(tmp_path / name, skew=name == "skewed") for name in ("even", "skewed"))

    assert load(tmp_path / "skewed" / "plan" / "quotas.yaml").config.quotas
    # Both runs have a heap of the same size, and garbage fills a random part of it. Python holds one batch of records.
    assert skewed.python_bytes < 1.25 * even.python_bytes, (even, skewed)
    assert skewed.jvm_bytes < 1.25 * even.jvm_bytes, (even, skewed)
    assert skewed.spilled_bytes <= even.spilled_bytes, (even, skewed)
