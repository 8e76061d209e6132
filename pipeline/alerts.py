"""Who is over a limit, or near it, window by window. DataFrame -> DataFrame, of a stream or of a log; no I/O.

A bucket's records count in the window of event time in which they start. Of each bucket and window there is one alert
at the most, ``over`` before ``near``, and it is known when the window is closed: nothing that comes later changes it.

Every value of an alert is a whole number added up, or the greatest of some: the same records give the same alert to
the last digit, in whatever order and parts they come. What delivers alerts once relies on that.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BUCKET, COLUMNS, IDENTITY

# What tells one alert from every other, beside its window and level.
WHOSE: Final = (*BUCKET, "listener")
ALERT: Final = (
    "start_ms", "window_ms", "level", *WHOSE, "limit", "amount", "use", "requests", "throttled_requests",
    "throttle_time_ms", "enforced",
)  # fmt: skip
# The event time of a stream of records; a timestamp, UTC.
TIME: Final = "time"
# Of a limit of 100 per cent of a thread, a second uses 100 x 1,000 percent-milliseconds.
_IN_MILLISECONDS: Final = ("request",)


def marked_ahead(rows: DataFrame, now: Column, *, late_ms: int) -> DataFrame:
    """Return rows with ``is_ahead``: whether they claim to be of the future, by more than clocks may differ.

    The newest record moves the watermark for all. One proxy whose clock is a day ahead would else make what everybody
    else sends come too late, for a day.

    Args:
        rows: with ``start_ms``, which may be null.
        now: a timestamp. Of a stream ``current_timestamp()``, which a batch that is run again has from the first time.
        late_ms: how far clocks may be apart.
    """
    return rows.withColumn("is_ahead", F.coalesce(F.col("start_ms") > F.unix_millis(now) + late_ms, F.lit(False)))


def once(records: DataFrame, *, late_ms: int) -> DataFrame:
    """Return each record once, those that come too late left out, with their ``time``.

    The identity holds the time. So what came is forgotten when the watermark has passed it, and a copy that comes
    later still is late: ``dropDuplicatesWithinWatermark`` would keep it twice as long for nothing.
    """
    timed = records.select(*COLUMNS, F.timestamp_millis("start_ms").alias(TIME))
    return timed.withWatermark(TIME, f"{late_ms} milliseconds").dropDuplicates([*IDENTITY, TIME])


def alerts(records: DataFrame, *, window_ms: int, near: float) -> DataFrame:
    """Return an alert for each bucket and window in which it was over its limit, or near it.

    ``over``: somebody was throttled (or would have been), or the amount exceeds what the limit allows in the window.
    ``near``: the amount exceeds ``near`` of that. Where the limit changed in a window the highest counts, and what was
    used while there was none counts for nothing. Records of intervals that add up to more than the window are allowed
    for as long as those.

    Args:
        records: of ``once``.
        window_ms: windows lie one behind the other, from the epoch on.
        near: of the limit, 0 to 1.

    Returns:
        The columns of ``ALERT``. ``use`` is the amount as a part of what is allowed, null without a limit.
    """
    is_limited = F.col("limit").isNotNull()
    window = F.window(TIME, f"{window_ms} milliseconds").alias("window")
    used = records.groupBy(window, *WHOSE).agg(
        F.max("limit").alias("limit"),
        F.coalesce(F.sum(F.when(is_limited, F.col("amount"))), F.lit(0)).alias("amount"),
        F.coalesce(F.sum(F.when(is_limited, F.col("interval_ms"))), F.lit(0)).alias("covered_ms"),
        *(F.sum(name).alias(name) for name in ("requests", "throttled_requests", "throttle_time_ms")),
        # Of the records with waits: whether these were given.
        F.coalesce(F.bool_or(F.when(_is_throttled(), F.col("enforced"))), F.bool_or("enforced")).alias("enforced"),
    )
    time_ms = F.greatest(F.lit(window_ms), F.col("covered_ms"))
    time_in_unit = F.when(F.col("kind").isin(*_IN_MILLISECONDS), time_ms).otherwise(time_ms / 1_000)
    # Without what is allowed nothing compares to it, and only waits are left to alert of.
    allowed = F.col("limit") * time_in_unit
    level = F.when(_is_throttled() | (F.col("amount") > allowed), "over").when(F.col("amount") > near * allowed, "near")
    shown = used.select(
        F.unix_millis("window.start").alias("start_ms"),
        F.lit(window_ms).cast("long").alias("window_ms"),
        level.alias("level"),
        *WHOSE,
        "limit",
        "amount",
        F.round(F.try_divide("amount", allowed), 4).alias("use"),
        *("requests", "throttled_requests", "throttle_time_ms", "enforced"),
    )
    return shown.where("level IS NOT NULL").select(*ALERT)


def encoded(found: DataFrame) -> DataFrame:
    """Return alerts as a topic holds them: ``key`` and ``value`` are compact JSON, ``start_ms`` is the timestamp.

    The key is the bucket, so that all of its alerts lie in one partition, in the order of their windows.
    """
    every = {"ignoreNullFields": "false"}
    key, value = F.to_json(F.struct(*WHOSE), every), F.to_json(F.struct(*ALERT), every)
    return found.select(key.alias("key"), value.alias("value"), "start_ms")


def _is_throttled() -> Column:
    return (F.col("throttled_requests") > 0) | (F.col("throttle_time_ms") > 0)
