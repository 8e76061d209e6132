"""Computes the replication throttle that a partition reassignment needs, by the arithmetic of KIP-73.

A broker has to send or receive L bytes of existing data, while producers write A bytes per second of new data to the
same replicas. At a throttle of R bytes per second, the copying takes L / (R - A) seconds, and never ends unless R is
above A. For the copying to end in W seconds, the throttle must be R = L / W + A. All brokers get the same throttle, so
the broker that needs the highest throttle determines it.

This module does no I/O. It uses Spark only to measure how much clients transfer.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from enum import Enum
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.local_hours import QUARTER_MS, hours_of_day, quarters
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

    def time_ms(self, rate: float) -> float:
        """Return how long the copying takes at a throttle of ``rate`` bytes per second, above the incoming rate."""
        return self.left_bytes * 1_000 / (rate - self.incoming_rate) if self.left_bytes else 0.0


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


def client_quarters(records: DataFrame) -> DataFrame:
    """Return what all clients together transfer, for each broker, kind (produce or fetch) and quarter of an hour.

    ``from_ms`` and ``until_ms`` are the first and the last time of the records.
    """
    placed = records.where(F.col("kind").isin(*BYTE_KINDS) & F.col("broker").isNotNull())
    return placed.groupBy("broker", "kind", start_of(QUARTER_MS).alias("quarter_ms")).agg(
        F.sum("amount").alias("amount"),
        F.min("start_ms").alias("from_ms"),
        F.max(F.col("start_ms") + F.col("interval_ms")).alias("until_ms"),
    )


class ClientHour(NamedTuple):
    """The rate of all clients together on one broker, in one hour of the day, over all days of a log.

    ``peak`` is the highest rate of such an hour and ``mean`` the mean rate, in bytes per second.
    """

    broker: int
    kind: str
    hour: int
    peak: float
    mean: float


def client_hours(rows: Sequence[Mapping[str, Any]], zone: tzinfo) -> list[ClientHour]:
    """Return the rates in each hour of the day in a time zone, from the rows of ``client_quarters``.

    Hours of the log without a record count as 0.
    """
    amounts: dict[tuple[int, str], dict[int, int]] = {}
    for row in rows:
        amounts.setdefault((row["broker"], row["kind"]), {})[row["quarter_ms"]] = row["amount"]
    if not rows:
        return []
    covered = quarters(min(row["from_ms"] for row in rows), max(row["until_ms"] for row in rows), zone)
    return [
        ClientHour(*place, hour, rate.peak, rate.mean)
        for place, of in sorted(amounts.items())
        for hour, rate in sorted(hours_of_day(of, covered).items())
    ]


def quietest_hour(means: Mapping[int, float], window_ms: int) -> int | None:
    """Return the hour of the day at which to begin a window of maintenance, so that clients transfer least in it.

    ``means`` maps each hour of the day that a log covers to the mean rate of clients. Returns None if the log covers no
    window of this length, since clients may transfer most in the other hours. If the window is longer than a day, only
    its first day counts.
    """
    hours = min(24, -(-window_ms // _HOUR_MS))
    windows = {first: [(first + at) % 24 for at in range(hours)] for first in range(24)}
    known = [first for first, window in windows.items() if all(hour in means for hour in window)]
    return min(known, key=lambda first: (sum(means[hour] for hour in windows[first]), first), default=None)
