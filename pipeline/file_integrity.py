"""Finds the damaged files of a usage log, and says what is wrong with each.

The module ``usage_reader`` writes the result to the directory ``quarantine/``. Spark's workers examine local .gz files.
The driver examines other .gz files, which it reads through Hadoop's file systems. Each damaged file is returned as a
row with the columns ``FAULT``.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.files import Files
from kafka_quota_proxy.pipeline.record import RECORD

DAMAGED: Final = "is damaged: it was not counted"
FAULT: Final = "fault string, text string, source string, line long"
# The name of Spark's error for an unreadable file.
UNREADABLE: Final = "FAILED_READ_FILE"
_PIECE_BYTES: Final = 1 << 20
_AT_ONCE: Final = 8
_CUT: Final = "ends too early: its missing part was not read"
_NO_PARQUET: Final = "is not a whole Parquet file: it was not counted"
_OTHER_TYPE: Final = re.compile(r"SchemaColumnConvertNotSupportedException: column: \[(.+?)\], physicalType: (\w+)")


def faults_here(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield a row for each damaged local .gz file. The DataFrames have the columns ``path`` (a URI) and ``source``."""
    for batch in batches:
        faults = [_fault_here(path) for path in batch["path"]]
        found = pd.DataFrame({"fault": faults, "text": None, "source": batch["source"], "line": None})
        yield found[found["fault"].notna()]


def _fault_here(path: str) -> str | None:
    if not (path.endswith(".gz") and path.startswith("file:")):
        return None
    try:
        with Path(re.sub("^file:(//)?", "", path)).open("rb") as file:
            return fault_of_gz(iter(lambda: file.read(_PIECE_BYTES), b""))
    except FileNotFoundError:  # removed by retention
        return None


def faults_of_blank(files: Files, paths: Sequence[str]) -> list[tuple[str, None, str, None]]:
    """Return a row for each file of 0 bytes. Spark never opens such a file, and so reports no fault."""
    blank = [path for path in paths if files.exists(path) and files.is_blank(path)]
    return [(_CUT if path.endswith(".gz") else _NO_PARQUET, None, path, None) for path in blank]


def faults_elsewhere(files: Files, paths: Sequence[str]) -> list[tuple[str, None, str, None]]:
    """Return a row for each damaged .gz file in ``paths``. These files are not local, and are read through Hadoop."""
    gz = [path for path in paths if path.endswith(".gz")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        faults = pool.map(lambda path: fault_of_gz(files.chunks(path, _PIECE_BYTES)), gz)
        return [(fault, None, path, None) for path, fault in zip(gz, faults, strict=True) if fault is not None]


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
    except (Py4JJavaError, PySparkException) as error:
        said = str(error)
        if found := _OTHER_TYPE.search(said):
            return f"has a column of another type, {found[1]} ({found[2]}): it was not counted"
        # The Java stack shows the cause. A truncated file may have any bytes in place of the footer, so errors vary.
        return _NO_PARQUET if "readFooter" in said else DAMAGED
    return None
