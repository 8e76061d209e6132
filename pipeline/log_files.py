"""Finds the text and Parquet files of a usage log, the proxy's records of how much each client transferred.

The path of the log is a directory, a file, or a pattern with wildcards. Directories that contain the results of a
``kafka-quota-pipeline`` command are skipped, except usage logs that its command ``simulate`` generated.

It also finds damaged files. Spark's workers examine .gz files, and each damaged file is a row with the columns
``FAULT``.
"""

import re
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.file_system import is_results
from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD
from kafka_quota_proxy.pipeline.session import SPARK_FAULTS, silenced

DAMAGED: Final = "is damaged: it was not counted"
# A fault, the place of the file, and no line.
Fault = tuple[str, None, str, None]
FAULT: Final = "fault string, text string, source string, line long"
# The name of Spark's error for an unreadable file.
UNREADABLE: Final = "FAILED_READ_FILE"
_PIECE_BYTES: Final = 1 << 20
_CUT: Final = "ends too early: its missing part was not read"
_NO_PARQUET: Final = "is not a whole Parquet file: it was not counted"
_OTHER_TYPE: Final = re.compile(r"SchemaColumnConvertNotSupportedException: column: \[(.+?)\], physicalType: (\w+)")


def gz_faults(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield a row for each damaged .gz file.

    The DataFrames have the columns ``path`` (a URI), ``source`` and ``content``. The content may be null for a local
    file, which is read piece by piece.
    """
    for batch in batches:
        faults = [_fault_of(path, content) for path, content in zip(batch["path"], batch["content"], strict=True)]
        found = pd.DataFrame({"fault": faults, "text": None, "source": batch["source"], "line": None})
        yield found[found["fault"].notna()]


def _fault_of(path: str, content: bytes | None) -> str | None:
    if content is not None:
        return fault_of_gz([content])
    try:
        with Path(file_system.absolute(path)).open("rb") as file:
            return fault_of_gz(iter(lambda: file.read(_PIECE_BYTES), b""))
    except FileNotFoundError:  # removed by retention
        return None


def fault_of_blank(path: str) -> str:
    """Return what is wrong with a file of 0 bytes. Spark never opens such a file, and so reports no fault."""
    return _CUT if path.lower().endswith(".gz") else _NO_PARQUET


def fault_of_gz(pieces: Iterable[bytes]) -> str | None:
    """Return what is wrong with a .gz file, or None if it is intact.

    ``pieces`` yields the bytes of the file. A file may consist of several gzip members.
    """
    inflate = zlib.decompressobj(wbits=31)
    for piece in pieces:
        rest = piece
        while rest:
            if inflate.eof:
                # Tools pad the end with zeros.
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                inflate = zlib.decompressobj(wbits=31)
            try:
                inflate.decompress(rest, _PIECE_BYTES)
            except zlib.error:
                return DAMAGED
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    return None if inflate.eof else _CUT


def fault_of_parquet(spark: SparkSession, path: str, options: Mapping[str, str]) -> str | None:
    """Return what is wrong with a Parquet file, or None if it can be read as usage records."""
    try:
        spark.read.schema(RECORD).options(**options).parquet(path).write.format("noop").mode("overwrite").save()
    except SPARK_FAULTS as error:
        said = str(error)
        if found := _OTHER_TYPE.search(said):
            return f"has a column of another type, {found[1]} ({found[2]}): it was not counted"
        # The Java stack shows the cause. A truncated file may have any bytes in place of the footer, so errors vary.
        return _NO_PARQUET if "readFooter" in said else DAMAGED
    return None


# The endings of complete files, in lower or upper case. Files that end in .part and hidden files are skipped.
TEXT: Final = ("jsonl", "json", "ndjson", "jsonl.gz", "json.gz", "ndjson.gz")
ENDINGS_OF_TEXT: Final = ".jsonl, .json or .ndjson (also .gz)"
ENDINGS: Final = f"{ENDINGS_OF_TEXT}, or .parquet"
_PARQUET: Final = ("parquet",)
_GZ: Final = "gz"
_UNFINISHED: Final = "part"
_SHOWN: Final = 5
# Spark writes a checksum of each page, and verifies it only on request.
_SUMS: Final = {"parquet.page.verify-checksum.enabled": "true"}
_LOCAL: Final = r"^file:(//)?"
_IS_PATTERN: Final = re.compile(r"[*?\[{]")


class LogFiles:
    """The text and Parquet files of the usage log at ``usage``, a path or a pattern with wildcards.

    With ``cluster``, only files in directories with the name ``cluster=NAME`` belong to the log. Directories that
    contain the results of a command are skipped, and are listed in ``passed_over``. ``left_out`` are files whose names
    do not end as those of a log, which are not read. Raises UsageError if the path does not exist, or if the cluster
    has no file.
    """

    def __init__(self, spark: SparkSession, usage: str, cluster: str | None = None) -> None:
        self._spark = spark
        self._usage = usage
        self._is_part = cluster is not None
        root = log_root(usage)
        every = [file_system.plain(path) for path in listed(spark, usage).inputFiles()]
        if cluster is not None:
            every = [path for path in every if f"/cluster={cluster}/" in path]
            if not every:
                raise UsageError(f"--cluster {cluster}: --usage {usage} has no file in a directory cluster={cluster}")
        directories = {at for path in every for at in _directories_of(path, root)}
        self.passed_over = tuple(sorted(at for at in directories if is_results(at)))
        self._paths = [path for path in every if not any(path.startswith(f"{at}/") for at in self.passed_over)]
        self.left_out = tuple(path for path in self._paths if not _has(path, (*TEXT, *_PARQUET, _UNFINISHED)))

    def lines(self) -> DataFrame | None:
        """Return the lines of the text files, or None if there are no text files.

        The columns are ``value`` (the text of the line) and its place: ``source`` (the file), ``block`` and
        ``position``, a number that increases from line to line.
        """
        # A file may be removed by retention while it is read, or may end too early. The rest of such a file is skipped.
        options = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}
        rows = self._loaded("text", TEXT, **options)
        if rows is None:
            return None
        return rows.select("value", *line_place(), F.monotonically_increasing_id().alias("position"))

    def stored(self, *, without: Container[str] = (), **options: str) -> DataFrame | None:
        """Return the records of the Parquet files, apart from the files in ``without``, or None if there are none.

        The columns are those of a record, and its place: ``source`` (the file), ``block`` and ``position``, which is
        always 0. ``options`` are options of Spark's reader.
        """
        rows = self._loaded("parquet", _PARQUET, without, **_SUMS, **options)
        return None if rows is None else rows.select(*COLUMNS, *line_place(), F.lit(0).cast("long").alias("position"))

    def broken(self) -> list[Fault]:
        """Return a row for each damaged or incomplete .gz file, and for each empty .gz or Parquet file.

        Spark itself reports no error for such a file. It reads the file as far as it can.
        """
        found: list[Fault] = []
        paths = self._of((_GZ, *_PARQUET))
        is_local = all(path.startswith("/") for path in paths)
        compressed = self._loaded("binaryFile", (_GZ,), ignoreMissingFiles="true")
        if compressed is not None:
            found += _faults_of(compressed, is_local=is_local)
        if is_local or self._has_blank(paths):
            found += [(fault_of_blank(path), None, path, None) for path in paths if file_system.is_blank(path)]
        return found

    def _has_blank(self, paths: Sequence[str]) -> bool:
        """Return whether one of these .gz and Parquet files is empty, without a request for each file.

        Spark does not list empty files.
        """
        listed = self._loaded("binaryFile", (_GZ, *_PARQUET), ignoreMissingFiles="true")
        return listed is not None and listed.select("path").count() < len(paths)

    def unreadable(self) -> dict[str, str]:
        """Return the Parquet files that cannot be read completely, each with the reason.

        Only those files are examined in which the number of rows according to the footer differs from the number of
        rows that Spark can read.
        """
        with silenced(self._spark):
            rows = self.stored(ignoreCorruptFiles="true")
            if rows is None:
                return {}
            everything = F.max(F.xxhash64(*COLUMNS))
            counted, read = (
                {row["source"]: row["rows"] for row in rows_of.collect()}
                for rows_of in (
                    rows.groupBy("source").agg(F.count("*").alias("rows")),
                    rows.groupBy("source").agg(F.count("*").alias("rows"), everything),
                )
            )
            doubtful = [path for path in self._of(_PARQUET) if path not in counted or counted[path] != read.get(path)]
            found = {path: fault_of_parquet(self._spark, _as_pattern(path), _SUMS) for path in doubtful}
        return {path: fault for path, fault in found.items() if fault is not None}

    def _of(self, endings: Sequence[str]) -> list[str]:
        """Return the paths of the log's files with one of these endings, apart from those in skipped directories."""
        return [path for path in self._paths if _has(path, endings)]

    def _loaded(
        self, form: str, endings: Sequence[str], without: Container[str] = (), **options: str
    ) -> DataFrame | None:
        kept = [path for path in self._of(endings) if path not in without]
        if not kept:
            return None
        reader = _reader(self._spark, form, endings, **options)
        is_all = not (self.passed_over or without or self._is_part)
        return reader.load(self._usage if is_all else [_as_pattern(path) for path in kept])


def left_out_of_stream(spark: SparkSession, usage: str) -> str | None:
    """Return a sentence about the files of a log that a stream does not read, or None if there are none."""
    every = [file_system.plain(path) for path in listed(spark, usage).inputFiles()]
    paths = [path for path in every if not _has(path, (*TEXT, _UNFINISHED))]
    return left_out_words(paths, ENDINGS_OF_TEXT) if paths else None


def left_out_words(paths: Sequence[str], endings: str = ENDINGS) -> str:
    """Return a sentence that names files which are not read, of which there is at least one."""
    count = "1 file was" if len(paths) == 1 else f"{len(paths):,} files were"
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    names = ", ".join(sorted(paths)[:_SHOWN])
    return f"{count} not read, because the name does not end in {endings}: {names}{more}"


def faults_of_gz(spark: SparkSession, paths: Sequence[str]) -> list[Fault]:
    """Return a row for each of these .gz files that is damaged or incomplete. Missing files are skipped."""
    there = [path for path in paths if file_system.exists(path)]
    if not there:
        return []
    files = _reader(spark, "binaryFile", (_GZ,), ignoreMissingFiles="true").load([_as_pattern(path) for path in there])
    return _faults_of(files, is_local=all(path.startswith("/") for path in there))


def _faults_of(files: DataFrame, *, is_local: bool) -> list[Fault]:
    # A worker reads a local file itself, piece by piece.
    content = F.lit(None).cast("binary").alias("content") if is_local else F.col("content")
    found = files.select("path", line_place()[0], content).mapInPandas(gz_faults, FAULT)
    return [(row["fault"], None, row["source"], None) for row in found.collect()]


def _has(path: str, endings: Sequence[str]) -> bool:
    return path.lower().endswith(tuple(f".{ending}" for ending in endings))


def _as_pattern(path: str) -> str:
    """Escape the characters of a path that would be wildcards in a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def log_root(usage: str) -> str:
    """Return the absolute path of a log. If ``usage`` is a pattern, return the directory before its first wildcard."""
    parts = usage.rstrip("/").split("/")
    plain = list(takewhile(lambda part: not _IS_PATTERN.search(part), parts))
    return file_system.absolute("/".join(plain) or ("/" if usage.startswith("/") else "."))


def _directories_of(path: str, root: str) -> Iterator[str]:
    """Yield each directory that contains the file, from the innermost up to the root of the log, which is left out."""
    at = path.rpartition("/")[0]
    while at.startswith(f"{root.rstrip('/')}/"):
        yield at
        at = at.rpartition("/")[0]


def line_place() -> tuple[Column, Column]:
    """Return the columns ``source`` and ``block``: the path of a row's file, and the byte at which its block starts."""
    path = F.regexp_replace(F.col("_metadata.file_path"), _LOCAL, "")
    return path.alias("source"), F.col("_metadata.file_block_start").alias("block")


def _reader(spark: SparkSession, form: str, endings: Sequence[str], **options: str) -> DataFrameReader:
    if endings:
        options["pathGlobFilter"] = name_pattern(endings)
    reader = spark.read.format(form).options(recursiveFileLookup="true", **options)
    return reader.schema(RECORD) if form == "parquet" else reader


def name_pattern(endings: Sequence[str]) -> str:
    """Return a glob pattern that matches the file names with one of these endings, in lower or upper case."""
    any_case = re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", ",".join(endings))
    return f"*.{{{any_case}}}"


def listed(spark: SparkSession, usage: str) -> DataFrame:
    """Return a DataFrame whose ``inputFiles()`` are the paths of all files of a usage log. Their content is not read.

    Raises UsageError if ``usage``, which is the path of the log, does not exist.
    """
    try:
        return _reader(spark, "binaryFile", ()).load(usage)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"--usage {usage}: there is no such file or directory") from error
        raise
