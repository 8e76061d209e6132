"""The throttle of a reassignment, after KIP-73, from the bytes to copy, the incoming rate and the available time.

A broker that sends (or receives) L bytes while A bytes a second arrive for the same replicas needs L / (R - A) seconds
at a throttle of R, and never ends unless R is above A; to end in W seconds it needs R = L / W + A. One throttle is set
for all brokers, so the broker that needs most decides. No I/O; Spark only for the use of clients.

Source: the questions and answers of KIP-73.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BYTE_KINDS, start_of

_HOUR_MS: Final = 3_600_000


class Side(Enum):
    """The role of a broker in a move."""

    LEADER = "leader"  # sends
    FOLLOWER = "follower"  # receives


class Partition(NamedTuple):
    """A partition: node ids of its leader and its replicas, its size in bytes, its incoming bytes per second."""

    leader: int
    replicas: frozenset[int]
    size_bytes: int
    incoming_byte_rate: float


class Load(NamedTuple):
    """The work of a broker in one role."""

    broker: int
    side: Side
    left_bytes: int
    incoming_rate: float

    def rate_to_end_in(self, window_ms: int) -> float:
        """Return the throttle that ends in ``window_ms``, bytes per second."""
        return self.left_bytes * 1_000 / window_ms + self.incoming_rate

    def time_ms(self, rate: float) -> float | None:
        """Return the time at a throttle of ``rate``; None: it never ends."""
        net = rate - self.incoming_rate
        if not self.left_bytes:
            return 0.0
        return self.left_bytes * 1_000 / net if net > 0 else None


def loads(now: Mapping[tuple[str, int], Partition], target: Mapping[tuple[str, int], Iterable[int]]) -> list[Load]:
    """Return what each broker has to send and to receive, by node id.

    ``target`` has the planned replicas of partitions by topic and number; all of them are in ``now``.
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
    """Return the use of each broker by clients, by hour of the day (UTC): ``peak`` and ``mean`` over all days."""
    placed = records.where(F.col("kind").isin(*BYTE_KINDS) & F.col("broker").isNotNull())
    hours = placed.groupBy("broker", "kind", start_of(_HOUR_MS).alias("hour_ms"))
    rates = hours.agg((F.sum("amount") * 1_000 / _HOUR_MS).alias("rate"))
    return rates.groupBy("broker", "kind", F.expr(f"hour_ms div {_HOUR_MS} % 24").alias("hour")).agg(
        F.max("rate").alias("peak"), F.avg("rate").alias("mean")
    )


def quietest_hour(means: Mapping[int, float], window_ms: int) -> int | None:
    """Return the hour (UTC) at which the window with the least use by clients begins; None if unknown.

    ``means`` has rates by hour of the day; a missing hour had no use. Of a longer window only the first day counts.
    """
    if not means:
        return None
    hours = min(24, -(-window_ms // _HOUR_MS))
    return min(range(24), key=lambda first: (sum(means.get((first + at) % 24, 0.0) for at in range(hours)), first))
