"""Writes the results of a command. They appear complete or not at all, and a second run replaces them.

A command writes to a staging directory next to ``--out``, which is renamed when the results are complete.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.files import Files

# RFC 4180. By default Spark escapes a quote with a backslash, and trims spaces.
_CSV: Final[dict[str, Any]] = {
    "emptyValue": "", "escape": '"', "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False,
}  # fmt: skip
# Marks a directory that this program wrote and may replace.
_MARK: Final = "_kafka_quota_pipeline"
_OF_LOG: Final = "a usage log, "
_BY: Final = "written by kafka-quota-pipeline; replaced as a whole when it runs again\n"


class Output:
    """Writes the results of one command as tables and texts to the directory ``staging``.

    ``explain`` is called with the name and the rows of each table before the table is written.
    """

    def __init__(self, spark: SparkSession, staging: str, explain: Callable[[str, DataFrame], None] | None) -> None:
        self._files = Files(spark)
        self._explain = explain
        self.path = staging
        # For tables that are read more than once. It is removed before the results appear.
        self.scratch = f"{staging}/_scratch"

    def table(
        self,
        name: str,
        frame: DataFrame,
        *,
        partitions: Sequence[str] = (),
        form: str = "parquet",
        files: int | None = 1,
    ) -> None:
        """Write rows, in their order, as a directory of files.

        ``form`` is parquet, csv, json or json.gz. Rows that differ in a column of ``partitions`` get separate
        directories. ``files`` is the number of files, or None for one file per partition of the rows.
        """
        self._write(f"{self.path}/{name}", frame, partitions, form, files)

    def daily(self, name: str, frame: DataFrame, *order: str, form: str = "parquet") -> None:
        """Write a table with a directory for each ``day``, which contains one file, sorted by the columns ``order``."""
        rows = frame.repartition("day").sortWithinPartitions("day", *order)
        self.table(name, rows, partitions=["day"], form=form, files=None)

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """Write rows that are needed more than once to a temporary table, and return the content of that table."""
        path = f"{self.scratch}/{name}"
        self._write(path, frame, (), "parquet", None)
        return frame.sparkSession.read.schema(frame.schema).parquet(path)

    def text(self, name: str, text: str) -> None:
        """Write a text file to the directory with the results of the command."""
        self._files.write(f"{self.path}/{name}", text)

    def _write(self, path: str, frame: DataFrame, partitions: Sequence[str], form: str, files: int | None) -> None:
        if self._explain is not None:
            self._explain(path.removeprefix(self.path), frame)
        writer = (frame if files is None else frame.coalesce(files)).write.mode("error").partitionBy(*partitions)
        match form:
            case "parquet":
                writer.parquet(path)
            case "csv":
                writer.options(**_CSV).csv(path, header=True)
            case "json":
                writer.json(path)
            case "json.gz":
                writer.json(path, compression="gzip")
            case _:
                raise ValueError(form)


@contextmanager
def passing(spark: SparkSession, *, explain: Callable[[str, DataFrame], None] | None = None) -> Iterator[Output]:
    """Yield an ``Output`` in a temporary directory that is deleted at the end, for a command that only prints."""
    files = Files(spark)
    path = f"{tempfile.gettempdir()}/kafka-quota-pipeline-{uuid4().hex}"
    files.make_private_directory(path)
    try:
        yield Output(spark, path, explain)
    finally:
        files.delete(path)


@contextmanager
def staged(
    spark: SparkSession, out: str, *, explain: Callable[[str, DataFrame], None] | None = None, is_log: bool = False
) -> Iterator[Output]:
    """Yield an ``Output`` that becomes ``out`` if the block succeeds, and is deleted otherwise.

    With ``is_log``, the result is a usage log, which ``usage_reader`` also reads as a part of a larger log. Old results
    are set aside until the new results are in their place. If the process is killed in between, the next run restores
    them. On object stores the replacement is not atomic. Raises UsageError if ``out`` has files that this program did
    not write.
    """
    files = Files(spark)
    out = out.rstrip("/") or "/"
    parent, _, name = out.rpartition("/")
    directory = f"{parent}/" if parent or out.startswith("/") else ""
    staging, previous = f"{directory}.{name}.staging", f"{directory}.{name}.previous"
    if files.exists(previous) and not files.exists(out):
        files.rename(previous, out)
    if files.exists(out) and not files.exists(f"{out}/{_MARK}") and not files.is_empty(out):
        raise UsageError(f"--out {out}: exists and was not written by this program; name a new directory")
    files.delete(staging)
    files.make_directory(staging)
    try:
        output = Output(spark, staging, explain)
        yield output
        files.delete(output.scratch)
        files.write(f"{staging}/{_MARK}", _OF_LOG + _BY if is_log else _BY)
        _replace(files, out, by=staging, aside=previous)
    finally:
        files.delete(staging)


def is_results(files: Files, directory: str) -> bool:
    """Return whether a directory contains results of a command, other than a usage log that ``simulate`` generated."""
    mark = f"{directory}/{_MARK}"
    return files.exists(mark) and not files.read(mark).startswith(_OF_LOG)


def _replace(files: Files, out: str, *, by: str, aside: str) -> None:
    files.delete(aside)
    is_there = files.exists(out)
    if is_there:
        files.rename(out, aside)
    try:
        files.rename(by, out)
    except BaseException:
        if is_there:
            files.rename(aside, out)
        raise
    files.delete(aside)
