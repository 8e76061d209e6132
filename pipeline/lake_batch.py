"""Adds a batch of lines to a lake, so that each record gets there once, no matter how often its line comes.

A batch may be repeated after a crash, a file may come again under another name, and a proxy may send records again
weeks later. So records that the lake has already are left out. Spark reads only the days of the batch for that. If a
crash leaves a part of a batch in a table of Parquet files, the batch is repeated, and adds the rest.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.file_integrity import DAMAGED, FAULT, Fault
from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.log_files import faults_of_gz
from kafka_quota_proxy.pipeline.parsing import QUARANTINE
from kafka_quota_proxy.pipeline.record import COLUMNS, IDENTITY
from kafka_quota_proxy.pipeline.session import local_frame
from kafka_quota_proxy.pipeline.time_span import utc_day

_NOT_IDENTITY: Final = tuple(name for name in COLUMNS if name not in IDENTITY)


def batch_writer(lake: Lake, cluster: str, job: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch``, which gets the rows of ``parsing.parsed`` with the place of each line."""

    def write(rows: DataFrame, batch: int) -> None:
        # Each of the next steps would read and parse the lines again.
        rows = rows.persist()
        try:
            _write(rows, lake, cluster, lake.quarantine(cluster, job, batch))
        finally:
            rows.unpersist()

    return write


def _write(rows: DataFrame, lake: Lake, cluster: str, quarantine: str) -> None:
    spark = rows.sparkSession
    is_good = F.col("fault").isNull()
    (found,) = rows.agg(
        F.collect_set(F.when(is_good, utc_day())).alias("days"),
        F.min(F.when(is_good, F.col("start_ms"))).alias("first_ms"),
        F.max(F.when(is_good, F.col("start_ms"))).alias("last_ms"),
        F.collect_set(F.when(F.lower("source").endswith(".gz"), F.col("source"))).alias("compressed"),
        F.count("fault").alias("bad"),
    ).collect()
    broken: list[Fault] = faults_of_gz(spark, found["compressed"]) if found["compressed"] else []
    # A damaged line may still look like a record, so all lines of a damaged file are left out. If a file only ends too
    # early, each complete line is right.
    damaged = [source for fault, _, source, _ in broken if fault == DAMAGED]
    if damaged:
        rows = rows.where(~F.col("source").isin(damaged))
    if broken or found["bad"]:
        bad = rows.where(~is_good).select("source", F.col("position").alias("line"), "fault", "text")
        faults = bad.unionByName(local_frame(spark, broken, FAULT))
        faults.select(*QUARANTINE).write.mode("overwrite").json(quarantine)
    if found["days"]:
        records = once(rows.where(is_good)).withColumn("day", utc_day())
        span = F.col("start_ms").between(found["first_ms"], found["last_ms"])
        there = lake.of_days(spark, cluster, found["days"])
        lake.append(records if there is None else _without(records, there.where(span)), cluster)


def once(records: DataFrame) -> DataFrame:
    """Return usage records without duplicates. Of two different copies, the one with the greater values is kept."""
    kept = records.groupBy(*IDENTITY).agg(F.max(F.struct(*_NOT_IDENTITY)).alias("rest"))
    return kept.select(*IDENTITY, "rest.*").select(*COLUMNS)


def _without(records: DataFrame, there: DataFrame) -> DataFrame:
    """Return the records that do not occur among ``there``, by the columns that identify a record."""
    known = there.select(*(F.col(name).alias(f"known_{name}") for name in IDENTITY))
    is_same: Column = F.lit(True)
    for name in IDENTITY:
        is_same &= F.col(name).eqNullSafe(F.col(f"known_{name}"))
    return records.join(known, on=is_same, how="left_anti")
