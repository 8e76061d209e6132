"""Reads a usage log from JSON Lines (also .gz), Parquet files or a Kafka topic.

Bad lines and damaged .gz files never stop a job. They are counted, and are written to a table named ``quarantine``,
which says where each of them is. Duplicates of a record are left out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.kafka_source import kafka_fault, topic
from kafka_quota_proxy.pipeline.log_files import (
    DAMAGED,
    ENDINGS,
    FAULT,
    Fault,
    LogFiles,
    left_out_words,
)
from kafka_quota_proxy.pipeline.parsing import (
    QUARANTINE,
    checked,
    duplicate_keys,
    parsed,
    quarantined,
    without_duplicates,
)
from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD
from kafka_quota_proxy.pipeline.report import duration
from kafka_quota_proxy.pipeline.session import SPARK_FAULTS, fit, is_small, local_frame, silenced
from kafka_quota_proxy.pipeline.writing import Output


class Coarse(NamedTuple):
    """How many records of a log are imported, and the longest time over which one of their rates is a mean."""

    records: int
    resolution_ms: int

    def words(self) -> str:
        """Return a sentence for the user."""
        return (
            f"{self.records:,} records are imported, and their rates are means over {duration(self.resolution_ms)}. "
            "They show no shorter bursts, no connections and no single requests: clients may wait more often and for "
            "longer than computed here"
        )


def coarse_columns(resolution: Column) -> list[Column]:
    """Return the aggregations that compute the fields of ``Coarse`` from the ``resolution_ms`` of records."""
    return [F.count(resolution).alias("coarse_records"), F.max(resolution).alias("resolution_ms")]


# Spark's error for an unreadable file, with the file.
_UNREADABLE: Final = re.compile(r"FAILED_READ_FILE\S* Encountered error while reading file (\S+?)\.? ")
_NO_OPTIONS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The records of a usage log without duplicates, and their number ``count``, or more than that.

    The other numbers say how many lines, files and duplicate records were left out.
    """

    records: DataFrame
    count: int
    bad_lines: int = 0
    broken_files: int = 0
    duplicates: int = 0
    left_out: tuple[str, ...] = ()  # files whose names do not end as those of a log, which were not read
    coarse: Coarse | None = None  # imported records, which are less exact than those of a proxy

    def words(self) -> list[str]:
        """Return the sentences that tell the user what was left out or is coarse: bad lines, duplicates and so on."""
        said = [
            (self.bad_lines, "bad lines were ignored: see quarantine/"),
            (self.broken_files, "files are damaged or end too early: see quarantine/"),
            (self.duplicates, "records came more than once and were counted once"),
        ]
        words = [f"{count:,} {what}" for count, what in said if count]
        if self.left_out:
            words.insert(0, left_out_words(self.left_out))
        return [*words, self.coarse.words()] if self.coarse else words


def read(
    spark: SparkSession,
    usage: str,
    output: Output,
    *,
    kafka: Mapping[str, str] = _NO_OPTIONS,
    cluster: str | None = None,
) -> Usage:
    """Read a usage log, and write its faults to ``quarantine/`` in the output.

    ``usage`` is a file, a directory with its subdirectories, a pattern with wildcards, or ``kafka://HOST:PORT/TOPIC``.
    With ``cluster``, only files in directories with the name ``cluster=NAME`` are read.
    Raises UsageError if there is nothing to read, and PipelineError if the topic or a Parquet file cannot be read.
    """
    if usage.startswith("kafka://"):
        try:
            found = _Found(spark, broken=[])
            _take_lines(found, topic(spark, usage, kafka=kafka), output, is_topic=True)
            return found.usage(output)
        except SPARK_FAULTS as error:
            words = kafka_fault(str(error))
            if words is None:
                raise
            raise PipelineError(f"--usage {usage}: {words}") from error
    every = LogFiles(spark, usage, cluster)
    lines, stored = every.lines(), every.stored()
    if lines is None and stored is None:
        raise UsageError(f"--usage {usage}: no usage log there; its files end in {ENDINGS}")
    found = _Found(spark, broken=every.broken())
    if lines is not None:
        # A damaged line may still look like a record, so all lines of a damaged file are dropped. If a file only ends
        # too early, each complete line is right.
        damaged = [(source,) for fault, _, source, _ in found.broken if fault == DAMAGED]
        if damaged:
            named = F.broadcast(local_frame(spark, damaged, "source string"))
            lines = lines.join(named, on="source", how="left_anti").select(*lines.columns)
        _take_lines(found, lines, output)
    if stored is not None:
        _take_stored(found, stored, output)
    return found.usage(output, left_out=every.left_out)


def stored_usage(records: DataFrame) -> Usage:
    """Return the records of a lake, in which each is once. They are counted by one column."""
    (seen,) = records.agg(F.count("*").alias("rows"), *coarse_columns(F.col("resolution_ms"))).collect()
    coarse = Coarse(seen["coarse_records"], seen["resolution_ms"] or 0)
    return Usage(records=records, count=seen["rows"], coarse=coarse if coarse.records else None)


class _Found:
    """The records of a log, and the faults of its lines and files, while they are being read."""

    def __init__(self, spark: SparkSession, *, broken: list[Fault]) -> None:
        self.spark = spark
        self.broken = broken
        self.records: list[DataFrame] = []
        self.bad: list[DataFrame] = []
        self.count = 0
        self.bad_count = 0
        self.coarse = Coarse(0, 0)

    def add(self, seen: Mapping[str, int | None]) -> None:
        """Count the rows of ``parsing.parsed``."""
        rows, bad, coarse, resolution_ms = (
            seen[name] or 0 for name in ("rows", "bad", "coarse_records", "resolution_ms")
        )
        self.count += rows - bad
        self.bad_count += bad
        self.coarse = Coarse(self.coarse.records + coarse, max(self.coarse.resolution_ms, resolution_ms))

    def usage(self, output: Output, *, left_out: tuple[str, ...] = ()) -> Usage:
        """Write the quarantine, leave out duplicates, and return the records."""
        if self.broken or self.bad_count:
            rows = [local_frame(self.spark, self.broken, FAULT), *self.bad]
            quarantine = reduce(DataFrame.unionByName, rows).select(*QUARANTINE)
            # The quarantine may be as large as the log, so it has as many files as needed.
            output.table("quarantine", quarantine.orderBy(*QUARANTINE), form="json", files=None)
        fit(self.spark, self.count)
        every = reduce(DataFrame.unionByName, self.records) if self.records else local_frame(self.spark, [], RECORD)
        repeated = Observation()
        keys = duplicate_keys(every, is_small=is_small(self.count)).observe(repeated, F.count("*").alias("keys"))
        keys = output.keep("duplicate_keys", keys)
        duplicates = 0
        if repeated.get["keys"]:
            once = output.keep("records", without_duplicates(every, keys))
            duplicates, every = every.count() - once.count(), once
        return Usage(
            records=every,
            count=self.count - duplicates,
            bad_lines=self.bad_count,
            broken_files=len(self.broken),
            duplicates=duplicates,
            left_out=left_out,
            coarse=self.coarse if self.coarse.records else None,
        )


def _counted(rows: DataFrame) -> tuple[DataFrame, Observation]:
    """Return the rows of ``parsing.parsed``, and what Spark counts while it reads them."""
    seen = Observation()
    resolution = F.when(F.col("fault").isNull(), F.col("resolution_ms"))
    counts = [F.count("*").alias("rows"), F.count("fault").alias("bad"), *coarse_columns(resolution)]
    return rows.observe(seen, *counts), seen


def _take_lines(found: _Found, lines: DataFrame, output: Output, *, is_topic: bool = False) -> None:
    """Parse the lines of text files or of a topic."""
    rows, seen = _counted(parsed(lines))
    # The rows are kept, since otherwise each of the next steps would read and parse the log again.
    rows = output.keep("parsed", rows)
    found.records.append(rows.where("fault IS NULL").select(*COLUMNS))
    found.add(seen.get)
    if not seen.get["bad"]:
        return
    bad = rows.where("fault IS NOT NULL")
    if is_topic:
        found.bad.append(_bad_rows(bad))
    else:
        # The query that numbers the lines parses them again, since Spark may now cut the files into other blocks.
        those = lines.join(bad.select("source").distinct(), on="source", how="left_semi")
        found.bad.append(quarantined(parsed(those).where("fault IS NOT NULL"), those))


def _take_stored(found: _Found, stored: DataFrame, output: Output) -> None:
    """Check the records of all Parquet files."""
    try:
        with silenced(stored.sparkSession):
            rows, seen = _counted(checked(stored))
            found.bad.append(output.keep("bad", _bad_rows(rows)))
    except SPARK_FAULTS as error:
        unreadable = _UNREADABLE.search(str(error))
        if unreadable is None:
            raise
        words = "cannot be read as Parquet with the columns of a usage log; repair or remove it"
        raise PipelineError(f"{file_system.plain(unreadable[1])}: {words}") from error
    found.add(seen.get)
    # Without faults, the next steps need no check.
    records = checked(stored).where("fault IS NULL") if seen.get["bad"] else stored
    found.records.append(records.select(*COLUMNS))


def _bad_rows(rows: DataFrame) -> DataFrame:
    return rows.where("fault IS NOT NULL").select("source", F.col("position").alias("line"), "fault", "text")
