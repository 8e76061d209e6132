"""What these quotas would have done: the log replayed, bucket by bucket, by ``proxy.quota`` itself.

What a bucket asked for, all in all, is added up first: from it follows who cannot exceed his limit and need not be
replayed, and a number for each of the others. Rows are sorted by that number and their time, which is one number
again, and stream through ``replay``, one bucket at a time, so that a client with half of all rows needs no more memory
than any other. Before a bucket's rows comes one that tells its name and limits: it need not be told with each.
"""

from collections.abc import Iterator
from typing import Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.arrivals import LEAST_PARTS, LONGEST_SHAPED_MS
from kafka_quota_proxy.pipeline.proposed_quotas import ProposedQuotas
from kafka_quota_proxy.pipeline.record import BUCKET, BYTE_KINDS, PROPOSED_BUCKET
from kafka_quota_proxy.pipeline.sorted_replay import HEAD, HOURS, ROW, START_BITS, replayed

_ENTITY: Final = ("kind", "user", "client_id")
_RESOLVED: Final = (
    "kind string, user string, client_id string, bucket_user string, bucket_client_id string, limit double, rule string"
)
_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "long", pa.float64(): "double"}
_HOURS: Final = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in HOURS)
# What a bucket asked for: the highest rate of a record, bytes per second, and the most of one that may come at once, so
# that it can be told whether it may exceed a limit; and all of it, from when to when.
DEMAND: Final = ("densest", "part", "amount", "from_ms", "until_ms")
_COUNTED: Final = ("delayed_amount", "throttled_requests", "throttle_time_ms", "longest_delay_ms")


def resolved(records: DataFrame, quotas: ProposedQuotas) -> DataFrame:
    """Return for each (kind, user, client_id) the bucket that it would have, the limit, and the rule in words.

    ``limit`` is null where nothing limits. A record whose user is "" is of a bucket that did not tell users apart:
    rules for users cannot be tried on it. ``records`` may be what ``asked`` returns of them.
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
    """Return what each bucket of the log asked for: the columns of ``BUCKET`` and ``DEMAND``. No broker yet is -1."""
    placed = records.where(F.col("kind").isin(*BYTE_KINDS)).withColumn("broker", _broker())
    return placed.groupBy(*BUCKET).agg(*demand())


def demand() -> list[Column]:
    """Return the sums that are the columns of ``DEMAND``."""
    return [
        F.max(F.col("amount") * 1_000 / F.greatest("interval_ms", F.lit(1))).alias("densest"),
        F.max(at_once()).alias("part"),
        F.sum("amount").alias("amount"),
        F.min("start_ms").alias("from_ms"),
        F.max(F.col("start_ms") + F.col("interval_ms")).alias("until_ms"),
    ]


def at_once() -> Column:
    """Return the most of a record that may come at one instant (``demand``): all of it, or a part."""
    most = F.greatest(F.lit(LEAST_PARTS), F.expr("interval_ms div 1000"))
    parts = F.greatest(F.lit(1), F.least("requests", most))
    return F.when(F.col("interval_ms") <= LONGEST_SHAPED_MS, F.col("amount")).otherwise(F.ceil(F.col("amount") / parts))


def forecast(records: DataFrame, asked: DataFrame, entities: DataFrame, quotas: ProposedQuotas) -> DataFrame:
    """Return what would have happened, by bucket, limit and hour, of the buckets that might exceed the limit.

    Args:
        records: of the log.
        asked: of the same.
        entities: as ``resolved`` returns them; with a row for each limit where several are to be tried at once.
        quotas: those that ``entities`` come from.
    """
    # By number, for adaptive execution would put them together by size: the work is in Python, and not in the bytes.
    partitions = int(records.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    rows = _keyed(records, _named(asked, entities), quotas, partitions)
    ordered = rows.repartitionById(partitions, "partition").drop("partition").sortWithinPartitions("key")

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replayed(batches, quotas)

    return ordered.mapInArrow(replay, _HOURS)


def _broker() -> Column:
    # A null equals nothing in a join.
    return F.coalesce("broker", F.lit(-1)).alias("broker")


def _named(asked: DataFrame, entities: DataFrame) -> DataFrame:
    """Return what those asked for that would have a limit, with the bucket that it would be charged to."""
    limited = entities.where("limit IS NOT NULL").drop("rule")
    return asked.join(F.broadcast(limited), on=[*_ENTITY], how="inner")


def _keyed(records: DataFrame, named: DataFrame, quotas: ProposedQuotas, partitions: int) -> DataFrame:
    """Return the rows that are replayed, each with its ``partition`` and ``key``; and a HEAD before each bucket's."""
    sums = named.groupBy(*PROPOSED_BUCKET, "limit").agg(F.sum("densest").alias("densest"), F.sum("part").alias("part"))
    buckets = (
        sums.where(_may_wait(quotas))
        .groupBy(*PROPOSED_BUCKET)
        .agg(F.sort_array(F.collect_set("limit")).alias("limits"))
    )
    numbered = buckets.withColumn("number", F.row_number().over(Window.orderBy(*PROPOSED_BUCKET)).cast("long"))
    partition = (F.col("number") % partitions).cast("int").alias("partition")
    bucket = F.shiftleft(F.expr(f"number div {partitions}"), START_BITS)
    zero = F.lit(0).cast("long")
    head = F.to_json(F.struct(*PROPOSED_BUCKET, "limits")).alias(HEAD)
    heads = numbered.select(partition, bucket.alias("key"), *(zero.alias(name) for name in ROW), head)
    # Those who share a bucket come in one order, whatever the order of the log.
    who = F.row_number().over(Window.partitionBy("number").orderBy("user", "client_id")).cast("long").alias("who")
    members = (
        named.select(*PROPOSED_BUCKET, "user", "client_id")
        .distinct()
        .join(numbered, on=[*PROPOSED_BUCKET], how="inner")
    )
    placed = records.withColumn("broker", _broker()).join(
        F.broadcast(members.select(*BUCKET, "number", who)), on=[*BUCKET], how="inner"
    )
    rows = placed.select(
        partition,
        (bucket + F.col("start_ms") + 1).alias("key"),
        "who",
        "interval_ms",
        "amount",
        "requests",
        F.lit(None).cast("string").alias(HEAD),
    )
    return heads.unionByName(rows)


def _may_wait(quotas: ProposedQuotas) -> Column:
    """Whether somebody may come above ``limit`` whose records have ``densest`` and ``part``.

    In sampled windows what counts at an instant came within N + 1 of them (of N; a slot is one long), as a rate of
    N - 1 at least. Where that is below the limit, what comes at once fits into half of what N - 1 windows allow, so
    that the tokens by which fetches pass are not owed either. Tokens are never owed where they come at least as fast as
    they go, but for what comes at once: it lies where it is put, so that as much may be too much at either end.
    """
    config, shapings = quotas.config, quotas.shapings()
    windows, window_s = config.kafka.quota_window_num, config.kafka.quota_window_size_seconds
    parts = 2 * F.col("part")
    most, room = (windows + 1) * window_s * F.col("densest") + parts, (windows - 1) * window_s * F.col("limit")
    may = (most > room) if Shaping.SAMPLED in shapings else F.lit(False)
    if Shaping.PACED in shapings:
        burst = F.col("limit") * (config.burst_ms / 1_000)
        may |= (F.col("densest") > F.col("limit")) | (parts > burst)
    return may


def outcomes(asked: DataFrame, entities: DataFrame, hours: DataFrame) -> DataFrame:
    """Return a row for each bucket of the log and limit: what it asked for, what it would have got, and when.

    ``achieved_rate`` is of the time from its first record to the last that went out; ``late_ms`` is how long after the
    end of its records that was. ``throttled_share`` is ``throttle_time_ms`` as a part of the time with records.
    """
    whole = (
        _named(asked, entities)
        .groupBy(*PROPOSED_BUCKET, "limit")
        .agg(F.sum("amount").alias("amount"), F.min("from_ms").alias("from_ms"), F.max("until_ms").alias("until_ms"))
    )
    happened = hours.groupBy(*PROPOSED_BUCKET, "limit").agg(
        *(F.sum(name).alias(name) for name in _COUNTED[:-1]),
        *(F.max(name).alias(name) for name in (*_COUNTED[-1:], "sent_ms", "active_ms")),
    )
    ended = F.greatest("until_ms", F.coalesce("sent_ms", "until_ms"))
    share = F.coalesce(F.col("throttle_time_ms") / F.greatest("active_ms", F.lit(1)), F.lit(0.0))
    return whole.join(happened, on=[*PROPOSED_BUCKET, "limit"], how="left").select(
        *PROPOSED_BUCKET,
        "limit",
        "amount",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in _COUNTED),
        share.alias("throttled_share"),
        (F.col("amount") * 1_000 / F.greatest(F.col("until_ms") - F.col("from_ms"), F.lit(1))).alias("asked_rate"),
        (F.col("amount") * 1_000 / F.greatest(ended - F.col("from_ms"), F.lit(1))).alias("achieved_rate"),
        (ended - F.col("until_ms")).alias("late_ms"),
    )
