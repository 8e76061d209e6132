"""A lake: an append-only table of usage records, partitioned by cluster and by day, that ``ingest`` writes.

::

    LAKE/_kafka_quota_lake             the version of this layout, and the format of the table
    LAKE/records/                      the records, as Parquet files, or as a table of Delta Lake or Apache Iceberg
    LAKE/quarantine/cluster=…/job=…/   bad lines and damaged files, as JSON Lines: source, line, fault, text
    LAKE/checkpoint/CLUSTER-HASH/      the progress of each job, which is a pair of a usage log and a cluster
    LAKE/checkpoint/CLUSTER.lock       locked by the process that adds records to a cluster, if the disk is local

Each record is in a lake once. Its ``day`` is the day on which it starts, in UTC. The records of a file are sorted by
kind, user, client-id and time, so that a query for a few clients reads few pages.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD
from kafka_quota_proxy.pipeline.session import SPARK_FAULTS, local_frame, silenced
from kafka_quota_proxy.pipeline.time_span import TimeSpan

PARQUET: Final = "parquet"
_PACKAGES: Final = {
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
_MARK: Final = "_kafka_quota_lake"
_VERSION: Final = 1
PARTITION: Final = ("cluster", "day")
_STORED: Final = StructType([*RECORD.fields, *(StructField(name, StringType()) for name in PARTITION)])
_ALL: Final = TimeSpan()
_ORDER: Final = ("day", "kind", "user", "client_id", "start_ms")


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake in the directory ``path``. It has no open files and can be sent to Spark's workers."""

    path: str
    form: str = PARQUET

    @classmethod
    def at(cls, usage: str) -> Self | None:
        """Return the lake in a directory, or None if the directory is no lake."""
        mark = f"{usage.rstrip('/')}/{_MARK}"
        if usage.startswith("kafka://") or not file_system.exists(mark):
            return None
        found = json.loads(file_system.read(mark))
        if found["version"] != _VERSION:
            raise UsageError(f"{usage}: is a lake of version {found['version']}; this program reads {_VERSION}")
        return cls(file_system.absolute(usage.rstrip("/")), found["format"])

    @classmethod
    def opened(cls, path: str, form: str | None) -> Self:
        """Return the lake in a directory, or the one to ``create`` there.

        Raises UsageError if the lake has another format, or if the directory has files and is no lake.
        """
        found = cls.at(path)
        if found is not None:
            if form not in (None, found.form):
                raise UsageError(f"--format {form}: the lake {path} has the format {found.form}")
            return found
        lake = cls(file_system.absolute(path.rstrip("/")), form or PARQUET)
        if file_system.exists(lake.path) and set(file_system.names(lake.path)) - {"records", f"{_MARK}.tmp"}:
            raise UsageError(f"--lake {path}: exists and is no lake; name a new directory")
        return lake

    def settings(self) -> dict[str, str]:
        """Return the Spark settings that the format needs in addition to its jars."""
        if self.form == "delta":
            return {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            }
        if self.form == "iceberg":
            catalog = "spark.sql.catalog.iceberg"
            return {
                catalog: "org.apache.iceberg.spark.SparkCatalog",
                f"{catalog}.type": "hadoop",
                f"{catalog}.warehouse": self.path,
            }
        return {}

    def checkpoint(self, usage: str, cluster: str) -> str:
        """Return the checkpoint directory of the job that reads ``usage``, which is the log of ``cluster``."""
        return f"{self.path}/checkpoint/{cluster}-{hashlib.sha256(usage.encode()).hexdigest()[:8]}"

    def quarantine(self, cluster: str, job: str, batch: int) -> str:
        """Return the directory for the bad lines of a batch."""
        return f"{self.path}/quarantine/cluster={cluster}/job={job}/batch={batch:010}"

    def create(self, spark: SparkSession) -> None:
        """Create the lake, if it does not exist. Raises UsageError if Spark does not have the jars of its format."""
        if file_system.exists(f"{self.path}/{_MARK}"):
            return
        if self.form == PARQUET:
            file_system.make_directory(f"{self.path}/records")
        else:
            # Iceberg would divide the rows by partition anew, and lose their order.
            with silenced(spark), self._with_jars():
                table = local_frame(spark, [], _STORED).writeTo(self._table).using(self.form)
                table = table.tableProperty("write.distribution-mode", "none")
                table.partitionedBy(*map(F.col, PARTITION)).createOrReplace()
        # The file is renamed, so that it appears only when it is complete.
        words = json.dumps({"version": _VERSION, "format": self.form}) + "\n"
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

    def stored(self, spark: SparkSession) -> DataFrame:
        """Return all records of the lake, with the columns ``cluster`` and ``day``."""
        if self.form == PARQUET:
            return spark.read.schema(_STORED).parquet(f"{self.path}/records")
        with self._with_jars():
            return spark.read.table(self._table)

    def records(self, spark: SparkSession, span: TimeSpan = _ALL, cluster: str | None = None) -> DataFrame:
        """Return the records that start within a time span, of one cluster or of all.

        Spark reads only the files of these days and this cluster.
        """
        rows = self.stored(spark)
        if cluster is not None:
            rows = rows.where(F.col("cluster") == cluster)
        if not span.is_all:
            rows = rows.where(span.days_within() & span.starts_within())
        return rows.select(*COLUMNS)

    def of_days(self, spark: SparkSession, cluster: str, days: Iterable[str]) -> DataFrame | None:
        """Return the records of some days of a cluster, or None if there are none.

        Unlike ``records``, it does not list the directories of the other days, of which there may be thousands.
        """
        if self.form != PARQUET:
            return self.stored(spark).where((F.col("cluster") == cluster) & is_in(days))
        paths = [f"{self.path}/records/cluster={cluster}/day={day}" for day in days]
        there = [path for path in paths if file_system.exists(path)]
        return spark.read.schema(RECORD).parquet(*there) if there else None

    def append(self, records: DataFrame, cluster: str) -> None:
        """Add records with the column ``day`` to a cluster.

        Several jobs may write at once if each has a cluster of its own.
        """
        rows = records.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER)
        if self.form == PARQUET:
            # Spark adds all temporary files below a directory when it writes there. So each writer has a directory, and
            # files that a crash has left are deleted.
            path = f"{self.path}/records/cluster={cluster}"
            file_system.delete(f"{path}/_temporary")
            rows.select(*COLUMNS, "day").write.mode("append").partitionBy("day").parquet(path)
        else:
            whole = rows.withColumn("cluster", F.lit(cluster))
            whole.select(*_STORED.fieldNames()).writeTo(self._table).append()

    @property
    def _table(self) -> str:
        return f"{self.form}.`{self.path}/records`"

    @contextmanager
    def _with_jars(self) -> Iterator[None]:
        try:
            yield
        except SPARK_FAULTS as error:
            raise UsageError(
                f"the lake {self.path} has the format {self.form}, which needs jars for this version of Spark: add "
                f"--conf spark.jars.packages={_PACKAGES[self.form]}\n{_cause(error)}"
            ) from error


def _cause(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.startswith((": ", "Caused by: "))]
    return (lines or [str(error).strip().partition("\n")[0]])[-1].lstrip(": ")


def is_in(days: Iterable[str]) -> Column:
    """Return a column that is true if ``day`` is one of the given days."""
    return F.col("day").isin(*days)
