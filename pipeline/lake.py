"""A lake: an append-only table of usage records, partitioned by cluster and by day, that ``ingest`` writes.

::

    LAKE/_kafka_quota_lake             the version of this layout
    LAKE/records/                      the records, as Parquet files
    LAKE/quarantine/cluster=…/job=…/   bad lines and damaged files, as JSON Lines: source, line, fault, text
    LAKE/checkpoint/CLUSTER-HASH/      Spark's progress of each job, which is a pair of a usage log and a cluster
    LAKE/checkpoint/CLUSTER.lock       locked by the process that adds records to a cluster, if the disk is local

Each record is in a lake once. Its ``day`` is the day on which it starts, in UTC. The records of a file are sorted by
kind, user, client-id and time, so that a query for a few clients reads few pages.

A batch of ``ingest`` may be repeated after a crash, a file may come again under another name, and a proxy may send
records again weeks later. So records that the lake has already are left out. Spark reads only the days of the batch for
that.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.log_files import DAMAGED, FAULT, Fault, faults_of_gz
from kafka_quota_proxy.pipeline.parsing import QUARANTINE
from kafka_quota_proxy.pipeline.record import COLUMNS, IDENTITY, RECORD
from kafka_quota_proxy.pipeline.session import local_frame
from kafka_quota_proxy.pipeline.time_span import TimeSpan, utc_day

_FORMAT: Final = "parquet"
_MARK: Final = "_kafka_quota_lake"
_VERSION: Final = 1
PARTITION: Final = ("cluster", "day")
_STORED: Final = StructType([*RECORD.fields, *(StructField(name, StringType()) for name in PARTITION)])
_ALL: Final = TimeSpan()
_ORDER: Final = ("day", "kind", "user", "client_id", "start_ms")


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake in the directory ``path``."""

    path: str

    @classmethod
    def at(cls, usage: str) -> Self | None:
        """Return the lake in a directory, or None if the directory is no lake."""
        mark = f"{usage.rstrip('/')}/{_MARK}"
        if usage.startswith("kafka://") or not file_system.exists(mark):
            return None
        found = json.loads(file_system.read(mark))
        if found["version"] != _VERSION:
            raise UsageError(f"{usage}: is a lake of version {found['version']}; this program reads {_VERSION}")
        if found["format"] != _FORMAT:
            raise UsageError(f"{usage}: is a lake of the format {found['format']}; this program reads {_FORMAT}")
        return cls(file_system.absolute(usage.rstrip("/")))

    @classmethod
    def opened(cls, path: str) -> Self:
        """Return the lake in a directory, or the one to ``create`` there.

        Raises UsageError if the directory has files and is no lake.
        """
        found = cls.at(path)
        if found is not None:
            return found
        lake = cls(file_system.absolute(path.rstrip("/")))
        if file_system.exists(lake.path) and set(file_system.names(lake.path)) - {"records", f"{_MARK}.tmp"}:
            raise UsageError(f"--lake {path}: exists and is no lake; name a new directory")
        return lake

    def checkpoint(self, job: str) -> str:
        """Return the checkpoint directory of a job."""
        return f"{self.path}/checkpoint/{job}"

    def quarantine(self, cluster: str, job: str, batch: int) -> str:
        """Return the directory for the bad lines of a batch."""
        return f"{self.path}/quarantine/cluster={cluster}/job={job}/batch={batch:010}"

    def create(self) -> None:
        """Create the lake, if it does not exist."""
        if file_system.exists(f"{self.path}/{_MARK}"):
            return
        file_system.make_directory(f"{self.path}/records")
        # The file is renamed, so that it appears only when it is complete.
        words = json.dumps({"version": _VERSION, "format": _FORMAT}) + "\n"
        file_system.write(f"{self.path}/{_MARK}.tmp", words)
        file_system.rename(f"{self.path}/{_MARK}.tmp", f"{self.path}/{_MARK}")

    @contextmanager
    def alone(self, cluster: str) -> Iterator[None]:
        """Let no other process add records to a cluster during the block. Raises PipelineError if one does.

        Two writers would each add the records of both. For a lake on an object store this is not checked.
        """
        with file_system.locked(f"{self.path}/checkpoint/{cluster}.lock") as is_alone:
            if not is_alone:
                raise PipelineError(
                    f"--lake {self.path}: another ingest adds records of the cluster {cluster}; wait for its end, or "
                    "stop it"
                )
            yield

    def records(self, spark: SparkSession, span: TimeSpan = _ALL, cluster: str | None = None) -> DataFrame:
        """Return the records that start within a time span, of one cluster or of all.

        Spark reads only the files of these days and this cluster.
        """
        rows = spark.read.schema(_STORED).parquet(f"{self.path}/records")
        if cluster is not None:
            rows = rows.where(F.col("cluster") == cluster)
        if not span.is_all:
            rows = rows.where(span.days_within() & span.starts_within())
        return rows.select(*COLUMNS)

    def of_days(self, spark: SparkSession, cluster: str, days: Iterable[str]) -> DataFrame | None:
        """Return the records of some days of a cluster, or None if there are none.

        Unlike ``records``, it does not list the directories of the other days, of which there may be thousands.
        """
        paths = [f"{self.path}/records/cluster={cluster}/day={day}" for day in days]
        there = [path for path in paths if file_system.exists(path)]
        return spark.read.schema(RECORD).parquet(*there) if there else None

    def append(self, records: DataFrame, cluster: str) -> None:
        """Add records with the column ``day`` to a cluster.

        Several jobs may write at once if each has a cluster of its own.
        """
        rows = records.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER)
        # Spark adds all temporary files below a directory when it writes there. So each writer has a directory, and
        # files that a crash has left are deleted.
        path = f"{self.path}/records/cluster={cluster}"
        file_system.delete(f"{path}/_temporary")
        rows.select(*COLUMNS, "day").write.mode("append").partitionBy("day").parquet(path)


def job_of(usage: str, cluster: str) -> str:
    """Return the name of the job that reads ``usage``, which is the log of ``cluster``."""
    return f"{cluster}-{hashlib.sha256(usage.encode()).hexdigest()[:8]}"


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
