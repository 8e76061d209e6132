"""Forecasts how other quotas would have throttled the clients in a usage log, with the proxy's own arithmetic.

The total demand of each bucket is computed first. A bucket counts the traffic of one client, or of several that share a
limit. Buckets that cannot exceed their limit need no replay, and each of the others gets a number. The rows are sorted
by a key that combines this number with the time, and ``bucket_stream`` reads them one bucket at a time. So a client
with half of all rows needs no more memory than any other.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.arrivals import LEAST_PARTS, LONGEST_SHAPED_MS
from kafka_quota_proxy.pipeline.bucket_stream import HEAD, HOURS, ROW, START_BITS, replayed
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.record import BUCKET, BYTE_KINDS, CANDIDATE_BUCKET

_ENTITY: Final = ("kind", "user", "client_id")
_RESOLVED: Final = (
    "kind string, user string, client_id string, bucket_user string, bucket_client_id string, limit double, rule string"
)
_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "long", pa.float64(): "double"}
_HOURS: Final = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in HOURS)
# The demand of a bucket. The highest rate of a record (bytes per second) and the most that may arrive at once show
# whether the bucket may exceed a limit. The others are the total amount, and the first and the last time.
DEMAND: Final = ("densest", "part", "amount", "from_ms", "until_ms")
_COUNTED: Final = ("delayed_amount", "throttled_requests", "throttle_time_ms", "longest_delay_ms")


def resolved(records: DataFrame, quotas: CandidateQuotas) -> DataFrame:
    """Return the bucket that each (kind, user, client_id) would use under these quotas, with its limit and rule.

    ``rule`` is the entity of the rule as text. It is null, like ``limit``, if no rule limits the client. ``records``
    may also be the result of ``total_demand``. A record with the user "" is from a bucket that several users shared, so
    the effect of rules for single users cannot be forecast.
    """
    config = quotas.config
    exempt = config.principals.exempt

    def resolve(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        tables = quotas.tables()
        for batch in batches:
            found = []
            for kind, user, client_id in batch.itertuples(index=False):
                tags, rule, _, limit = tables[kind].resolve(user=user, client_id=client_id)
                is_limited = limit is not None and user not in exempt
                own = tags if is_limited else (user, client_id)
                words = f"user {rule.user}, client-id {rule.client_id}" if rule and is_limited else None
                found.append((kind, user, client_id, *own, limit if is_limited else None, words))
            yield pd.DataFrame(found, columns=[*_ENTITY, "bucket_user", "bucket_client_id", "limit", "rule"])

    entities = records.where(F.col("kind").isin(*BYTE_KINDS)).select(*_ENTITY).distinct()
    return entities.mapInPandas(resolve, _RESOLVED)


def total_demand(records: DataFrame) -> DataFrame:
    """Return the logged demand of each bucket, in the columns ``DEMAND``.

    The bucket is in the columns ``BUCKET``, in which an unknown broker is -1.
    """
    placed = records.where(F.col("kind").isin(*BYTE_KINDS)).withColumn("broker", _broker())
    return placed.groupBy(*BUCKET).agg(*demand_columns())


def demand_columns() -> list[Column]:
    """Return the aggregations of records that compute the columns ``DEMAND``."""
    return [
        F.max(F.col("amount") * 1_000 / F.greatest("interval_ms", F.lit(1))).alias("densest"),
        F.max(at_once()).alias("part"),
        F.sum("amount").alias("amount"),
        F.min("start_ms").alias("from_ms"),
        F.max(F.col("start_ms") + F.col("interval_ms")).alias("until_ms"),
    ]


def at_once() -> Column:
    """Return a column with the most bytes of a record that may arrive at one instant, by the rules of ``arrivals``."""
    most = F.greatest(F.lit(LEAST_PARTS), F.expr("interval_ms div 1000"))
    parts = F.greatest(F.lit(1), F.least("requests", most))
    return F.when(F.col("interval_ms") <= LONGEST_SHAPED_MS, F.col("amount")).otherwise(F.ceil(F.col("amount") / parts))


def forecast(
    records: DataFrame, demands: DataFrame, entities: DataFrame, quotas: CandidateQuotas, *, max_delay_ms: float = inf
) -> DataFrame:
    """Replay the buckets that may exceed their limit. Return the outcome of each bucket for each limit and hour.

    ``demands`` is the result of ``total_demand``. ``entities`` is the result of ``resolved``, with a row for each limit
    to try. The replay under a limit that delays a part by more than ``max_delay_ms`` ends early.
    """
    # Rows are placed by a partition number, since adaptive execution would merge partitions by their size. Most of the
    # work is done in Python, and Spark does not know its cost.
    partitions = int(records.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    rows = _keyed(records, _named(demands, entities), quotas, partitions)
    ordered = rows.repartitionById(partitions, "partition").drop("partition").sortWithinPartitions("key")

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replayed(batches, quotas, max_delay_ms=max_delay_ms)

    return ordered.mapInArrow(replay, _HOURS)


def _broker() -> Column:
    # A join never matches a null.
    return F.coalesce("broker", F.lit(-1)).alias("broker")


def _named(demands: DataFrame, entities: DataFrame) -> DataFrame:
    """Join ``demands`` with ``entities``, the result of ``resolved``. Clients without a limit are left out."""
    limited = entities.where("limit IS NOT NULL").drop("rule")
    return demands.join(F.broadcast(limited), on=[*_ENTITY], how="inner")


def _keyed(records: DataFrame, named: DataFrame, quotas: CandidateQuotas, partitions: int) -> DataFrame:
    """Return the rows to replay, each with its sort key and the number of a Spark partition.

    A partition replays all rows of a bucket. ``bucket_stream`` describes the keys. ``named`` is the demand of the
    clients that have a limit, with these limits. Buckets that cannot exceed any of their limits are left out.
    """
    sums = named.groupBy(*CANDIDATE_BUCKET, "limit").agg(F.sum("densest").alias("densest"), F.sum("part").alias("part"))
    buckets = (
        sums.where(_may_wait(quotas))
        .groupBy(*CANDIDATE_BUCKET)
        .agg(F.sort_array(F.collect_set("limit")).alias("limits"))
    )
    numbered = buckets.withColumn("number", F.row_number().over(Window.orderBy(*CANDIDATE_BUCKET)).cast("long"))
    partition = (F.col("number") % partitions).cast("int").alias("partition")
    bucket = F.shiftleft(F.expr(f"number div {partitions}"), START_BITS)
    zero = F.lit(0).cast("long")
    head = F.to_json(F.struct(*CANDIDATE_BUCKET, "limits")).alias(HEAD)
    heads = numbered.select(partition, bucket.alias("key"), *(zero.alias(name) for name in ROW), head)
    # The clients that share a bucket have a fixed order, which does not depend on the order of the log.
    client = F.row_number().over(Window.partitionBy("number").orderBy("user", "client_id")).cast("long").alias("client")
    members = (
        named.select(*CANDIDATE_BUCKET, "user", "client_id")
        .distinct()
        .join(numbered, on=[*CANDIDATE_BUCKET], how="inner")
    )
    placed = records.withColumn("broker", _broker()).join(
        F.broadcast(members.select(*BUCKET, "number", client)), on=[*BUCKET], how="inner"
    )
    rows = placed.select(
        partition,
        (bucket + F.col("start_ms") + 1).alias("key"),
        "client",
        "interval_ms",
        "amount",
        "requests",
        F.lit(None).cast("string").alias(HEAD),
    )
    return heads.unionByName(rows)


def _may_wait(quotas: CandidateQuotas) -> Column:
    """Return a column that is true if a bucket may exceed its ``limit``.

    This depends on the highest rate of its records (``densest``), and on the most that may arrive at once (``part``).
    """
    config, shapings = quotas.config, quotas.shapings()
    windows, window_s = config.kafka.quota_window_num, config.kafka.quota_window_size_seconds
    # With N sampled windows, the amount that counts at an instant arrived within N + 1 windows, and is divided by at
    # least N - 1 windows. A token bucket is never in debt if tokens arrive as fast as bytes. One part more may count at
    # either end of an interval, since the arrival time of a part is a guess.
    parts = 2 * F.col("part")
    most, room = (windows + 1) * window_s * F.col("densest") + parts, (windows - 1) * window_s * F.col("limit")
    may = (most > room) if Shaping.SAMPLED in shapings else F.lit(False)
    if Shaping.PACED in shapings:
        burst = F.col("limit") * (config.burst_ms / 1_000)
        may |= (F.col("densest") > F.col("limit")) | (parts > burst)
    return may


def outcomes(demands: DataFrame, entities: DataFrame, hours: DataFrame) -> DataFrame:
    """Return the demand and the outcome of each bucket under each limit, over the whole log.

    ``hours`` is the result of ``forecast``. ``asked_rate`` is the logged demand as a rate. ``achieved_rate`` is the
    rate from the first record to the last sent part. ``late_ms`` is the time from the end of the records to that part.
    ``throttled_share`` is ``throttle_time_ms`` divided by the time in which the clients send or wait, so it is at most
    1. ``clients`` is the number of clients that share the bucket.
    """
    whole = (
        _named(demands, entities)
        .groupBy(*CANDIDATE_BUCKET, "limit")
        .agg(
            F.count("*").alias("clients"),
            F.sum("amount").alias("amount"),
            F.min("from_ms").alias("from_ms"),
            F.max("until_ms").alias("until_ms"),
        )
    )
    happened = hours.groupBy(*CANDIDATE_BUCKET, "limit").agg(
        *(F.sum(name).alias(name) for name in _COUNTED[:-1]),
        *(F.max(name).alias(name) for name in (*_COUNTED[-1:], "sent_ms", "busy_ms")),
    )
    ended = F.greatest("until_ms", F.coalesce("sent_ms", "until_ms"))
    share = F.coalesce(F.col("throttle_time_ms") / F.greatest("busy_ms", F.lit(1)), F.lit(0.0))
    return whole.join(happened, on=[*CANDIDATE_BUCKET, "limit"], how="left").select(
        *CANDIDATE_BUCKET,
        "limit",
        "clients",
        "amount",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in _COUNTED),
        share.alias("throttled_share"),
        (F.col("amount") * 1_000 / F.greatest(F.col("until_ms") - F.col("from_ms"), F.lit(1))).alias("asked_rate"),
        (F.col("amount") * 1_000 / F.greatest(ended - F.col("from_ms"), F.lit(1))).alias("achieved_rate"),
        (ended - F.col("until_ms")).alias("late_ms"),
    )
