"""Forecasts how other quotas would have throttled the clients in a usage log, with the proxy's own arithmetic.

The total demand of each bucket is computed first. A bucket counts the traffic of one client, or of several that share a
limit. Buckets that cannot exceed their limit need no replay, and each of the others gets a number. The rows are sorted
by a key that combines this number with the time, and ``bucket_stream`` reads them one bucket at a time. So a client
with half of all rows needs no more memory than any other.

Spark reads the records. What has a row for each bucket or client is computed in this process, with pandas.
"""

import json
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.arrivals import LEAST_PARTS, LONGEST_SHAPED_MS, parts_of
from kafka_quota_proxy.pipeline.bucket_stream import HEAD, HOURS, ROW, START_BITS, replayed
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.limit_search import Entity
from kafka_quota_proxy.pipeline.record import BUCKET, BYTE_KINDS, CANDIDATE_BUCKET, ENTITY

_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "long", pa.float64(): "double"}
_HOURS: Final = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in HOURS)
# The demand of a bucket. The highest rate of a record (bytes per second) and the most that may arrive at once show
# whether the bucket may exceed a limit. The others are the total amount, and the first and the last time.
DEMAND: Final = ("densest", "part", "amount", "from_ms", "until_ms")
_MANY: Final = 1 << 31
_COUNTED: Final = ("delayed_amount", "throttled_requests", "throttle_time_ms", "longest_delay_ms")
_RECORD: Final = ("start_ms", "interval_ms", "amount", "requests")
# A partition with fewer records costs more to start than to replay.
_PARTITION_RECORDS: Final = 100_000
# This many parts take less time than the start of Spark's Python processes.
_QUICK_PARTS: Final = 8_000_000


def entities(records: DataFrame) -> list[Entity]:
    """Return the kind, user and client-id of all produce and fetch records.

    ``records`` may also be the result of ``total_demand``.
    """
    named = records.where(F.col("kind").isin(*BYTE_KINDS)).select(*ENTITY).distinct()
    return sorted((row["kind"], row["user"], row["client_id"]) for row in named.collect())


def resolved(names: Iterable[Entity], quotas: CandidateQuotas) -> pd.DataFrame:
    """Return the bucket that each (kind, user, client_id) would use under these quotas, with its limit and rule.

    The columns are those of ``ENTITY``, ``bucket_user``, ``bucket_client_id``, ``limit`` and ``rule``. ``rule`` is the
    entity of the rule as text. It is None, and ``limit`` is no number, if no rule limits the client. A record with the
    user "" is from a bucket that several users shared, so the effect of rules for single users cannot be forecast.
    """
    exempt, tables = quotas.config.principals.exempt, quotas.tables()
    found: list[tuple[Any, ...]] = []
    for kind, user, client_id in names:
        tags, rule, _, limit = tables[kind].resolve(user=user, client_id=client_id)
        is_limited = limit is not None and user not in exempt
        own = tags if is_limited else (user, client_id)
        words = f"user {rule.user}, client-id {rule.client_id}" if rule and is_limited else None
        found.append((kind, user, client_id, *own, limit if is_limited else None, words))
    columns = [*ENTITY, "bucket_user", "bucket_client_id", "limit", "rule"]
    return pd.DataFrame(found, columns=columns).astype({"limit": float})


def total_demand(records: DataFrame) -> DataFrame:
    """Return the logged demand of each bucket, in the columns ``DEMAND``, and its logged limit and throttle time.

    The bucket is in the columns ``BUCKET``, in which an unknown broker is -1.
    """
    placed = records.where(F.col("kind").isin(*BYTE_KINDS)).withColumn("broker", _broker())
    return placed.groupBy(*BUCKET).agg(*demand_columns(), *logged_columns())


def demand_columns() -> list[Column]:
    """Return the aggregations of records that compute the columns ``DEMAND``."""
    return [
        F.max(F.col("amount") * 1_000 / F.greatest("interval_ms", F.lit(1))).alias("densest"),
        F.max(at_once()).alias("part"),
        F.sum("amount").alias("amount"),
        F.min("start_ms").alias("from_ms"),
        F.max(F.col("start_ms") + F.col("interval_ms")).alias("until_ms"),
    ]


def logged_columns() -> list[Column]:
    """Return the aggregations of records that compute the last logged limit, and the logged throttle time."""
    return [
        F.max_by("limit", "start_ms").alias("logged_limit"),
        F.sum("throttle_time_ms").alias("logged_throttle_ms"),
    ]


def at_once() -> Column:
    """Return a column with the most bytes of a record that may arrive at one instant, by the rules of ``arrivals``."""
    most = F.greatest(F.lit(LEAST_PARTS), F.expr("interval_ms div 1000"))
    parts = F.greatest(F.lit(1), F.least(_requests(), most))
    return F.when(F.col("interval_ms") <= LONGEST_SHAPED_MS, F.col("amount")).otherwise(F.ceil(F.col("amount") / parts))


def _requests() -> Column:
    # An imported record does not count its requests, so its amount is spread as evenly as possible.
    return F.when(F.col("resolution_ms").isNull(), F.col("requests")).otherwise(F.lit(_MANY)).cast("long")


def _broker() -> Column:
    # A join never matches a null.
    return F.coalesce("broker", F.lit(-1)).alias("broker")


class LogReplay:
    """Replays the buckets of a log that may exceed their limits.

    ``demands`` is the result of ``total_demand`` for ``records``, and ``count`` the number of the records. With
    ``is_small``, this process reads the records, and replays them if that is quick. Otherwise Spark's Python processes
    do so.
    """

    def __init__(self, records: DataFrame, demands: pd.DataFrame, *, count: int, is_small: bool) -> None:
        self._spark = records.sparkSession
        placed = {"broker": _broker(), "requests": _requests()}
        self._placed = records.where(F.col("kind").isin(*BYTE_KINDS)).withColumns(placed)
        self._demands = demands
        self._count = count
        self._is_small = is_small
        self._log: pd.DataFrame | None = None  # the records, once this process has read them

    def hours(
        self, names: pd.DataFrame, quotas: CandidateQuotas, *, max_delay_ms: float = inf, is_total: bool = False
    ) -> DataFrame:
        """Return the outcome of each bucket that may exceed a limit, for each of its limits and each hour.

        ``names`` is the result of ``resolved`` for these quotas, with a row for each limit to try. The replay under a
        limit that delays a part by more than ``max_delay_ms`` ends early. With ``is_total``, the hour 0 stands for all.
        """
        named = _limited(self._demands, names)
        buckets = _numbered(named, quotas)
        if buckets.empty:
            return self._spark.createDataFrame(HOURS.empty_table(), _HOURS)
        members = _members(named, buckets)
        if self._is_small and self._parts(members, buckets) <= _QUICK_PARTS:
            batches = replayed(iter(self._rows(members, buckets)), quotas, max_delay_ms=max_delay_ms, is_total=is_total)
            return self._spark.createDataFrame(pa.Table.from_batches(batches, HOURS), _HOURS)

        def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return replayed(batches, quotas, max_delay_ms=max_delay_ms, is_total=is_total)

        # Rows are placed by a partition number, since adaptive execution would merge partitions by their size. Most of
        # the work is done in Python, and Spark does not know its cost.
        most = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        partitions = min(most, 1 + self._count // _PARTITION_RECORDS)
        rows = self._keyed(members, buckets, partitions)
        ordered = rows.repartitionById(partitions, "partition").drop("partition").sortWithinPartitions("key")
        return ordered.mapInArrow(replay, _HOURS)

    def _keyed(self, members: pd.DataFrame, buckets: pd.DataFrame, partitions: int) -> DataFrame:
        """Return the rows to replay, each with its sort key and the number of a Spark partition.

        A partition replays all rows of a bucket. ``bucket_stream`` describes the keys.
        """
        number = F.col("number")
        partition = (number % partitions).cast("int").alias("partition")
        bucket = F.shiftleft(F.expr(f"number div {partitions}"), START_BITS)
        zero = F.lit(0).cast("long")
        heads = self._spark.createDataFrame(buckets[["number", HEAD]]).select(
            partition, bucket.alias("key"), *(zero.alias(name) for name in ROW), HEAD
        )
        named = self._spark.createDataFrame(members[[*BUCKET, "number", "client"]])
        placed = self._placed.join(F.broadcast(named), on=[*BUCKET], how="inner")
        nothing = F.lit(None).cast("string").alias(HEAD)
        key = (bucket + F.col("start_ms") + 1).alias("key")
        return heads.unionByName(placed.select(partition, key, *ROW, nothing))

    def _records_here(self) -> pd.DataFrame:
        if self._log is None:
            self._log = self._placed.select(*BUCKET, *_RECORD).toPandas()
        return self._log

    def _parts(self, members: pd.DataFrame, buckets: pd.DataFrame) -> int:
        """Return how many parts a replay sends under all limits together. A long record has many parts."""
        log = self._records_here()
        sizes = log[[*BUCKET]].assign(parts=parts_of(log["requests"].to_numpy(), log["interval_ms"].to_numpy()))
        limits = members.merge(buckets.assign(limited=buckets["limits"].map(len))[["number", "limited"]], on="number")
        every = sizes.groupby([*BUCKET], as_index=False).sum().merge(limits, on=[*BUCKET])
        return int((every["parts"] * every["limited"]).sum())

    def _rows(self, members: pd.DataFrame, buckets: pd.DataFrame) -> list[pa.RecordBatch]:
        """Return the rows to replay in the order of their keys."""
        rows = self._records_here().merge(members[[*BUCKET, "number", "client"]], on=[*BUCKET])
        rows["key"] = rows["number"] * (1 << START_BITS) + rows["start_ms"] + 1
        heads = buckets[[HEAD]].assign(key=buckets["number"] * (1 << START_BITS), **dict.fromkeys(ROW, 0))
        every = pd.concat([heads, rows.assign(**{HEAD: None})])[["key", *ROW, HEAD]].sort_values("key", kind="stable")
        return list(pa.Table.from_pandas(every, preserve_index=False).to_batches())


def _limited(demands: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Join demands with the clients that have a limit. ``names`` is the result of ``resolved``."""
    return demands.merge(names[names["limit"].notna()].drop(columns="rule", errors="ignore"), on=[*ENTITY])


def _numbered(named: pd.DataFrame, quotas: CandidateQuotas) -> pd.DataFrame:
    """Return the buckets that may exceed one of their limits, each with a number and the text of its first row."""
    sums = named.groupby([*CANDIDATE_BUCKET, "limit"], as_index=False).agg({"densest": "sum", "part": "sum"})
    waiting = sums[_may_wait(sums, quotas)]
    buckets = waiting.groupby([*CANDIDATE_BUCKET])["limit"].agg(sorted).rename("limits").reset_index()
    rows = buckets[[*CANDIDATE_BUCKET, "limits"]].to_dict("records")
    return buckets.assign(number=np.arange(1, len(buckets) + 1), **{HEAD: [json.dumps(row) for row in rows]})


def _members(named: pd.DataFrame, buckets: pd.DataFrame) -> pd.DataFrame:
    """Return the clients of each bucket to replay, with the number of the bucket, and a number of the client in it.

    The clients that share a bucket have a fixed order, which does not depend on the order of the log.
    """
    clients = named[[*CANDIDATE_BUCKET, "user", "client_id"]].drop_duplicates()
    members = clients.merge(buckets[[*CANDIDATE_BUCKET, "number"]], on=[*CANDIDATE_BUCKET])
    members = members.sort_values(["number", "user", "client_id"], ignore_index=True)
    return members.assign(client=members.groupby("number").cumcount() + 1)


def _may_wait(sums: pd.DataFrame, quotas: CandidateQuotas) -> pd.Series:
    """Return for each row whether the bucket may exceed its ``limit``.

    This depends on the highest rate of its records (``densest``), and on the most that may arrive at once (``part``).
    """
    config, shapings = quotas.config, quotas.shapings()
    windows, window_s = config.kafka.quota_window_num, config.kafka.quota_window_size_seconds
    # With N sampled windows, the amount that counts at an instant arrived within N + 1 windows, and is divided by at
    # least N - 1 windows. A token bucket is never in debt if tokens arrive as fast as bytes. One part more may count at
    # either end of an interval, since the arrival time of a part is a guess.
    parts = 2 * sums["part"]
    most = (windows + 1) * window_s * sums["densest"] + parts
    may = (most > (windows - 1) * window_s * sums["limit"]) & (Shaping.SAMPLED in shapings)
    if Shaping.PACED in shapings:
        burst = sums["limit"] * (config.burst_ms / 1_000)
        may |= (sums["densest"] > sums["limit"]) | (parts > burst)
    return may


def outcomes(demands: pd.DataFrame, names: pd.DataFrame, hours: DataFrame) -> pd.DataFrame:
    """Return the demand and the outcome of each bucket under each limit, over the whole log, sorted by bucket.

    ``hours`` is the result of ``LogReplay.hours``. ``asked_rate`` is the logged demand as a rate. ``achieved_rate`` is
    the rate from the first record to the last sent part. ``late_ms`` is the time from the end of the records to that
    part. ``throttled_share`` is ``throttle_time_ms`` divided by the time in which the clients send or wait, so it is at
    most 1. ``clients`` is the number of clients that share the bucket.
    """
    keys = [*CANDIDATE_BUCKET, "limit"]
    whole = (
        _limited(demands, names)
        .groupby(keys, as_index=False)
        .agg(
            clients=("amount", "size"),
            amount=("amount", "sum"),
            from_ms=("from_ms", "min"),
            until_ms=("until_ms", "max"),
        )
    )
    happened = hours.groupBy(*keys).agg(
        *(F.sum(name).alias(name) for name in _COUNTED[:-1]),
        *(F.max(name).alias(name) for name in (*_COUNTED[-1:], "sent_ms", "busy_ms")),
    )
    every = whole.merge(happened.toPandas(), on=keys, how="left")
    ended = every[["until_ms", "sent_ms"]].max(axis=1)
    counted = {name: every[name].fillna(0).astype(np.int64) for name in _COUNTED}
    busy_ms = every["busy_ms"].fillna(0).clip(lower=1)
    asked_ms = (every["until_ms"] - every["from_ms"]).clip(lower=1)
    return every[[*keys, "clients", "amount"]].assign(
        **counted,
        throttled_share=counted["throttle_time_ms"] / busy_ms,
        asked_rate=every["amount"] * 1_000 / asked_ms,
        achieved_rate=every["amount"] * 1_000 / (ended - every["from_ms"]).clip(lower=1),
        late_ms=(ended - every["until_ms"]).astype(np.int64),
    )
