"""A lake: a Delta table of usage records, partitioned by cluster and by the day (UTC) on which a record starts.

Delta Lake makes each change a transaction. So a reader sees all records of an ``ingest`` or none of them, and if two
processes add the same days of a cluster at once, one of them fails. Each record of a cluster is in a lake once.
"""

from collections.abc import Mapping
from typing import Final

from pyspark import __version__ as spark_version
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.record import COLUMNS, IDENTITY, RECORD
from kafka_quota_proxy.pipeline.session import SPARK_FAULTS
from kafka_quota_proxy.pipeline.time_span import TimeSpan, utc_day

# The release for this version of Spark.
DELTA: Final = f"io.delta:delta-spark_{spark_version.rpartition('.')[0]}_2.13:4.4.0"
_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The list of files is small. By default 50 tasks read it.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_PACKAGES: Final = "spark.jars.packages"
_CONFLICT: Final = "DELTA_CONCURRENT"


def is_lake(path: str) -> bool:
    """Return whether a directory is a lake."""
    return not path.startswith("kafka://") and file_system.exists(f"{path.rstrip('/')}/_delta_log")


def settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings with which a session can use a lake. Those in ``conf``, the user's, take precedence.

    Spark downloads Delta Lake, unless ``conf`` names its jars.
    """
    found = {**_SETTINGS, **conf}
    if "delta" not in conf.get("spark.jars", ""):
        found[_PACKAGES] = ",".join(filter(None, (conf.get(_PACKAGES), DELTA)))
    return found


def stored(spark: SparkSession, lake: str, span: TimeSpan, cluster: str | None) -> DataFrame:
    """Return the records that start within a time span, of one cluster or of all.

    Spark reads only the files of these days and this cluster.
    """
    rows = spark.read.format("delta").load(file_system.absolute(lake))
    if cluster is not None:
        rows = rows.where(F.col("cluster") == cluster)
    return rows.where(span.days_within() & span.starts_within()).select(*COLUMNS)


def add(records: DataFrame, lake: str, cluster: str) -> int:
    """Add the records that a cluster of the lake does not have, and return their number. Creates a missing lake.

    ``records`` are without duplicates. Raises UsageError if the directory has other files, and PipelineError if another
    process adds records of the same days.
    """
    spark, path = records.sparkSession, file_system.absolute(lake)
    if not is_lake(path) and file_system.exists(path) and not file_system.is_empty(path):
        raise UsageError(f"--lake {lake}: exists and is no lake; name a new directory")
    rows = records.withColumns({"cluster": F.lit(cluster), "day": utc_day()})
    table = f"delta.`{path.replace('`', '``')}`"
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in RECORD.fields)
    days = ", ".join(f"'{row['day']}'" for row in rows.select("day").distinct().collect())
    is_same = " AND ".join(f"new.{name} <=> old.{name}" for name in IDENTITY)
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}, cluster string, day string) USING delta "
            "PARTITIONED BY (cluster, day)"
        )
        if not days:
            return 0
        (change,) = spark.sql(
            f"MERGE INTO {table} old USING {{new}} new ON old.cluster = '{cluster}' AND old.day IN ({days}) "
            f"AND old.day = new.day AND {is_same} WHEN NOT MATCHED THEN INSERT *",
            new=rows,
        ).collect()
    except SPARK_FAULTS as error:
        if _CONFLICT not in str(error):
            raise
        raise PipelineError(f"--lake {lake}: another ingest adds records of {cluster} too; start this again") from error
    return int(change["num_inserted_rows"])
