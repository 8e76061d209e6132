"""Computes the throttle that a partition reassignment needs, as the questions and answers in KIP-73 describe.

A broker has to send or receive L bytes while A bytes per second arrive for the same replicas. At a throttle of R bytes
per second this takes L / (R - A) seconds, and never ends unless R is above A. To end in W seconds, it needs R = L / W +
A. All brokers get the same throttle, so the broker that needs most decides.

This module does no I/O. It uses Spark only to measure the use by clients.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BYTE_KINDS, start_of

_HOUR_MS: Final = 3_600_000


class Side(Enum):
    """The role of a broker in the copying of a replica."""

    LEADER = "leader"  # sends the data
    FOLLOWER = "follower"  # receives the data


class Partition(NamedTuple):
    """A partition with its size and the rate of its incoming data. Brokers are node ids."""

    leader: int
    replicas: frozenset[int]
    size_bytes: int
    incoming_byte_rate: float


class Load(NamedTuple):
    """The bytes that a broker has to copy in one role, and the rate of new bytes that arrive meanwhile."""

    broker: int
    side: Side
    left_bytes: int
    incoming_rate: float

    def rate_to_end_in(self, window_ms: int) -> float:
        """Return the throttle with which the copying takes ``window_ms``, in bytes per second."""
        return self.left_bytes * 1_000 / window_ms + self.incoming_rate

    def time_ms(self, rate: float) -> float | None:
        """Return how long the copying takes with a throttle of ``rate``, or None if it never ends."""
        net = rate - self.incoming_rate
        if not self.left_bytes:
            return 0.0
        return self.left_bytes * 1_000 / net if net > 0 else None


def loads(now: Mapping[tuple[str, int], Partition], target: Mapping[tuple[str, int], Iterable[int]]) -> list[Load]:
    """Return what each broker has to send and to receive, sorted by node id.

    ``target`` has the planned replicas of partitions, by topic and partition number. Each partition must be in ``now``.
    """
    left: dict[tuple[int, Side], int] = {}
    incoming: dict[tuple[int, Side], float] = {}
    for name, replicas in target.items():
        partition = now[name]
        for follower in set(replicas) - partition.replicas:
            for key in ((partition.leader, Side.LEADER), (follower, Side.FOLLOWER)):
                left[key] = left.get(key, 0) + partition.size_bytes
                incoming[key] = incoming.get(key, 0.0) + partition.incoming_byte_rate
    keys = sorted(left, key=lambda key: (key[0], key[1].value))
    return [Load(broker, side, left[broker, side], incoming[broker, side]) for broker, side in keys]


def client_hours(records: DataFrame) -> DataFrame:
    """Return the peak and the mean rate of clients on each broker in each hour of the day (UTC)."""
    placed = records.where(F.col("kind").isin(*BYTE_KINDS) & F.col("broker").isNotNull())
    hours = placed.groupBy("broker", "kind", start_of(_HOUR_MS).alias("hour_ms"))
    rates = hours.agg((F.sum("amount") * 1_000 / _HOUR_MS).alias("rate"))
    return rates.groupBy("broker", "kind", F.expr(f"hour_ms div {_HOUR_MS} % 24").alias("hour")).agg(
        F.max("rate").alias("peak"), F.avg("rate").alias("mean")
    )


def quietest_hour(means: Mapping[int, float], window_ms: int) -> int | None:
    """Return the hour (UTC) at which a window must begin so that clients use least in it. Returns None without rates.

    ``means`` has the rates by hour of the day, and a missing hour had no use. If the window is longer than a day, only
    its first day counts.
    """
    if not means:
        return None
    hours = min(24, -(-window_ms // _HOUR_MS))
    return min(range(24), key=lambda first: (sum(means.get((first + at) % 24, 0.0) for at in range(hours)), first))
