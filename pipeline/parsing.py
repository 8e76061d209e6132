"""Parses the lines of a usage log into records, and finds invalid lines and duplicate records.

A bad line becomes a row with a description of its fault. The row also says where the line is, so that its line number
can be computed. This module does no I/O.
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from kafka_quota_proxy.pipeline.record import COLUMNS, COUNTED_IN_BYTES, IDENTITY, RECORD, REQUIRED

# The columns with the place of a line, which the reader returns.
PLACE: Final = ("source", "block", "position")
# The columns of a line in quarantine.
QUARANTINE: Final = ("source", "line", "fault", "text")

_CORRUPT: Final = "_corrupt"
# The amounts of the kind ``request`` are times, so they may have a fraction.
_AS_WRITTEN: Final = StructType(
    [
        *(
            StructField(field.name, DoubleType() if field.name == "amount" else field.dataType)
            for field in RECORD.fields
        ),
        StructField(_CORRUPT, StringType()),
    ]
)
# A value beyond these bounds is a fault of the writer. It could make sums overflow or reports endless, and so stop the
# job or spoil a bill.
_MOST: Final = 10**15
_YEAR_2100_MS: Final = 4_102_444_800_000
_BOUNDS: Final = {
    "start_ms": (0, _YEAR_2100_MS),
    "interval_ms": (0, 366 * 86_400_000),
    "amount": (-_MOST, _MOST),
    "requests": (0, _MOST),
    "throttled_requests": (0, _MOST),
    "throttle_time_ms": (0, _MOST),
}
# Matches one object with nothing after it. The quantifiers are possessive, so that no line makes the match slow.
_ONE_OBJECT: Final = r'^\s*+\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}\s*+$'
_LONGEST_SHOWN: Final = 4_000


def parsed(lines: DataFrame) -> DataFrame:
    """Parse lines of a usage log, and return a row for each line that is not blank.

    ``lines`` has the columns ``value`` (the text of the line) and ``PLACE``. A row of the result has the columns of a
    record, ``fault`` (what is wrong with the line), ``text`` (the beginning of the line) and ``PLACE``. For a good
    line, ``fault``, ``text`` and the place are null.
    """
    record = F.from_json("value", _AS_WRITTEN, {"columnNameOfCorruptRecord": _CORRUPT}).alias("record")
    rows = lines.where(F.trim("value") != "").select(*PLACE, "value", record)
    return _with_fault(rows, _fault(), F.substring("value", 1, _LONGEST_SHOWN))


def checked(records: DataFrame) -> DataFrame:
    """Check records from Parquet files for missing and impossible values. Return rows in the form of ``parsed``."""
    as_struct = records.select(F.struct(*COLUMNS, F.lit(None).cast("string").alias(_CORRUPT)).alias("record"), *PLACE)
    return _with_fault(as_struct, _missing(), F.to_json("record"))


def _with_fault(rows: DataFrame, fault: Column, text: Column) -> DataFrame:
    is_bad = F.col("fault").isNotNull()
    return rows.withColumn("fault", fault).select(
        *(_field(name) for name in COLUMNS),
        "fault",
        F.when(is_bad, text).alias("text"),
        *(F.when(is_bad, F.col(name)).alias(name) for name in PLACE),
    )


def _field(name: str) -> Column:
    column = F.col(f"record.{name}")
    # A value that is no number or too large becomes null, and the line has a fault.
    return (F.round(column).try_cast("long") if name == "amount" else column).alias(name)


def _fault() -> Column:
    value, amount = F.col("value"), F.col("record.amount")
    is_open = ~F.rtrim(value).endswith("}")
    # Only a line with an inner brace can hold two records, so only such lines are matched as a whole.
    is_more = (F.locate("}", "value") < F.length(F.rtrim(value))) & ~value.rlike(_ONE_OBJECT)
    is_part = F.col("record.kind").isin(*COUNTED_IN_BYTES) & (amount != F.floor(amount))
    return F.coalesce(
        F.when(~F.ltrim(value).startswith("{"), "is not a JSON object; a record is one object on one line"),
        F.when(is_open, "ends before its closing brace; it was cut off when it was written"),
        F.when(is_more, "is more than one flat object; each record has a line of its own"),
        F.when(
            F.col(f"record.{_CORRUPT}").isNotNull(), "is not a record: it is not JSON, or a value has the wrong type"
        ),
        _missing(),
        F.when(is_part, "amount is not a whole number of bytes"),
    )


def _missing() -> Column:
    absent = [F.when(F.col(f"record.{name}").isNull(), F.lit(name)) for name in REQUIRED]
    # Checked first, since joining the names takes longest.
    is_any = reduce(or_, (F.col(f"record.{name}").isNull() for name in REQUIRED))
    names = F.concat_ws(", ", *absent)
    bounds = [
        F.when(~F.col(f"record.{name}").between(least, most), f"{name} is not within {least:,} and {most:,}")
        for name, (least, most) in _BOUNDS.items()
    ]
    return F.coalesce(F.when(is_any, F.concat(names, F.lit(" missing"))), *bounds)


def quarantined(bad: DataFrame, lines: DataFrame) -> DataFrame:
    """Return the bad rows of ``parsed`` with the columns ``QUARANTINE``, in which ``line`` is the line number from 1.

    ``lines`` are the lines from which the rows were parsed. Spark reads a file in blocks. So a line number is the rank
    of the line in its block plus the number of lines in earlier blocks.
    """
    blocks = lines.groupBy("source", "block").agg(F.count("*").alias("lines"), F.min("position").alias("first"))
    before = Window.partitionBy("source").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = blocks.withColumn("before", F.coalesce(F.sum("lines").over(before), F.lit(0))).drop("lines")
    line = F.col("position") - F.col("first") + F.col("before") + 1
    return bad.join(starts, on=["source", "block"], how="left").select("source", line.alias("line"), "fault", "text")


def duplicate_keys(records: DataFrame, *, is_small: bool = False) -> DataFrame:
    """Return the keys that more than one usage record has. Records with the same key are probably duplicates.

    A key is an 8-byte hash of the columns that identify a record. Comparing hashes is cheap, but two different records
    may have the same hash. The keys are sorted, since a hash table of them would take ten times as much memory. With
    ``is_small``, there are few enough for a hash table, which needs no Python process.
    """
    keys = records.select(_key())
    if is_small:
        return keys.groupBy("key").agg(F.count("*").alias("count")).where("count > 1").select("key")
    return keys.repartition("key").sortWithinPartitions("key").mapInArrow(_repeated, "key long")


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each number that appears more than once in the column ``key``, which is sorted across all batches."""
    last = np.empty(0, np.int64)
    for batch in batches:
        keys = np.concatenate((last, batch.column("key").to_numpy()))
        last = keys[-1:]
        yield pa.RecordBatch.from_pydict({"key": np.unique(keys[1:][keys[1:] == keys[:-1]])})


def without_duplicates(records: DataFrame, keys: DataFrame) -> DataFrame:
    """Return the usage records without duplicates. ``keys`` is the result of ``duplicate_keys`` for the same records.

    Records are duplicates if they agree in the columns that identify a record. They should have the same values in the
    other columns too. If they do not, the record with the greatest values is kept.
    """
    keyed, keys = records.withColumn("key", _key()), keys.select("key")
    rest = [name for name in COLUMNS if name not in IDENTITY]
    once = (
        keyed.join(keys, on="key", how="left_semi")
        .groupBy(*IDENTITY)
        .agg(F.max(F.struct(*rest)).alias("rest"))
        .select(*IDENTITY, "rest.*")
    )
    return keyed.join(keys, on="key", how="left_anti").select(*COLUMNS).unionByName(once.select(*COLUMNS))


def _key() -> Column:
    return F.xxhash64(*IDENTITY).alias("key")
