"""Finds the buckets that are over their limit or near it in each window of time, in a stream of records or a log.

The functions take and return DataFrames and do no I/O.

A bucket counts the use of one quota. A record counts in the window in which it starts. Each bucket has at most one
alert per window. The alert's column ``level`` is ``over`` if the bucket is over its limit, otherwise ``near``. The
alert is final when the window closes.

Alerts contain only maxima and sums of integers, so the same records give exactly the same alert in any order and in any
batches. So an alert that is delivered twice is the same both times.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BUCKET, COLUMNS, IDENTITY, end_of

# These columns identify an alert, together with its window and level.
ALERT_KEY: Final = (*BUCKET, "listener")
ALERT: Final = (
    "start_ms", "window_ms", "level", *ALERT_KEY, "limit", "amount", "use", "requests", "throttled_requests",
    "throttle_time_ms", "enforced",
)  # fmt: skip
# The column with the event time of a stream of records, a timestamp in UTC: the end of a window.
TIME: Final = "time"
# A limit of 100 per cent of a thread allows 100 x 1,000 percent-milliseconds in a second.
_IN_MILLISECONDS: Final = ("request",)


def marked_ahead(rows: DataFrame, now: Column, *, late_ms: int) -> DataFrame:
    """Add the column ``is_ahead``, which is true for records that start more than ``late_ms`` after ``now``.

    Such records must be left out: if the clock of one proxy is a day fast, its records would move the watermark of the
    stream a day ahead, and the records of all other proxies would be too late. A stream should pass
    ``current_timestamp()`` as ``now``, because this time stays the same if a batch is repeated.
    """
    return rows.withColumn("is_ahead", F.coalesce(F.col("start_ms") > F.unix_millis(now) + late_ms, F.lit(False)))


def once(records: DataFrame, *, window_ms: int, late_ms: int) -> DataFrame:
    """Drop duplicate and late records, and add the timestamp ``time``: the last millisecond of a record's window.

    It is the event time of the stream, so all or none of a window's records in a batch are late. Records are late if
    their window ends before that of the newest record by more than ``late_ms``, rounded up to whole windows.

    Duplicates are found by comparing columns, and ``time`` is one of these columns. So Spark can forget a record once
    the watermark has passed its event time. ``dropDuplicatesWithinWatermark`` would remember the record twice as long.
    """
    timed = records.select(*COLUMNS, F.timestamp_millis(end_of(window_ms)).alias(TIME))
    return timed.withWatermark(TIME, f"{delay_ms(window_ms=window_ms, late_ms=late_ms)} milliseconds").dropDuplicates(
        [*IDENTITY, TIME]
    )


def delay_ms(*, window_ms: int, late_ms: int) -> int:
    """Return how far the watermark of the stream is behind the end of the newest record's window."""
    # Spark drops a record whose event time equals the watermark, hence one millisecond more.
    return -(-late_ms // window_ms) * window_ms + 1


def alerts(records: DataFrame, *, window_ms: int, near: float) -> DataFrame:
    """Return an alert for each bucket (one quota) and window of time in which the bucket was over its limit or near it.

    ``records`` is the result of ``once``. Windows are aligned to the epoch. The allowed amount is the limit per second
    times the length of the window, or times the sum of the records' intervals if that is longer. If the limit changed,
    the highest limit applies.

    The column ``level`` says how severe the alert is. It is ``over`` if the amount exceeds the allowed amount, or if
    requests were throttled. At a proxy that does not enforce the limit, requests that it would have throttled count
    too. It is ``near`` if the amount exceeds the fraction ``near`` of the allowed amount. The column ``use`` is the
    amount divided by the allowed amount, or null without a limit.
    """
    is_limited = F.col("limit").isNotNull()
    window = F.window(TIME, f"{window_ms} milliseconds").alias("window")
    used = records.groupBy(window, *ALERT_KEY).agg(
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
    shown = used.select(
        F.unix_millis("window.start").alias("start_ms"),
        F.lit(window_ms).cast("long").alias("window_ms"),
        level.alias("level"),
        *ALERT_KEY,
        "limit",
        "amount",
        F.round(F.try_divide("amount", allowed), 4).alias("use"),
        *("requests", "throttled_requests", "throttle_time_ms", "enforced"),
    )
    return shown.where("level IS NOT NULL").select(*ALERT)


def encoded(found: DataFrame) -> DataFrame:
    """Return alerts as Kafka records, with ``key`` and ``value`` in compact JSON and ``start_ms`` as the timestamp.

    The key identifies the bucket (the quota) that an alert is about. So all alerts about a bucket are in one partition,
    in the order of their windows.
    """
    every = {"ignoreNullFields": "false"}
    key, value = F.to_json(F.struct(*ALERT_KEY), every), F.to_json(F.struct(*ALERT), every)
    return found.select(key.alias("key"), value.alias("value"), "start_ms")


def _is_throttled() -> Column:
    return (F.col("throttled_requests") > 0) | (F.col("throttle_time_ms") > 0)
