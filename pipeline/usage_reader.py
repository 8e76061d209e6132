"""Reads a usage log from JSON Lines (also .gz), Parquet files, a growing directory or a Kafka topic.

Bad lines and damaged files never stop a job. They are counted, and are written to a table named ``quarantine``, which
says where each of them is. Duplicates of a record are left out. Directories that contain the results of a
``kafka-quota-pipeline`` command are skipped.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.file_integrity import DAMAGED, FAULT, UNREADABLE
from kafka_quota_proxy.pipeline.kafka_config import KafkaConfig
from kafka_quota_proxy.pipeline.kafka_source import kafka_fault, topic
from kafka_quota_proxy.pipeline.log_files import TEXT, LogFiles, line_place, listed, log_root, name_pattern
from kafka_quota_proxy.pipeline.parsing import (
    QUARANTINE,
    checked,
    duplicate_keys,
    parsed,
    quarantined,
    without_duplicates,
)
from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD
from kafka_quota_proxy.pipeline.session import silenced
from kafka_quota_proxy.pipeline.writing import Output

_NO_CONFIG: Final = KafkaConfig()
# The most that one batch of a stream takes from a backlog. It is small enough to be repeated quickly after a crash.
_BYTES_AT_ONCE: Final = str(256 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The records of a usage log without duplicates, and how many lines, files and duplicate records were left out."""

    records: DataFrame
    bad_lines: int
    broken_files: int
    duplicates: int
    passed_over: tuple[str, ...] = ()  # directories below the log with results of these commands, which were not read

    def words(self) -> list[str]:
        """Return the sentences that tell the user what was left out: bad lines, damaged files or duplicate records."""
        said = [
            (self.bad_lines, "bad lines were ignored: see quarantine/"),
            (self.broken_files, "files are damaged or end too early: see quarantine/"),
            (self.duplicates, "records came more than once and were counted once"),
        ]
        return [f"{count:,} {what}" for count, what in said if count]


def read(spark: SparkSession, usage: str, output: Output, *, kafka: KafkaConfig = _NO_CONFIG) -> Usage:
    """Read a usage log, and write its faults to ``quarantine/`` in the output.

    ``usage`` is a file, a directory with its subdirectories, a pattern with wildcards, or ``kafka://HOST:PORT/TOPIC``.
    Raises UsageError if there is nothing to read, and PipelineError if the topic cannot be read.
    """
    if usage.startswith("kafka://"):
        try:
            return _from_kafka(topic(spark, usage, kafka=kafka), output)
        except (Py4JJavaError, PySparkException) as error:
            words = kafka_fault(str(error))
            if words is None:
                raise
            raise PipelineError(f"--usage {usage}: {words}") from error
    every = LogFiles(spark, usage)
    lines, stored = every.lines(), every.stored()
    if lines is None and stored is None:
        raise UsageError(
            f"--usage {usage}: no usage log there; its files end in .jsonl, .json or .ndjson (also .gz), or .parquet"
        )
    broken = every.broken()
    faults, records = [spark.createDataFrame(broken, FAULT)], []
    if lines is not None:
        # A damaged line may still look like a record, so all lines of a damaged file are dropped. If a file only ends
        # too early, each complete line is right.
        damaged = [(source,) for fault, _, source, _ in broken if fault == DAMAGED]
        if damaged:
            named = F.broadcast(spark.createDataFrame(damaged, "source string"))
            lines = lines.join(named, on="source", how="left_anti").select(*lines.columns)
        # The rows are kept, since otherwise each of the next steps would read and parse the log again.
        rows = output.keep("parsed", parsed(lines))
        bad = rows.where("fault IS NOT NULL")
        if not bad.isEmpty():
            # The query that numbers the lines parses them again, since Spark may now cut the files into other blocks.
            those = lines.join(bad.select("source").distinct(), on="source", how="left_semi")
            faults.append(quarantined(parsed(those).where("fault IS NOT NULL"), those))
        records.append(rows.where("fault IS NULL").select(*COLUMNS))
    if stored is not None:
        found, faulty = _whole(stored, every, output)
        records += found
        faults += faulty
    return _usage(records, faults, output, spark, passed_over=every.passed_over)


def _whole(stored: DataFrame, every: "LogFiles", output: Output) -> tuple[list[DataFrame], list[DataFrame]]:
    """Check the Parquet files. Return their good records, and the faults of files and records.

    ``stored`` are the records of all Parquet files, and ``every`` are the files of the log. Files that Spark cannot
    read completely are left out.
    """
    faults: list[DataFrame] = []
    try:
        with silenced(stored.sparkSession):
            bad = output.keep("bad", _bad_rows(checked(stored)))
    except (Py4JJavaError, PySparkException) as error:
        unreadable = every.unreadable() if UNREADABLE in str(error) else {}
        if not unreadable:
            raise
        named = [(fault, None, source, None) for source, fault in unreadable.items()]
        faults.append(stored.sparkSession.createDataFrame(named, FAULT))
        rest = every.stored(without=unreadable)
        if rest is None:
            return [], faults
        stored, bad = rest, output.keep("bad_of_the_rest", _bad_rows(checked(rest)))
    # Without faults, the next steps need no check.
    records = stored if bad.isEmpty() else checked(stored).where("fault IS NULL")
    return [records.select(*COLUMNS)], [*faults, bad]


def _bad_rows(rows: DataFrame) -> DataFrame:
    return rows.where("fault IS NOT NULL").select("source", F.col("position").alias("line"), "fault", "text")


def _from_kafka(lines: DataFrame, output: Output) -> Usage:
    rows = output.keep("parsed", parsed(lines))
    return _usage([rows.where("fault IS NULL").select(*COLUMNS)], [_bad_rows(rows)], output, lines.sparkSession)


def _usage(
    records: list[DataFrame],
    faults: list[DataFrame],
    output: Output,
    spark: SparkSession,
    *,
    passed_over: tuple[str, ...] = (),
) -> Usage:
    quarantine = reduce(DataFrame.unionByName, faults).select(*QUARANTINE)
    # The quarantine may be as large as the log, so it has as many files as needed.
    output.table("quarantine", quarantine.orderBy(*QUARANTINE), form="json", files=None)
    written = spark.read.schema("source string, line long, fault string, text string").json(f"{output.path}/quarantine")
    counted = written.groupBy(F.col("line").isNull().alias("is_file")).count().collect()  # two rows at the most
    counts = {row["is_file"]: row["count"] for row in counted}
    every = reduce(DataFrame.unionByName, records) if records else spark.createDataFrame([], RECORD)
    keys = output.keep("duplicate_keys", duplicate_keys(every))
    duplicates = 0
    if not keys.isEmpty():
        once = output.keep("records", without_duplicates(every, keys))
        duplicates, every = every.count() - once.count(), once
    return Usage(
        records=every,
        bad_lines=counts.get(False, 0),
        broken_files=counts.get(True, 0),
        duplicates=duplicates,
        passed_over=passed_over,
    )


def check_apart(usage: str, argument: str, place: str) -> None:
    """Check that a stream does not write into the usage log that it reads, where it would read its own output.

    ``argument`` is the command-line option that names the directory ``place``. Raises UsageError if this directory is
    in the log ``usage``.
    """
    if usage.startswith("kafka://"):
        return
    root, at = log_root(usage).rstrip("/"), file_system.absolute(place)
    if f"{at}/".startswith(f"{root}/"):
        raise UsageError(
            f"{argument} {place}: is inside --usage {usage} and would be read as part of the log; use another directory"
        )


def followed(spark: SparkSession, usage: str, *, kafka: KafkaConfig = _NO_CONFIG) -> DataFrame:
    """Return the lines of a growing usage log as a stream, from a topic or from the files of a directory.

    Files are read when they are complete, in the order of their modification times. For lines from files, the columns
    ``block`` and ``position`` are null, since a stream does not know where in its file a line is. Raises UsageError if
    there is nothing to read.
    """
    if usage.startswith("kafka://"):
        return topic(spark, usage, kafka=kafka, is_stream=True)
    listed(spark, usage)  # a stream of a missing path would wait for it in silence
    files = spark.readStream.format("text").options(
        pathGlobFilter=name_pattern(TEXT),
        recursiveFileLookup="true",
        ignoreMissingFiles="true",
        maxBytesPerTrigger=_BYTES_AT_ONCE,
    )
    nowhere = F.lit(None).cast("long")
    source = line_place()[0]
    return files.load(usage).select("value", source, nowhere.alias("block"), nowhere.alias("position"))
