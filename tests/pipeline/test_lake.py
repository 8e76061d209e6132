"""A lake is read by day and by cluster. Files of other days and clusters are not opened."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD
from kafka_quota_proxy.pipeline.session import local_frame
from kafka_quota_proxy.pipeline.time_span import DAY_MS, TimeSpan, utc_day
from kafka_quota_proxy.pipeline.whatif import LogReplay, entities, resolved, total_demand
from tests.pipeline.support import START_MS, frame, record

DAYS = 4
CLUSTERS = ("orders", "1")


def scanned(records: DataFrame, metric: str) -> int:
    """Run a query without a shuffle, and return what Spark counted while it read the files."""
    execution = records._jdf.queryExecution()
    execution.toRdd().count()
    (scan,) = scans(execution.executedPlan())
    return int(scan.metrics().apply(metric).value())


def scans(plan: Any) -> list[Any]:  # noqa: ANN401  (an object of the JVM)
    """Return the nodes of a plan that read files."""
    children = [plan.children().apply(at) for at in range(plan.children().size())]
    found = [node for child in children for node in scans(child)]
    return [plan, *found] if plan.getClass().getSimpleName() == "FileSourceScanExec" else found


def test_only_files_of_the_days_and_the_cluster_are_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.opened(str(tmp_path / "lake"))
    lake.create()
    days = [record(at_s=day * DAY_MS // 1_000 + hour * 3_600) for day in range(DAYS) for hour in (0, 23)]
    for cluster in CLUSTERS:
        lake.append(frame(spark, days).coalesce(1).withColumn("day", utc_day()), cluster)
    assert len(list(tmp_path.glob("lake/records/**/*.parquet"))) == DAYS * len(CLUSTERS)
    two_days = TimeSpan(START_MS + DAY_MS, START_MS + 2 * DAY_MS + 1)

    assert scanned(lake.records(spark), "numFiles") == DAYS * len(CLUSTERS)
    assert scanned(lake.records(spark, cluster="1"), "numFiles") == DAYS
    assert scanned(lake.records(spark, two_days), "numFiles") == 2 * len(CLUSTERS)
    assert scanned(lake.records(spark, two_days, "orders"), "numFiles") == 2
    assert lake.records(spark, two_days, "orders").count() == 3
    assert lake.records(spark, cluster="other").isEmpty()


@pytest.mark.pipeline
def test_a_replay_reads_few_records_of_other_clients(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.opened(str(tmp_path / "lake"))
    lake.create()
    count, users = 200_000, 50
    one = local_frame(spark, [tuple(record()[name] for name in COLUMNS)], RECORD).drop("user", "start_ms")
    user, start_ms = F.format_string("u%02d", F.col("id") % users), F.lit(START_MS) + F.col("id")
    every = spark.range(count).select(user.alias("user"), start_ms.alias("start_ms")).crossJoin(one)
    lake.append(every.select(*COLUMNS).withColumn("day", utc_day()), "orders")
    records = lake.records(spark)
    rule = QuotaRule(user="u07", client_id=None, limits={"producer_byte_rate": 1_000.0})
    quotas = CandidateQuotas(config=ProxyConfig(listeners=(), quotas=(rule,)))
    replay = LogReplay(records, total_demand(records).toPandas(), count=count, is_small=False)

    spark.conf.set("spark.sql.adaptive.enabled", "false")  # its plan is in parts
    try:
        execution = replay.hours(resolved(entities(records), quotas), quotas)._jdf.queryExecution()
        replayed = execution.toRdd().count()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")

    assert replayed > 0
    (scan,) = scans(execution.executedPlan())
    # A page has up to 20,000 rows.
    assert count / users <= int(scan.metrics().apply("numOutputRows").value()) <= 40_000


def test_a_lake_is_recognised_and_has_a_version_and_a_format(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    lake = Lake.opened(f"{path}/")
    assert Lake.at(str(path)) is None

    lake.create()

    assert Lake.at(str(path)) == Lake.opened(str(path)) == lake == Lake(str(path))
    for mark, fault in (({"version": 1, "format": "delta"}, "format delta"), ({"version": 2}, "version 2")):
        (path / "_kafka_quota_lake").write_text(json.dumps(mark))
        with pytest.raises(UsageError, match=fault):
            Lake.at(str(path))


def test_a_directory_with_other_files_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(UsageError, match="exists and is no lake"):
        Lake.opened(str(tmp_path))
