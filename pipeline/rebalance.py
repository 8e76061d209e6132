"""Computes the replication throttle that a partition reassignment needs, by the arithmetic of KIP-73.

A broker has to send or receive L bytes of existing data, while producers write A bytes per second of new data to the
same replicas. At a throttle of R bytes per second, the copying takes L / (R - A) seconds, and never ends unless R is
above A. For the copying to end in W seconds, the throttle must be R = L / W + A. All brokers get the same throttle, so
the broker that needs the highest throttle determines it.

This module does no I/O. It uses Spark only to measure how much clients transfer.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BYTE_KINDS, start_of

_HOUR_MS: Final = 3_600_000


class Side(Enum):
    """Which side of the copying a broker is on while a partition reassignment copies a replica: leader or follower."""

    LEADER = "leader"  # sends the data
    FOLLOWER = "follower"  # receives the data


class Partition(NamedTuple):
    """A partition before a reassignment, with its size and the rate of its incoming data. Brokers are node ids."""

    leader: int
    replicas: frozenset[int]
    size_bytes: int
    incoming_byte_rate: float


class Load(NamedTuple):
    """What a broker has to copy in one role during a reassignment.

    ``left_bytes`` are the bytes that its replicas hold already, and ``incoming_rate`` is the rate at which new bytes
    arrive for them, in bytes per second.
    """

    broker: int
    side: Side
    left_bytes: int
    incoming_rate: float

    def rate_to_end_in(self, window_ms: int) -> float:
        """Return the replication throttle at which copying the data takes ``window_ms``, in bytes per second."""
        return self.left_bytes * 1_000 / window_ms + self.incoming_rate

    def time_ms(self, rate: float) -> float | None:
        """Return how long the copying takes at a throttle of ``rate`` bytes per second, or None if it never ends."""
        net = rate - self.incoming_rate
        if not self.left_bytes:
            return 0.0
        return self.left_bytes * 1_000 / net if net > 0 else None


def loads(now: Mapping[tuple[str, int], Partition], target: Mapping[tuple[str, int], Iterable[int]]) -> list[Load]:
    """Return how much each broker has to send and to receive during a reassignment, sorted by node id.

    ``now`` has the current partitions, and ``target`` the node ids of their planned replicas, both by topic and
    partition number. Each partition in ``target`` must be in ``now``.
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
    """Return the rate of all clients together for each broker, kind (produce or fetch) and hour of the day (UTC).

    The rate is computed for each hour of the log first. ``peak`` is the highest rate and ``mean`` the mean rate among
    all hours that have the same hour of the day, in bytes per second.
    """
    placed = records.where(F.col("kind").isin(*BYTE_KINDS) & F.col("broker").isNotNull())
    hours = placed.groupBy("broker", "kind", start_of(_HOUR_MS).alias("hour_ms"))
    rates = hours.agg((F.sum("amount") * 1_000 / _HOUR_MS).alias("rate"))
    return rates.groupBy("broker", "kind", F.expr(f"hour_ms div {_HOUR_MS} % 24").alias("hour")).agg(
        F.max("rate").alias("peak"), F.avg("rate").alias("mean")
    )


def quietest_hour(means: Mapping[int, float], window_ms: int) -> int | None:
    """Return the hour of the day (UTC) at which to begin a window of maintenance, so that clients transfer least in it.

    ``means`` maps an hour of the day to the mean rate of clients, and a missing hour counts as 0. Returns None if
    ``means`` is empty. If the window is longer than a day, only its first day counts.
    """
    if not means:
        return None
    hours = min(24, -(-window_ms // _HOUR_MS))
    return min(range(24), key=lambda first: (sum(means.get((first + at) % 24, 0.0) for at in range(hours)), first))
