"""The throttle of a reassignment, after KIP-73: what has to be copied, what comes in meanwhile, and the time there is.

A broker that sends (or gets) L bytes while A bytes a second come in for the same replicas needs L / (R - A) seconds at
a throttle of R, and never ends where R is not above A; to end in W seconds it needs R = L / W + A. One throttle is set
for all brokers, so the one that needs most decides. No I/O, no Spark but for what clients use.

Source: the questions and answers of KIP-73.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BYTE_KINDS

_HOUR_MS: Final = 3_600_000


class Side(Enum):
    """What a broker does for a move."""

    LEADER = "leader"  # sends
    FOLLOWER = "follower"  # gets


class Partition(NamedTuple):
    """A partition as it is: node ids of its leader and its replicas, bytes, bytes per second that come in."""

    leader: int
    replicas: frozenset[int]
    size_bytes: int
    incoming_byte_rate: float


class Load(NamedTuple):
    """What one side of a broker has before it."""

    broker: int
    side: Side
    left_bytes: int
    incoming_rate: float

    def rate_to_end_in(self, window_ms: int) -> float:
        """Return the throttle that ends in this time, bytes per second."""
        return self.left_bytes * 1_000 / window_ms + self.incoming_rate

    def time_ms(self, rate: float) -> float | None:
        """Return how long it takes at a throttle of ``rate``; None: for ever."""
        net = rate - self.incoming_rate
        if not self.left_bytes:
            return 0.0
        return self.left_bytes * 1_000 / net if net > 0 else None


def loads(now: Mapping[tuple[str, int], Partition], target: Mapping[tuple[str, int], Iterable[int]]) -> list[Load]:
    """Return what each broker has to send and to get, by node id.

    Args:
        now: partitions by topic and number; all of those in ``target``.
        target: the replicas that each is to have.
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
    """Return what clients use of each broker, by hour of the day (UTC): the ``peak`` of all days and the ``mean``."""
    hour_ms = (F.col("start_ms") - F.pmod("start_ms", F.lit(_HOUR_MS))).alias("hour_ms")
    hours = records.where(F.col("kind").isin(*BYTE_KINDS) & F.col("broker").isNotNull()).groupBy(
        "broker", "kind", hour_ms
    )
    rates = hours.agg((F.sum("amount") * 1_000 / _HOUR_MS).alias("rate"))
    return rates.groupBy("broker", "kind", F.expr(f"hour_ms div {_HOUR_MS} % 24").alias("hour")).agg(
        F.max("rate").alias("peak"), F.avg("rate").alias("mean")
    )


def quietest_hour(means: Mapping[int, float], window_ms: int) -> int | None:
    """Return the hour (UTC) from which clients use least for as long as the window is; None where nothing is known.

    Args:
        means: the mean rate of all brokers together by hour of the day; an hour that is not in it had nothing.
        window_ms: of more than a day the first day counts.
    """
    if not means:
        return None
    hours = min(24, -(-window_ms // _HOUR_MS))
    return min(range(24), key=lambda first: (sum(means.get((first + at) % 24, 0.0) for at in range(hours)), first))
