"""Lines of text become records; those that are none are told apart, each with what is wrong and where it stands.

Nothing here reads: a line comes with the place it was read from.
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

# Columns of a line, as reading gives them.
PLACE: Final = ("source", "block", "position")
# Columns of a line in quarantine.
QUARANTINE: Final = ("source", "line", "fault", "text")

_CORRUPT: Final = "_corrupt"
# Amounts of requests are times, and may have a fraction.
_AS_WRITTEN: Final = StructType(
    [
        *(
            StructField(field.name, DoubleType() if field.name == "amount" else field.dataType)
            for field in RECORD.fields
        ),
        StructField(_CORRUPT, StringType()),
    ]
)
# What is beyond is a fault of whoever wrote it, and would make sums overflow and pages endless: one such value would
# stop the job, or spoil a bill.
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
# One object and nothing behind it. Possessive, so that no line makes it slow.
_ONE_OBJECT: Final = r'^\s*+\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}\s*+$'
_LONGEST_SHOWN: Final = 4_000


def parsed(lines: DataFrame) -> DataFrame:
    """Return a row for each line that is not blank: a record's columns, and ``fault``, ``text`` and the place.

    Args:
        lines: ``value``, and the columns of ``PLACE``.

    Returns:
        ``fault`` is null on records, ``text`` and the place are null there; of a bad line all of these are given.
    """
    record = F.from_json("value", _AS_WRITTEN, {"columnNameOfCorruptRecord": _CORRUPT}).alias("record")
    faulty = lines.where(F.trim("value") != "").select(*PLACE, "value", record).withColumn("fault", _fault())
    is_bad = F.col("fault").isNotNull()
    return faulty.select(
        *(_field(name) for name in COLUMNS),
        "fault",
        F.when(is_bad, F.substring("value", 1, _LONGEST_SHOWN)).alias("text"),
        *(F.when(is_bad, F.col(name)).alias(name) for name in PLACE),
    )


def checked(records: DataFrame) -> DataFrame:
    """Return records that were stored with types (Parquet) in the form of ``parsed``: they may lack a value as well."""
    as_struct = records.select(F.struct(*COLUMNS, F.lit(None).cast("string").alias(_CORRUPT)).alias("record"), *PLACE)
    faulty = as_struct.withColumn("fault", _missing())
    is_bad = F.col("fault").isNotNull()
    return faulty.select(
        *(_field(name) for name in COLUMNS),
        "fault",
        F.when(is_bad, F.to_json("record")).alias("text"),
        *(F.when(is_bad, F.col(name)).alias(name) for name in PLACE),
    )


def _field(name: str) -> Column:
    column = F.col(f"record.{name}")
    # Of what is no number or too large nothing is left; its fault is told.
    return (F.round(column).try_cast("long") if name == "amount" else column).alias(name)


def _fault() -> Column:
    value, amount = F.col("value"), F.col("record.amount")
    is_open = ~F.rtrim(value).endswith("}")
    # Only a line with a brace inside can hold two records, so only there the whole of it is looked at.
    is_more = (F.locate("}", "value") < F.length(F.rtrim(value))) & ~value.rlike(_ONE_OBJECT)
    is_part = F.col("record.kind").isin(*COUNTED_IN_BYTES) & (amount != F.floor(amount))
    return F.coalesce(
        F.when(~F.ltrim(value).startswith("{"), "is no JSON object; a record is one object on one line"),
        F.when(is_open, "ends before its closing brace; it was cut off when it was written"),
        F.when(is_more, "is more than one flat object; each record has a line of its own"),
        F.when(F.col(f"record.{_CORRUPT}").isNotNull(), "is no record: not JSON, or a value of another type"),
        _missing(),
        F.when(is_part, "amount is no whole number of bytes"),
    )


def _missing() -> Column:
    absent = [F.when(F.col(f"record.{name}").isNull(), F.lit(name)) for name in REQUIRED]
    # Asked first, for to put their names together takes longer than all else.
    is_any = reduce(or_, (F.col(f"record.{name}").isNull() for name in REQUIRED))
    names = F.concat_ws(", ", *absent)
    bounds = [
        F.when(~F.col(f"record.{name}").between(least, most), f"{name} is not within {least:,} and {most:,}")
        for name, (least, most) in _BOUNDS.items()
    ]
    return F.coalesce(F.when(is_any, F.concat(names, F.lit(" missing"))), *bounds)


def quarantined(bad: DataFrame, lines: DataFrame) -> DataFrame:
    """Return bad lines with their numbers in their files, from 1.

    Args:
        bad: rows of ``parsed`` with a fault.
        lines: all lines of the files that these come from: ``value`` and the columns of ``PLACE``. A file is read in
            blocks, each by itself, so a line's number is its rank in its block and the lines of all blocks before.
    """
    blocks = lines.groupBy("source", "block").agg(F.count("*").alias("lines"), F.min("position").alias("first"))
    before = Window.partitionBy("source").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = blocks.withColumn("before", F.coalesce(F.sum("lines").over(before), F.lit(0))).drop("lines")
    line = F.col("position") - F.col("first") + F.col("before") + 1
    return bad.join(starts, on=["source", "block"], how="left").select("source", line.alias("line"), "fault", "text")


def duplicate_keys(records: DataFrame) -> DataFrame:
    """Return the ``key`` of what has the identity of another record.

    A key is a hash of the identity: 8 bytes, so that finding that there is nothing to be found costs little. Others
    may have the same by chance; ``without_duplicates`` looks at the identity itself. Keys are sorted and not grouped:
    nearly all differ, and a hash table of them is ten times as large as they are.
    """
    return records.select(_key()).repartition("key").sortWithinPartitions("key").mapInArrow(_repeated, "key long")


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each number that comes more than once, of numbers in order."""
    last = np.empty(0, np.int64)
    for batch in batches:
        keys = np.concatenate((last, batch.column("key").to_numpy()))
        last = keys[-1:]
        yield pa.RecordBatch.from_pydict({"key": np.unique(keys[1:][keys[1:] == keys[:-1]])})


def without_duplicates(records: DataFrame, keys: DataFrame) -> DataFrame:
    """Return each record once. Of copies that differ, which ought not to be, the greatest by its columns."""
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
