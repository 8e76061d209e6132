"""Sums up the records of produce and fetch requests in three tables, from which capacities are planned.

The functions take and return DataFrames and do no I/O.

A rate is the amount of a record divided by its interval, in bytes per second. Intervals below 100 ms, which occur when
a proxy starts or stops, count as 100 ms.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BUCKET, BYTE_KINDS, PLACE, start_of
from kafka_quota_proxy.pipeline.whatif import demand_columns, logged_columns

# The number of bins for each doubling of a rate. So a percentile is at most 1.1 % too high, and never too low.
_BINS: Final = 64
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


def byte_usage(records: DataFrame) -> DataFrame:
    """Return the produce and fetch records, with the rate of each record in bytes per second in the column ``rate``.

    An unknown broker becomes -1, because later joins on the column ``broker`` would skip records with a null.
    """
    interval_ms = F.greatest("interval_ms", F.lit(100))
    rate = F.greatest(F.lit(0).cast("long"), F.floor(F.col("amount") * 1_000 / interval_ms))
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    return used.withColumns({"broker": F.coalesce("broker", F.lit(-1)), "rate": rate})


def rates(usage: DataFrame) -> DataFrame:
    """Return a histogram of the rates of each bucket, with logarithmic bins, and the columns ``whatif.DEMAND``.

    ``usage`` is the result of ``byte_usage``. The peak of a bin is the highest measured rate in it.
    """
    bin_of = F.when(F.col("rate") < 1, F.lit(-1)).otherwise(F.ceil(F.log2("rate") * _BINS)).cast("int")
    throttled = F.sum(F.when(F.col("enforced"), F.col("throttled_requests")).otherwise(0))
    return usage.groupBy(*BUCKET, bin_of.alias("bin")).agg(
        F.count("*").alias("intervals"),
        F.max("rate").alias("peak"),
        F.sum("interval_ms").alias("active_ms"),
        *demand_columns(),
        throttled.alias("throttled_requests"),
        *logged_columns(),
    )


def minutes(usage: DataFrame) -> DataFrame:
    """For each entity on each broker and each minute, return the amount, the highest rate and the longest interval.

    The next two functions take this table, since it has fewer rows than the log.
    """
    return usage.groupBy(*BUCKET, start_of(_MINUTE_MS).alias("start_ms")).agg(
        F.sum("amount").alias("amount"), F.max("rate").alias("rate"), F.max("interval_ms").alias("interval_ms")
    )


def hours(usage: DataFrame) -> DataFrame:
    """For each entity on each broker and each hour, return the amount and the highest rate."""
    return usage.groupBy(*BUCKET, start_of(_HOUR_MS).alias("hour_ms")).agg(
        F.sum("amount").alias("amount"), F.max("rate").alias("peak")
    )


def broker_minutes(usage: DataFrame) -> DataFrame:
    """For each broker, kind and minute, return the amount of all entities and their longest interval."""
    return usage.groupBy(*PLACE, "kind", start_of(_MINUTE_MS).alias("start_ms")).agg(
        F.sum("amount").alias("amount"), F.max("interval_ms").alias("interval_ms")
    )
