"""Finds the damaged files of a usage log, and says what is wrong with each.

The module ``usage_reader`` writes the result to the directory ``quarantine/``. Spark's workers examine .gz files. Each
damaged file is returned as a row with the columns ``FAULT``.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pandas as pd
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.record import RECORD
from kafka_quota_proxy.pipeline.session import SPARK_FAULTS

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
