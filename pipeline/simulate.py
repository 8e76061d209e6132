"""Generates a usage log as many proxies would write it, for trials and for tests with much data.

The values of a row depend only on the seed, the client, the broker and the time. So the same seed gives the same log,
whatever the number of Spark partitions.

A simulated client is a pair of a user and a client-id. Each client has a mean rate (log-normally distributed over the
clients), a pattern over the day and the week, bursts of five minutes, a trend, and noise. One client in eight appears
during the log, and one in eight disappears.
"""

from dataclasses import dataclass
from math import pi
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import RECORD

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_BURST_MS: Final = 300_000
_KINDS: Final = ("produce", "fetch")
# Bytes per second of the median entity.
_MEDIAN_RATE: Final = 400_000.0
_BURSTS: Final = 0.01  # part of the time
_BURST_FACTOR: Final = 5.0
_DIGITS: Final = 53  # of a double


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """The size of a simulated cluster, and the start and the length of the usage log that is generated for it.

    ``entities`` is the number of simulated clients. Each client uses each broker, and each broker has one proxy.
    """

    entities: int
    brokers: int
    days: float
    interval_ms: int
    start_ms: int
    seed: int

    @property
    def buckets(self) -> int:
        """How many quota buckets the cluster has: one for each client, broker and kind of quota (produce or fetch)."""
        return self.entities * self.brokers * len(_KINDS)

    @property
    def intervals(self) -> int:
        """How many intervals of ``interval_ms`` the usage log covers."""
        return int(self.days * _DAY_MS) // self.interval_ms


def simulated(spark: SparkSession, cluster: SimulatedCluster, *, partitions: int | None = None) -> DataFrame:
    """Return the generated usage records in the order of time.

    The columns are those of the usage log, and ``day`` (YYYY-MM-DD). ``partitions`` is the number of Spark partitions.
    If it is None, Spark chooses the number.
    """
    count = cluster.intervals * cluster.buckets
    rows = spark.range(0, count, 1, partitions) if partitions else spark.range(count)
    return _with_amounts(_with_places(rows, cluster), cluster).select(
        *(F.col(field.name).cast(field.dataType).alias(field.name) for field in RECORD.fields),
        F.date_format(F.timestamp_millis("start_ms"), "yyyy-MM-dd").alias("day"),
    )


def _with_places(rows: DataFrame, cluster: SimulatedCluster) -> DataFrame:
    bucket = F.col("id") % cluster.buckets
    placed = rows.select(
        "id",
        (F.lit(cluster.start_ms) + F.expr(f"id div {cluster.buckets}") * cluster.interval_ms).alias("start_ms"),
        F.expr(f"(id % {cluster.buckets}) div {cluster.brokers * len(_KINDS)}").alias("entity"),
        F.expr(f"1 + (id % {cluster.brokers * len(_KINDS)}) div {len(_KINDS)}").alias("broker"),
        F.element_at(F.array(*map(F.lit, _KINDS)), (1 + bucket % len(_KINDS)).cast("int")).alias("kind"),
    )
    return placed.where(_is_alive(cluster)).withColumns(
        {
            "user": F.format_string("team-%02d", F.expr("entity div 4 + 1")),
            "client_id": F.format_string("app-%04d", F.col("entity") + 1),
            "proxy": F.format_string("proxy-%d", "broker"),
        }
    )


def _is_alive(cluster: SimulatedCluster) -> Column:
    """Return a column that is true if the simulated client of a row exists at the time of the row.

    Some clients appear or disappear during the log.
    """
    part = (F.col("start_ms") - cluster.start_ms) / (cluster.days * _DAY_MS)
    turn = 0.25 + 0.5 * _chance(cluster, "turn of life", "entity")
    return F.when(F.col("entity") % 8 == 5, part >= turn).when(F.col("entity") % 8 == 6, part < turn).otherwise(True)


def _with_amounts(placed: DataFrame, cluster: SimulatedCluster) -> DataFrame:
    seconds = cluster.interval_ms / 1_000
    size = 500 + 50_000 * _chance(cluster, "size", "entity", "kind")
    amounts = placed.withColumn("amount", F.floor(_rate(cluster) * seconds)).withColumn("size", size)
    return amounts.where("amount > 0").withColumns(
        {
            "interval_ms": F.lit(cluster.interval_ms),
            "requests": F.ceil(F.col("amount") / F.col("size")),
            "connections": 1 + F.col("entity") % 4,
            "listener": F.lit(None),
            "rule_user": F.lit(None),
            "rule_client_id": F.lit(None),
            "limit": F.lit(None),
            "throttled_requests": F.lit(0),
            "throttle_time_ms": F.lit(0),
            "enforced": F.lit(False),
            "resolution_ms": F.lit(None),
        }
    )


def _rate(cluster: SimulatedCluster) -> Column:
    """Return a column with the rate at which a simulated client transfers in one interval, in bytes per second."""
    base = _MEDIAN_RATE * F.exp(1.2 * _normal(cluster, "base", "entity", "kind", "broker"))
    hour = F.col("start_ms") % _DAY_MS / _HOUR_MS
    peak = 9 + 9 * _chance(cluster, "peak", "entity")
    daily = 1 + 0.6 * F.cos((hour - peak) * (2 * pi / 24))
    # The epoch began on a Thursday.
    is_weekend = (F.floor(F.col("start_ms") / _DAY_MS) + 3) % 7 >= 5
    weekly = F.when(is_weekend, 0.3 + 0.4 * _chance(cluster, "weekend", "entity")).otherwise(1.0)
    month = (F.col("start_ms") - cluster.start_ms) / (30 * _DAY_MS)
    growth = 1 + month * (0.4 * _chance(cluster, "growth", "entity") - 0.1)
    five_minutes = F.floor(F.col("start_ms") / _BURST_MS)
    is_burst = _chance(cluster, "burst", "entity", "broker", five_minutes) < _BURSTS
    noise = F.exp(0.25 * _normal(cluster, "noise", "id"))
    return base * daily * weekly * growth * F.when(is_burst, _BURST_FACTOR).otherwise(1.0) * noise


def _chance(cluster: SimulatedCluster, what: str, *of: str | Column) -> Column:
    """Return a column of pseudo-random numbers of at least 0 and below 1.

    A number depends only on the simulated cluster's seed, the label ``what`` and the columns that ``of`` names.
    """
    return F.shiftrightunsigned(F.xxhash64(F.lit(cluster.seed), F.lit(what), *of), 64 - _DIGITS) / float(1 << _DIGITS)


def _normal(cluster: SimulatedCluster, what: str, *of: str | Column) -> Column:
    """Return a column of pseudo-random numbers of the standard normal distribution, by the Box-Muller method."""
    radius = F.sqrt(-2 * F.log1p(-_chance(cluster, f"{what} radius", *of)))
    return radius * F.cos(2 * pi * _chance(cluster, f"{what} angle", *of))
