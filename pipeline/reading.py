"""The one module that reads the usage log: JSON Lines (also .gz), Parquet, a directory that grows, a Kafka topic.

What cannot be read never stops a job: bad lines and broken .gz files are counted and kept in quarantine with their
place, records that come twice count once.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.errors import PipelineError, UsageError
from pipeline.kafka_config import KafkaConfig
from pipeline.parsing import QUARANTINE, checked, duplicate_keys, parsed, quarantined, without_duplicates
from pipeline.record import COLUMNS, RECORD
from pipeline.writing import Output

# What the log is called once it is complete; *.part and hidden files are left alone.
_TEXT: Final = "*.{jsonl,json,ndjson,jsonl.gz,json.gz,ndjson.gz}"
_GZ: Final = "*.gz"
_PARQUET: Final = "*.parquet"
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
# What a batch of a stream takes at the most, where much has been waiting: so much is soon done again after a crash.
_RECORDS_AT_ONCE: Final = "1000000"
_BYTES_AT_ONCE: Final = str(256 << 20)
# Spark asks three times where a topic ends, and that long; a minute each by Kafka's defaults, without a word.
_PATIENCE: Final = {"kafka.request.timeout.ms": "15000", "kafka.default.api.timeout.ms": "15000"}
_NO_CONFIG: Final = KafkaConfig()
_KAFKA_ERROR: Final = re.compile(r"org\.apache\.kafka\.common\.(?:\w+\.)?(\w+(?:Exception|Error)):? ?([^\n]*)")
_KAFKA_WORDS: Final = {
    "UnknownTopicOrPartitionException": "there is no such topic",
    "TimeoutException": "no broker answers",
    "SaslAuthenticationException": "the login was refused",
    "SslAuthenticationException": "TLS does not come about",
    "TopicAuthorizationException": "this user may not read it",
    "GroupAuthorizationException": "this user may not read it",
}
_DAMAGED: Final = "is damaged: nothing of it was counted"
_NO_FAULT: Final = "fault string, text string, source string, line long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was read.

    Attributes:
        records: the columns of ``RECORD``, each record once.
        bad_lines, broken_files, duplicates: how many were left out.
    """

    records: DataFrame
    bad_lines: int
    broken_files: int
    duplicates: int

    def words(self) -> list[str]:
        """Return what was left out, a sentence each."""
        said = [
            (self.bad_lines, "bad lines were left out: see quarantine/"),
            (self.broken_files, "files are damaged or end too early: see quarantine/"),
            (self.duplicates, "records came more than once and were counted once"),
        ]
        return [f"{count:,} {what}" for count, what in said if count]


def read(spark: SparkSession, usage: str, output: Output, *, kafka: KafkaConfig = _NO_CONFIG) -> Usage:
    """Read a usage log, and write what was wrong with it to ``quarantine/``.

    Args:
        spark: the session.
        usage: a path (a file, a directory with all below it, a pattern), or ``kafka://HOST:PORT/TOPIC``.
        output: of the command.
        kafka: how a topic's cluster is spoken to.

    Raises:
        UsageError: there is nothing to read.
        PipelineError: the cluster of a topic does not let it be read.
    """
    if usage.startswith("kafka://"):
        try:
            return _from_kafka(topic(spark, usage, kafka=kafka), output)
        except (Py4JJavaError, PySparkException) as error:
            words = kafka_fault(str(error))
            if words is None:
                raise
            raise PipelineError(f"--usage {usage}: {words}") from error
    lines, stored = _lines(spark, usage), _stored(spark, usage)
    has_text, has_stored = bool(lines.inputFiles()), bool(stored.inputFiles())
    if not (has_text or has_stored):
        raise UsageError(
            f"--usage {usage}: no usage log there; its files end in .jsonl, .json or .ndjson (also .gz), or .parquet"
        )
    broken = _broken_files(spark, usage, output)
    faults, records = [broken], []
    if has_text:
        # What damage makes of a record may look like one. Of a file that only ends early, each whole line is right.
        lines = lines.join(broken.where(F.col("fault") == _DAMAGED), on="source", how="left_anti").select(
            *lines.columns
        )
        # Kept, for each of the next steps would read and parse all of it again.
        rows = output.keep("parsed", parsed(lines))
        bad = rows.where("fault IS NOT NULL")
        if not bad.isEmpty():
            # Read once more, in one query with their lines' numbers: how files are cut into blocks may be another now.
            those = lines.join(bad.select("source").distinct(), on="source", how="left_semi")
            faults.append(quarantined(parsed(those).where("fault IS NOT NULL"), those))
        records.append(rows.where("fault IS NULL").select(*COLUMNS))
    if has_stored:
        rows = checked(stored)
        bad = output.keep(
            "bad",
            rows.where("fault IS NOT NULL").select("source", F.col("position").alias("line"), "fault", "text"),
        )
        faults.append(bad)
        # Where nothing is wrong, what comes next need not look for it once more.
        records.append((stored if bad.isEmpty() else rows.where("fault IS NULL")).select(*COLUMNS))
    return _usage(records, faults, output, spark)


def _from_kafka(lines: DataFrame, output: Output) -> Usage:
    rows = output.keep("parsed", parsed(lines))
    faults = rows.where("fault IS NOT NULL").select("source", F.col("position").alias("line"), "fault", "text")
    return _usage([rows.where("fault IS NULL").select(*COLUMNS)], [faults], output, lines.sparkSession)


def _usage(records: list[DataFrame], faults: list[DataFrame], output: Output, spark: SparkSession) -> Usage:
    quarantine = _union(faults).select(*QUARANTINE)
    output.table("quarantine", quarantine.orderBy(*QUARANTINE), form="json")
    written = spark.read.schema("source string, line long, fault string, text string").json(f"{output.path}/quarantine")
    counted = written.groupBy(F.col("line").isNull().alias("is_file")).count().collect()  # two rows at the most
    counts = {row["is_file"]: row["count"] for row in counted}
    every = _union(records)
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
    )


def _union(frames: list[DataFrame]) -> DataFrame:
    first, *rest = frames
    for frame in rest:
        first = first.unionByName(frame)
    return first


def followed(spark: SparkSession, usage: str, *, kafka: KafkaConfig = _NO_CONFIG) -> DataFrame:
    """Return the lines of a log that grows as a stream: of a topic, or of the files of a directory.

    Files are taken once they are complete, a batch of them in the order in which they were last changed. Where a line
    of a file stands is not known: ``block`` and ``position`` are null.

    Raises:
        UsageError: there is nothing to read.
    """
    if usage.startswith("kafka://"):
        return topic(spark, usage, kafka=kafka, is_stream=True)
    _loaded(spark, "binaryFile", usage)  # a stream of what is not there would wait for it in silence
    files = spark.readStream.format("text").options(
        pathGlobFilter=_TEXT, recursiveFileLookup="true", ignoreMissingFiles="true", maxBytesPerTrigger=_BYTES_AT_ONCE
    )
    nowhere = F.lit(None).cast("long")
    source = F.regexp_replace(F.col("_metadata.file_path"), "^file:(//)?", "").alias("source")
    return files.load(usage).select("value", source, nowhere.alias("block"), nowhere.alias("position"))


def topic(
    spark: SparkSession,
    usage: str,
    *,
    kafka: KafkaConfig = _NO_CONFIG,
    is_stream: bool = False,
    is_news_only: bool = False,
) -> DataFrame:
    """Return the lines of ``kafka://HOST:PORT/TOPIC``: a line's place is its partition and offset.

    Args:
        spark: the session.
        usage: the address.
        kafka: how to reach it, beside the address.
        is_stream: whether to go on with what comes.
        is_news_only: whether to begin with what comes from now on, and to go on where something has been lost.

    Raises:
        UsageError: no such address, or Spark has no connector.
    """
    servers, name = kafka_place(usage, "--usage")
    options = {**_PATIENCE, **kafka.spark_options(), "kafka.bootstrap.servers": servers, "subscribe": name}
    options["startingOffsets"] = "earliest"
    if is_stream:
        options["maxOffsetsPerTrigger"] = _RECORDS_AT_ONCE
    if is_news_only:
        options |= {"startingOffsets": "latest", "failOnDataLoss": "false"}
    source = spark.readStream if is_stream else spark.read
    try:
        rows = source.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        raise UsageError(
            "Spark reads Kafka with a connector that is not among its own jars: "
            f"--conf spark.jars.packages={_CONNECTOR}, or --conf spark.jars=FILE,FILE… where no repository is in reach"
        ) from error
    return rows.select(
        F.col("value").cast("string").alias("value"),
        F.concat_ws("-", "topic", "partition").alias("source"),
        F.col("partition").cast("long").alias("block"),
        F.col("offset").alias("position"),
    )


def kafka_fault(stack: str) -> str | None:
    """Return in words what Kafka's client says in a Java stack, innermost; None if it says nothing."""
    found = _KAFKA_ERROR.findall(stack)
    if not found:
        return None
    name, said = found[-1]
    return f"{_KAFKA_WORDS.get(name, name)}: {said.strip() or name}"


def kafka_place(place: str, argument: str) -> tuple[str, str]:
    """Return the servers, with commas, and the topic of ``kafka://HOST:PORT/TOPIC``.

    Raises:
        UsageError: it is no such address; the error names the ``argument``.
    """
    parts = urlsplit(place)
    name = parts.path.strip("/")
    if parts.scheme != "kafka" or not (parts.netloc and name):
        raise UsageError(f"{argument} {place}: write kafka://HOST:PORT/TOPIC, with a comma between several HOST:PORT")
    return parts.netloc, name


def _lines(spark: SparkSession, path: str) -> DataFrame:
    # A file that goes while it is read (its time was up), or ends too early, ends there.
    options = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true", "recursiveFileLookup": "true"}
    rows = _loaded(spark, "text", path, pathGlobFilter=_TEXT, **options)
    return rows.select("value", *_place(), F.monotonically_increasing_id().alias("position"))


def _stored(spark: SparkSession, path: str) -> DataFrame:
    rows = _loaded(spark, "parquet", path, pathGlobFilter=_PARQUET, recursiveFileLookup="true")
    return rows.select(*COLUMNS, *_place(), F.lit(0).cast("long").alias("position"))


def _place() -> tuple[Column, Column]:
    path = F.regexp_replace(F.col("_metadata.file_path"), "^file:(//)?", "")
    return path.alias("source"), F.col("_metadata.file_block_start").alias("block")


def _loaded(spark: SparkSession, form: str, path: str, **options: str) -> DataFrame:
    reader = spark.read.format(form).options(**options)
    try:
        return (reader.schema(RECORD) if form == "parquet" else reader).load(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"--usage {path}: there is no such file or directory") from error
        raise


def _broken_files(spark: SparkSession, path: str, output: Output) -> DataFrame:
    """Return the .gz files that end too early or are damaged. Spark reads what it can of them and says nothing."""
    files = _loaded(
        spark, "binaryFile", path, pathGlobFilter=_GZ, recursiveFileLookup="true", ignoreMissingFiles="true"
    )
    if not files.inputFiles():
        return spark.createDataFrame([], _NO_FAULT)
    return output.keep("broken", files.select(_place()[0], "content").mapInPandas(_faults_of_gz, _NO_FAULT))


def _faults_of_gz(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        faults = [fault_of_gz(content) for content in batch["content"]]
        found = pd.DataFrame({"fault": faults, "text": None, "source": batch["source"], "line": None})
        yield found[found["fault"].notna()]


def fault_of_gz(content: bytes) -> str | None:
    """Return what is wrong with the bytes of a .gz file, None if nothing is. It may have several members."""
    rest = content
    while True:
        inflate = zlib.decompressobj(wbits=31)
        try:
            while rest and not inflate.eof:
                inflate.decompress(rest, 1 << 20)
                rest = inflate.unconsumed_tail
        except zlib.error:
            return _DAMAGED
        if not inflate.eof:
            return "ends too early: what is missing was not read"
        # Tools pad the end with zeros.
        rest = inflate.unused_data.lstrip(b"\0")
        if not rest:
            return None
