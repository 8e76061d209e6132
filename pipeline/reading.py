"""The one module that reads the usage log: JSON Lines (also .gz), Parquet, a directory that grows, a Kafka topic.

What cannot be read never stops a job: bad lines and broken files are counted and kept in quarantine with their place,
records that come twice count once. Results of these commands that lie below the log are no part of it.
"""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.damage import (
    DAMAGED,
    FAULT,
    UNREADABLE,
    fault_of_parquet,
    faults_elsewhere,
    faults_here,
    faults_of_blank,
)
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.files import Files
from kafka_quota_proxy.pipeline.kafka_config import KafkaConfig
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
from kafka_quota_proxy.pipeline.writing import Output, is_results

# What the log is called once it is complete; *.part and hidden files are left alone.
_TEXT: Final = ("jsonl", "json", "ndjson", "jsonl.gz", "json.gz", "ndjson.gz")
_PARQUET: Final = ("parquet",)
_MAY_BE_BROKEN: Final = ("gz", "parquet")
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
# Spark writes a sum of each page, and looks at it only when it is asked to.
_SUMS: Final = {"parquet.page.verify-checksum.enabled": "true"}
_LOCAL: Final = r"^file:(//)?"
_IS_PATTERN: Final = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was read.

    Attributes:
        records: the columns of ``RECORD``, each record once.
        bad_lines, broken_files, duplicates: how many were left out.
        passed_over: directories below the log that have results of these commands.
    """

    records: DataFrame
    bad_lines: int
    broken_files: int
    duplicates: int
    passed_over: tuple[str, ...] = ()

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
    every = _Listing(spark, usage)
    lines, stored = every.lines(), every.stored()
    if lines is None and stored is None:
        raise UsageError(
            f"--usage {usage}: no usage log there; its files end in .jsonl, .json or .ndjson (also .gz), or .parquet"
        )
    broken = every.broken(output)
    faults, records = [broken], []
    if lines is not None:
        # What damage makes of a record may look like one. Of a file that only ends early, each whole line is right.
        lines = lines.join(broken.where(F.col("fault") == DAMAGED), on="source", how="left_anti").select(*lines.columns)
        # Kept, for each of the next steps would read and parse all of it again.
        rows = output.keep("parsed", parsed(lines))
        bad = rows.where("fault IS NOT NULL")
        if not bad.isEmpty():
            # Read once more, in one query with their lines' numbers: how files are cut into blocks may be another now.
            those = lines.join(bad.select("source").distinct(), on="source", how="left_semi")
            faults.append(quarantined(parsed(those).where("fault IS NOT NULL"), those))
        records.append(rows.where("fault IS NULL").select(*COLUMNS))
    if stored is not None:
        found, faulty = _whole(stored, every, output)
        records += found
        faults += faulty
    return _usage(records, faults, output, spark, passed_over=every.passed_over)


def _whole(stored: DataFrame, every: "_Listing", output: Output) -> tuple[list[DataFrame], list[DataFrame]]:
    """Return the records of Parquet files that can be read, and what is wrong with others and with records."""
    faults: list[DataFrame] = []
    try:
        with silenced(stored.sparkSession):
            bad = output.keep("bad", _bad_rows(stored))
    except (Py4JJavaError, PySparkException) as error:
        unreadable = every.unreadable() if UNREADABLE in str(error) else {}
        if not unreadable:
            raise
        named = [(fault, None, source, None) for source, fault in unreadable.items()]
        faults.append(stored.sparkSession.createDataFrame(named, FAULT))
        rest = every.stored(without=unreadable)
        if rest is None:
            return [], faults
        stored, bad = rest, output.keep("bad_of_the_rest", _bad_rows(rest))
    # Where nothing is wrong, what comes next need not look for it once more.
    records = stored if bad.isEmpty() else checked(stored).where("fault IS NULL")
    return [records.select(*COLUMNS)], [*faults, bad]


def _bad_rows(stored: DataFrame) -> DataFrame:
    rows = checked(stored).where("fault IS NOT NULL")
    return rows.select("source", F.col("position").alias("line"), "fault", "text")


def _from_kafka(lines: DataFrame, output: Output) -> Usage:
    rows = output.keep("parsed", parsed(lines))
    faults = rows.where("fault IS NOT NULL").select("source", F.col("position").alias("line"), "fault", "text")
    return _usage([rows.where("fault IS NULL").select(*COLUMNS)], [faults], output, lines.sparkSession)


def _usage(
    records: list[DataFrame],
    faults: list[DataFrame],
    output: Output,
    spark: SparkSession,
    *,
    passed_over: tuple[str, ...] = (),
) -> Usage:
    quarantine = _union(faults).select(*QUARANTINE)
    # It grows with what is wrong, which may be all of a log: as many files as that takes.
    output.table("quarantine", quarantine.orderBy(*QUARANTINE), form="json", files=None)
    written = spark.read.schema("source string, line long, fault string, text string").json(f"{output.path}/quarantine")
    counted = written.groupBy(F.col("line").isNull().alias("is_file")).count().collect()  # two rows at the most
    counts = {row["is_file"]: row["count"] for row in counted}
    every = _union(records or [spark.createDataFrame([], RECORD)])
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


def _union(frames: list[DataFrame]) -> DataFrame:
    first, *rest = frames
    for frame in rest:
        first = first.unionByName(frame)
    return first


def check_apart(files: Files, usage: str, argument: str, place: str) -> None:
    """See that what a stream writes is not below the log that it follows, and so a part of it.

    Raises:
        UsageError: it is; the error names the ``argument``.
    """
    if usage.startswith("kafka://"):
        return
    root, at = _root(files, usage).rstrip("/"), _decoded(files.absolute(place))
    if f"{at}/".startswith(f"{root}/"):
        raise UsageError(f"{argument} {place}: is below --usage {usage}, and would be read as log; name another place")


def followed(spark: SparkSession, usage: str, *, kafka: KafkaConfig = _NO_CONFIG) -> DataFrame:
    """Return the lines of a log that grows as a stream: of a topic, or of the files of a directory.

    Files are taken once they are complete, a batch of them in the order in which they were last changed. Where a line
    of a file stands is not known: ``block`` and ``position`` are null.

    Raises:
        UsageError: there is nothing to read.
    """
    if usage.startswith("kafka://"):
        return topic(spark, usage, kafka=kafka, is_stream=True)
    _loaded(spark, usage)  # a stream of what is not there would wait for it in silence
    files = spark.readStream.format("text").options(
        pathGlobFilter=_pattern(_TEXT),
        recursiveFileLookup="true",
        ignoreMissingFiles="true",
        maxBytesPerTrigger=_BYTES_AT_ONCE,
    )
    nowhere = F.lit(None).cast("long")
    source = _place()[0]
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


class _Listing:
    """The files of a log, without what lies in directories of results.

    Raises:
        UsageError: there is no such path.
    """

    def __init__(self, spark: SparkSession, usage: str) -> None:
        self._spark = spark
        self._usage = usage
        files, root = Files(spark), _root(Files(spark), usage)
        self._paths = [_decoded(path) for path in _loaded(spark, usage).inputFiles()]
        directories = {at for path in self._paths for at in _directories_of(path, root)}
        self.passed_over = tuple(sorted(at for at in directories if is_results(files, at)))

    def lines(self) -> DataFrame | None:
        """Return the lines of files of text and where they stand; None: there is no such file."""
        # A file that goes while it is read (its time was up), or ends too early, ends there.
        options = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}
        rows = self._loaded("text", _TEXT, **options)
        if rows is None:
            return None
        return rows.select("value", *_place(), F.monotonically_increasing_id().alias("position"))

    def stored(self, *, without: Container[str] = (), **options: str) -> DataFrame | None:
        """Return the records of Parquet files and where they lie; None: there is no such file."""
        rows = self._loaded("parquet", _PARQUET, without, **_SUMS, **options)
        return None if rows is None else rows.select(*COLUMNS, *_place(), F.lit(0).cast("long").alias("position"))

    def broken(self, output: Output) -> DataFrame:
        """Return the .gz files that end too early or are damaged, and files without a byte.

        Spark reads what it can of them and says nothing.
        """
        listed = self._loaded("binaryFile", _MAY_BE_BROKEN, ignoreMissingFiles="true")
        if listed is None:
            return self._spark.createDataFrame([], FAULT)
        paths, files = self._of(_MAY_BE_BROKEN), Files(self._spark)
        here = listed.select("path", _place()[0])
        others = faults_elsewhere(files, [path for path in paths if not path.startswith("/")])
        if here.count() < len(paths):
            others += faults_of_blank(files, paths)
        found = here.mapInPandas(faults_here, FAULT)
        return output.keep("broken", found.unionByName(self._spark.createDataFrame(others, FAULT)))

    def unreadable(self) -> dict[str, str]:
        """Return which Parquet files cannot be read whole, and why.

        Rows of each are counted twice, once by what the file says of itself and once as they are read: so that those
        that are looked at one by one are few.
        """
        with silenced(self._spark):
            rows = self.stored(ignoreCorruptFiles="true")
            if rows is None:
                return {}
            everything = F.max(F.xxhash64(*COLUMNS))
            told, read = (
                {row["source"]: row["rows"] for row in counted.collect()}
                for counted in (
                    rows.groupBy("source").agg(F.count("*").alias("rows")),
                    rows.groupBy("source").agg(F.count("*").alias("rows"), everything),
                )
            )
            doubtful = [path for path in self._of(_PARQUET) if path not in told or told[path] != read.get(path)]
            found = {path: fault_of_parquet(self._spark, _as_pattern(path), _SUMS) for path in doubtful}
        return {path: fault for path, fault in found.items() if fault is not None}

    def _of(self, endings: Sequence[str]) -> list[str]:
        """Return the files of the log whose names end so."""
        named = [path for path in self._paths if path.endswith(tuple(f".{ending}" for ending in endings))]
        return [path for path in named if not any(path.startswith(f"{at}/") for at in self.passed_over)]

    def _loaded(
        self, form: str, endings: Sequence[str], without: Container[str] = (), **options: str
    ) -> DataFrame | None:
        kept = [path for path in self._of(endings) if path not in without]
        if not kept:
            return None
        reader = _reader(self._spark, form, endings, **options)
        is_all = not (self.passed_over or without)
        return reader.load(self._usage if is_all else [_as_pattern(path) for path in kept])


def _decoded(path: str) -> str:
    """Return what Spark lists as ``source`` has it."""
    return re.sub(_LOCAL, "", unquote(path))


def _as_pattern(path: str) -> str:
    """Return a path so that no character of it stands for others."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _root(files: Files, usage: str) -> str:
    """Return the directory above all of a log: of a pattern, the part that is none."""
    parts = usage.rstrip("/").split("/")
    plain = list(takewhile(lambda part: not _IS_PATTERN.search(part), parts))
    return _decoded(files.absolute("/".join(plain) or ("/" if usage.startswith("/") else ".")))


def _directories_of(path: str, root: str) -> Iterator[str]:
    """Yield the directories between a file and the root."""
    at = path.rpartition("/")[0]
    while at.startswith(f"{root.rstrip('/')}/"):
        yield at
        at = at.rpartition("/")[0]


def _place() -> tuple[Column, Column]:
    path = F.regexp_replace(F.col("_metadata.file_path"), _LOCAL, "")
    return path.alias("source"), F.col("_metadata.file_block_start").alias("block")


def _reader(spark: SparkSession, form: str, endings: Sequence[str], **options: str) -> DataFrameReader:
    reader = spark.read.format(form).options(pathGlobFilter=_pattern(endings), recursiveFileLookup="true", **options)
    return reader.schema(RECORD) if form == "parquet" else reader


def _pattern(endings: Sequence[str]) -> str:
    return f"*.{{{','.join(endings)}}}"


def _loaded(spark: SparkSession, usage: str) -> DataFrame:
    try:
        return _reader(spark, "binaryFile", (*_TEXT, *_PARQUET)).load(usage)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"--usage {usage}: there is no such file or directory") from error
        raise
