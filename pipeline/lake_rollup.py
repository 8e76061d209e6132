"""Keeps the sums of each day of a lake, so that a plan for a year does not read the records of a year.

::

    LAKE/rollup/CLUSTER.json               the version of the tables, and the number of records in the sums of each day
    LAKE/rollup/TABLE/cluster=…/day=…/     the tables of ``rollup``, and ``days``, as Parquet files

The sums of a day are right if the day has as many records as CLUSTER.json says, since records are only added. All other
days, such as one that got late records or whose sums a crash has interrupted, are computed from their records.
"""

import json
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.lake import PARTITION, Lake, is_in
from kafka_quota_proxy.pipeline.record import BUCKET, COLUMNS, ENTITY, PLACE, RECORD, start_of
from kafka_quota_proxy.pipeline.resolution import Coarse
from kafka_quota_proxy.pipeline.rollup import broker_minutes, byte_usage, hours, rates
from kafka_quota_proxy.pipeline.session import local_frame
from kafka_quota_proxy.pipeline.time_span import DAY_MS, TimeSpan

_DIRECTORY: Final = "rollup"
# A change of a table needs a new version, with which all sums are computed anew.
_VERSION: Final = 1
# Only the days that are written are replaced.
_BY_DAY: Final = {"partitionOverwriteMode": "dynamic"}


def days(usage: DataFrame, *by: str) -> DataFrame:
    """For each entity and day, return the amount and the number of requests on all brokers."""
    return usage.groupBy(*by, *ENTITY, start_of(DAY_MS).alias("start_ms")).agg(
        F.sum("amount").alias("amount"), F.sum("requests").alias("requests")
    )


_TABLES: Final[Mapping[str, Callable[..., DataFrame]]] = {
    "rates": rates, "hours": hours, "broker_minutes": broker_minutes, "days": days,
}  # fmt: skip


class Sums(NamedTuple):
    """The sums of a part of a lake, and the number of records of its days."""

    rates: DataFrame
    hours: DataFrame
    broker_minutes: DataFrame
    days: DataFrame
    records: int
    coarse: Coarse | None


def sums(spark: SparkSession, lake: Lake, span: TimeSpan, cluster: str | None) -> Sums:
    """Return the sums of the records that start within a time span, of one cluster or of all.

    Only those records are read whose day has no sums, or is not whole in the span.
    """
    by_day = _by_day(spark, lake, span, cluster)
    ready: dict[str, list[str]] = {}
    for of in {row["cluster"] for row in by_day}:
        known = _known(lake, of)
        ready[of] = [
            row["day"]
            for row in by_day
            if row["cluster"] == of and known.get(row["day"]) == row["records"] and span.has_whole_day(row["day"])
        ]
    is_ready = _is_one_of(ready)
    parts: dict[str, list[DataFrame]] = {name: [] for name in _TABLES}
    if any(ready.values()):
        nothing = byte_usage(local_frame(spark, [], RECORD))
        for name, stored in parts.items():
            schema = StructType([*_TABLES[name](nothing).schema, *(StructField(of, StringType()) for of in PARTITION)])
            rows = spark.read.schema(schema).parquet(f"{lake.path}/{_DIRECTORY}/{name}")
            stored.append(rows.where(is_ready).drop(*PARTITION))
    if not by_day or sum(map(len, ready.values())) < len(by_day):
        rest = lake.stored(spark).where(span.days_within() & span.starts_within() & ~is_ready)
        usage = byte_usage(rest if cluster is None else rest.where(F.col("cluster") == cluster))
        for name, computed in parts.items():
            computed.append(_TABLES[name](usage))
    every = {name: reduce(DataFrame.unionByName, of) for name, of in parts.items()}
    return Sums(
        every["rates"],
        # Of an hour or a minute, each cluster may have a row.
        every["hours"].groupBy(*BUCKET, "hour_ms").agg(F.sum("amount").alias("amount"), F.max("peak").alias("peak")),
        every["broker_minutes"]
        .groupBy(*PLACE, "kind", "start_ms")
        .agg(F.sum("amount").alias("amount"), F.max("interval_ms").alias("interval_ms")),
        every["days"],
        sum(row["records"] for row in by_day),
        _coarse(by_day),
    )


def refresh(spark: SparkSession, lake: Lake, cluster: str, *, is_over: bool = False) -> int:
    """Compute the sums of each day of a cluster whose number of records has changed. Return how many were added.

    With ``is_over``, the newest day is left out, since more of its records are still to come.
    """
    known = _known(lake, cluster)
    counts = _counts(spark, lake, cluster)
    changed = [day for day, count in counts.items() if known.get(day) != count]
    if is_over:
        changed = [day for day in changed if day != max(counts)]
    if not changed:
        return 0
    kept = {day: count for day, count in known.items() if day not in changed}
    # While the sums are replaced, they do not count.
    _store(lake, cluster, kept)
    is_changed = (F.col("cluster") == cluster) & is_in(changed)
    usage = byte_usage(lake.stored(spark).where(is_changed).select(*COLUMNS, "day"))
    for name, table in _TABLES.items():
        rows = table(usage, "day").repartition("day").sortWithinPartitions("day", *ENTITY[:1])
        path = f"{lake.path}/{_DIRECTORY}/{name}/cluster={cluster}"
        _delete_left(path)
        rows.write.mode("overwrite").options(**_BY_DAY).partitionBy("day").parquet(path)
    # Records that came meanwhile are in some of the tables.
    after = _counts(spark, lake, cluster)
    _store(lake, cluster, kept | {day: counts[day] for day in changed if after[day] == counts[day]})
    return sum(counts[day] - known.get(day, 0) for day in changed)


def _delete_left(path: str) -> None:
    """Delete the temporary files that a crash has left."""
    for name in file_system.names(path) if file_system.exists(path) else ():
        if name.startswith(".spark-staging"):
            file_system.delete(f"{path}/{name}")


def _by_day(spark: SparkSession, lake: Lake, span: TimeSpan, cluster: str | None) -> list[Row]:
    """Return how many records each cluster and day has, for the days of a time span.

    Only footers of files are read, and the column that is null in the records of proxies.
    """
    rows = lake.stored(spark).where(span.days_within())
    if cluster is not None:
        rows = rows.where(F.col("cluster") == cluster)
    coarse = F.count("resolution_ms").alias("coarse"), F.max("resolution_ms").alias("resolution_ms")
    return rows.groupBy("cluster", "day").agg(F.count("*").alias("records"), *coarse).collect()


def _counts(spark: SparkSession, lake: Lake, cluster: str) -> dict[str, int]:
    return {row["day"]: row["records"] for row in _by_day(spark, lake, TimeSpan(), cluster)}


def _coarse(by_day: list[Row]) -> Coarse | None:
    found = [row for row in by_day if row["coarse"]]
    return Coarse(sum(row["coarse"] for row in found), max(row["resolution_ms"] for row in found)) if found else None


def _is_one_of(ready: Mapping[str, list[str]]) -> Column:
    """Return a column that is true for the rows of these days, by cluster."""
    named = [(F.col("cluster") == cluster) & is_in(of) for cluster, of in ready.items() if of]
    return reduce(or_, named, F.lit(False))


def _file(lake: Lake, cluster: str) -> str:
    return f"{lake.path}/{_DIRECTORY}/{cluster}.json"


def _known(lake: Lake, cluster: str) -> dict[str, int]:
    """Return the number of records of each day with sums."""
    path = _file(lake, cluster)
    if not file_system.exists(path):
        return {}
    found = json.loads(file_system.read(path))
    return dict(found["days"]) if found["version"] == _VERSION else {}


def _store(lake: Lake, cluster: str, counts: Mapping[str, int]) -> None:
    path = _file(lake, cluster)
    # The file is renamed, so that it appears only when it is complete. Without it, all sums are computed anew.
    words = json.dumps({"version": _VERSION, "days": dict(sorted(counts.items()))}) + "\n"
    file_system.write(f"{path}.tmp", words)
    file_system.delete(path)
    file_system.rename(f"{path}.tmp", path)
