"""Finds the buckets that were over their limit or near it in each window of time of a usage log.

A bucket counts the use of one quota. A record counts in the window in which it starts. Each bucket has at most one
alert per window. The alert's column ``level`` is ``over`` if the bucket is over its limit, otherwise ``near``.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BUCKET, start_of

# These columns identify an alert, together with its window.
_BUCKET: Final = (*BUCKET, "listener")
_COLUMNS: Final = (
    "start_ms", "window_ms", "level", *_BUCKET, "limit", "amount", "use", "requests", "throttled_requests",
    "throttle_time_ms", "enforced",
)  # fmt: skip
# A limit of 100 per cent of a thread allows 100 x 1,000 percent-milliseconds in a second.
_IN_MILLISECONDS: Final = ("request",)


def alerts(records: DataFrame, *, window_ms: int, near: float) -> DataFrame:
    """Return an alert for each bucket (one quota) and window of time in which the bucket was over its limit or near it.

    Windows are aligned to the epoch. The allowed amount is the limit per second times the length of the window, or
    times the sum of the records' intervals if that is longer. If the limit changed, the highest limit applies.

    The column ``level`` says how severe the alert is. It is ``over`` if the amount exceeds the allowed amount, or if
    requests were throttled. At a proxy that does not enforce the limit, requests that it would have throttled count
    too. It is ``near`` if the amount exceeds the fraction ``near`` of the allowed amount. The column ``use`` is the
    amount divided by the allowed amount, or null without a limit.
    """
    is_limited = F.col("limit").isNotNull()
    used = records.groupBy(start_of(window_ms).alias("start_ms"), *_BUCKET).agg(
        F.max("limit").alias("limit"),
        F.coalesce(F.sum(F.when(is_limited, F.col("amount"))), F.lit(0)).alias("amount"),
        F.coalesce(F.sum(F.when(is_limited, F.col("interval_ms"))), F.lit(0)).alias("covered_ms"),
        *(F.sum(name).alias(name) for name in ("requests", "throttled_requests", "throttle_time_ms")),
        # Whether throttling was enforced. The records with throttling decide, if there are any.
        F.coalesce(F.bool_or(F.when(_is_throttled(), F.col("enforced"))), F.bool_or("enforced")).alias("enforced"),
    )
    time_ms = F.greatest(F.lit(window_ms), F.col("covered_ms"))
    time_in_unit = F.when(F.col("kind").isin(*_IN_MILLISECONDS), time_ms).otherwise(time_ms / 1_000)
    # Without a limit both comparisons are null, and only throttling causes an alert.
    allowed = F.col("limit") * time_in_unit
    level = F.when(_is_throttled() | (F.col("amount") > allowed), "over").when(F.col("amount") > near * allowed, "near")
    shown = used.withColumns(
        {
            "window_ms": F.lit(window_ms).cast("long"),
            "level": level,
            "use": F.round(F.try_divide("amount", allowed), 4),
        }
    )
    return shown.where("level IS NOT NULL").select(*_COLUMNS)


def in_order(found: DataFrame) -> DataFrame:
    """Return alerts in the order of their windows."""
    return found.orderBy("start_ms", *_BUCKET)


def as_json(found: DataFrame) -> DataFrame:
    """Return alerts in the column ``value``, as compact JSON with all fields."""
    return found.select(F.to_json(F.struct(*_COLUMNS), {"ignoreNullFields": "false"}).alias("value"))


def _is_throttled() -> Column:
    return (F.col("throttled_requests") > 0) | (F.col("throttle_time_ms") > 0)
