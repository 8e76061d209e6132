"""Finds the buckets over a limit or near it, window by window. DataFrame -> DataFrame, stream or log; no I/O.

A record counts in the window of event time in which it starts. Each bucket and window has at most one alert, ``over``
before ``near``. It is final when the window closes: later records do not change it.

Every value of an alert is a sum of integers or a maximum, so the same records give exactly the same alert, whatever
their order and batches. Exactly-once delivery relies on that.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BUCKET, COLUMNS, IDENTITY

# Identifies an alert, with its window and level.
ALERT_KEY: Final = (*BUCKET, "listener")
ALERT: Final = (
    "start_ms", "window_ms", "level", *ALERT_KEY, "limit", "amount", "use", "requests", "throttled_requests",
    "throttle_time_ms", "enforced",
)  # fmt: skip
# The event time of a stream of records; a timestamp, UTC.
TIME: Final = "time"
# Of a limit of 100 per cent of a thread, a second uses 100 x 1,000 percent-milliseconds.
_IN_MILLISECONDS: Final = ("request",)


def marked_ahead(rows: DataFrame, now: Column, *, late_ms: int) -> DataFrame:
    """Return rows with ``is_ahead``: whether they lie in the future by more than clocks may differ (``late_ms``).

    The newest record moves the watermark for all proxies. A proxy whose clock is a day ahead would make the records of
    all others too late for a day.

    ``now`` is a timestamp; for a stream ``current_timestamp()``, which stays the same if a batch is repeated.
    """
    return rows.withColumn("is_ahead", F.coalesce(F.col("start_ms") > F.unix_millis(now) + late_ms, F.lit(False)))


def once(records: DataFrame, *, late_ms: int) -> DataFrame:
    """Return each record once with its ``time``, without records that come too late.

    The identity contains the time. So Spark forgets a record when the watermark has passed it, and a later copy is too
    late anyway; ``dropDuplicatesWithinWatermark`` would keep it twice as long without need.
    """
    timed = records.select(*COLUMNS, F.timestamp_millis("start_ms").alias(TIME))
    return timed.withWatermark(TIME, f"{late_ms} milliseconds").dropDuplicates([*IDENTITY, TIME])


def alerts(records: DataFrame, *, window_ms: int, near: float) -> DataFrame:
    """Return an alert for each bucket and window in which it was over its limit, or near it, from records of ``once``.

    ``over``: requests were throttled (or would have been), or the amount exceeds what the limit allows in the window.
    ``near``: the amount exceeds the part ``near`` of that. If the limit changed in a window, the highest counts; use
    without a limit does not count. If the intervals of the records add up to more than the window, the limit applies to
    their sum.

    Windows follow each other from the epoch. ``use`` is the amount as a part of the allowed amount, null without a
    limit.
    """
    is_limited = F.col("limit").isNotNull()
    window = F.window(TIME, f"{window_ms} milliseconds").alias("window")
    used = records.groupBy(window, *ALERT_KEY).agg(
        F.max("limit").alias("limit"),
        F.coalesce(F.sum(F.when(is_limited, F.col("amount"))), F.lit(0)).alias("amount"),
        F.coalesce(F.sum(F.when(is_limited, F.col("interval_ms"))), F.lit(0)).alias("covered_ms"),
        *(F.sum(name).alias(name) for name in ("requests", "throttled_requests", "throttle_time_ms")),
        # Whether the throttle times were enforced, from the records that have some.
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
    """Return alerts as records of a topic: ``key`` and ``value`` are compact JSON, ``start_ms`` is the timestamp.

    The key is the bucket, so that its alerts are in one partition, in the order of their windows.
    """
    every = {"ignoreNullFields": "false"}
    key, value = F.to_json(F.struct(*ALERT_KEY), every), F.to_json(F.struct(*ALERT), every)
    return found.select(key.alias("key"), value.alias("value"), "start_ms")


def _is_throttled() -> Column:
    return (F.col("throttled_requests") > 0) | (F.col("throttle_time_ms") > 0)
