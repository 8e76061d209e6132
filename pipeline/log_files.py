"""Finds the text and Parquet files of a usage log, the proxy's records of how much each client transferred.

The path of the log is a directory, a file, or a pattern with wildcards.

It also finds damaged files. Spark's workers examine .gz files, and each damaged file is a row with the columns
``FAULT``.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD

DAMAGED: Final = "is damaged: it was not counted"
# A fault, the place of the file, and no line.
Fault = tuple[str, None, str, None]
FAULT: Final = "fault string, text string, source string, line long"
_PIECE_BYTES: Final = 1 << 20
_CUT: Final = "ends too early: its missing part was not read"


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


# The endings of complete files, in lower or upper case. Files that end in .part and hidden files are skipped.
TEXT: Final = ("jsonl", "json", "ndjson", "jsonl.gz", "json.gz", "ndjson.gz")
ENDINGS: Final = ".jsonl, .json or .ndjson (also .gz), or .parquet"
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

    With ``cluster``, only files in directories with the name ``cluster=NAME`` belong to the log. ``left_out`` are files
    whose names do not end as those of a log, which are not read. Raises UsageError if the path does not exist, or if
    the cluster has no file.
    """

    def __init__(self, spark: SparkSession, usage: str, cluster: str | None = None) -> None:
        self._spark = spark
        self._usage = usage
        self._is_part = cluster is not None
        self._paths = [file_system.plain(path) for path in listed(spark, usage).inputFiles()]
        if cluster is not None:
            self._paths = [path for path in self._paths if f"/cluster={cluster}/" in path]
            if not self._paths:
                raise UsageError(f"--cluster {cluster}: --usage {usage} has no file in a directory cluster={cluster}")
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

    def stored(self) -> DataFrame | None:
        """Return the records of the Parquet files, or None if there are none.

        The columns are those of a record, and its place: ``source`` (the file), ``block`` and ``position``, which is
        always 0. Reading a damaged file fails.
        """
        rows = self._loaded("parquet", _PARQUET, **_SUMS)
        return None if rows is None else rows.select(*COLUMNS, *line_place(), F.lit(0).cast("long").alias("position"))

    def broken(self) -> list[Fault]:
        """Return a row for each damaged or incomplete .gz file. Spark reads such a file as far as it can."""
        compressed = self._loaded("binaryFile", (_GZ,), ignoreMissingFiles="true")
        if compressed is None:
            return []
        # A worker reads a local file itself, piece by piece.
        is_local = all(path.startswith("/") for path in self._of((_GZ,)))
        content = F.lit(None).cast("binary").alias("content") if is_local else F.col("content")
        found = compressed.select("path", line_place()[0], content).mapInPandas(gz_faults, FAULT)
        return [(row["fault"], None, row["source"], None) for row in found.collect()]

    def _of(self, endings: Sequence[str]) -> list[str]:
        """Return the paths of the log's files with one of these endings."""
        return [path for path in self._paths if _has(path, endings)]

    def _loaded(self, form: str, endings: Sequence[str], **options: str) -> DataFrame | None:
        kept = self._of(endings)
        if not kept:
            return None
        reader = _reader(self._spark, form, endings, **options)
        return reader.load([_as_pattern(path) for path in kept] if self._is_part else self._usage)


def left_out_words(paths: Sequence[str]) -> str:
    """Return a sentence that names files which are not read, of which there is at least one."""
    count = "1 file was" if len(paths) == 1 else f"{len(paths):,} files were"
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    names = ", ".join(sorted(paths)[:_SHOWN])
    return f"{count} not read, because the name does not end in {ENDINGS}: {names}{more}"


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
