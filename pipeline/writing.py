"""Writes the results of a command. They appear complete or not at all, and a second run replaces them.

A command writes to a staging directory next to ``--out``, which is renamed when the results are complete.
"""

import csv
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.file_system import staged_directory

# RFC 4180. By default Spark escapes a quote with a backslash, and trims spaces.
_CSV: Final[dict[str, Any]] = {
    "emptyValue": "", "escape": '"', "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False,
}  # fmt: skip


class Output:
    """Writes the results of one command as tables and texts to the directory ``staging``."""

    def __init__(self, staging: str) -> None:
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

    def rows(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write rows of this process as a directory with one CSV file. A value of None is empty in the file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        self.text(f"{name}/part-00000.csv", text.getvalue())

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
        file_system.write(f"{self.path}/{name}", text)

    def _write(self, path: str, frame: DataFrame, partitions: Sequence[str], form: str, files: int | None) -> None:
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
def passing() -> Iterator[Output]:
    """Yield an ``Output`` in a temporary directory that is deleted at the end, for a command that only prints."""
    path = tempfile.mkdtemp(prefix="kafka-quota-pipeline-")
    try:
        yield Output(path)
    finally:
        file_system.delete(path)


@contextmanager
def staged(out: str) -> Iterator[Output]:
    """Yield an ``Output`` whose directory becomes ``out`` if the block succeeds (see ``staging``)."""
    with staged_directory(out) as staging:
        output = Output(staging)
        yield output
        file_system.delete(output.scratch)
