"""Data classes that describe a partition reassignment: samples, throttles, estimates and reports.

A *move* is the copying of one partition's replica to a new broker. Sizes are in bytes, rates in bytes per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Move(NamedTuple):
    """The copying of one partition's replica to a new broker. ``follower`` is the node id of that broker."""

    topic: str
    partition: int
    follower: int


class Waiting(NamedTuple):
    """A move that cannot go on, or whose progress nobody can tell, until ``brokers`` (node ids) are back."""

    move: Move
    brokers: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Holds a partition's log size at its leader and at the broker to which it is being copied, at one moment."""

    leader: int  # node id
    leader_bytes: int
    follower_bytes: int
    in_sync_followers: int = 0  # the number of other followers that are in sync; they fetch new data too


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Holds all moves of a cluster and their sizes at one moment. ``time_ms`` is from a monotonic clock."""

    time_ms: int
    moves: Mapping[Move, Sizes]


class Side(Enum):
    """Where a throttle counts the copied bytes: at a leader, at a follower, or on a path between brokers."""

    LEADER = "leader"
    FOLLOWER = "follower"
    PATH = "path"  # between leaders and followers that the configuration file names


class Holder(NamedTuple):
    """The place where a throttle applies: one leader, one follower, or a path between brokers.

    ``leader`` and ``follower`` are node ids.
    """

    side: Side
    leader: int | None
    follower: int | None
    path: str = ""  # the ends of the path, in words


class Source(Enum):
    """Where a throttle is configured: in the proxy's configuration file or in the cluster's dynamic configs."""

    FILE = "file"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A throttle that is in force, and the moves that share its rate."""

    source: Source
    holder: Holder
    rate: float  # bytes per second
    moves: frozenset[Move]
    charges_in_sync: bool = False  # whether fetches of in-sync followers count too, as with Kafka's replica lists


class Verdict(Enum):
    """Whether the copying of a replica to a new broker, or the whole reassignment, will end."""

    UNKNOWN = "unknown"  # without a throttle, and not observed for long enough to know a rate
    ENDS = "ends"
    TOO_LOW = "too low"  # more data arrives than is copied
    STANDS_STILL = "stands still"  # nothing is copied, although the throttle has room
    WAITS = "waits"  # a part of the reassignment waits for brokers that are away


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Holds the amount of copying that is left at one leader, at one follower or on one path."""

    holder: Holder
    left_bytes: int
    incoming_rate: float  # new data that arrives for the replicas that are being copied
    in_sync_rate: float  # the part of a throttle that in-sync followers use
    effect: float  # the measured share of a throttle that is really used, from 0.7 to 1

    @property
    def smallest_rate(self) -> float:
        """The rate that a throttle of this leader, follower or path must exceed for its copying of replicas to end."""
        return (self.incoming_rate + self.in_sync_rate) / self.effect

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the throttle with which copying the remaining data takes ``duration_ms``, which must be above 0."""
        return (self.left_bytes * 1_000 / duration_ms + self.incoming_rate + self.in_sync_rate) / self.effect

    def time_left_ms(self, rate: float) -> float | None:
        """Return how long the copying takes, in milliseconds, with a throttle of ``rate``, or None if it never ends."""
        return time_to_copy_ms(self.left_bytes, rate * self.effect - self.in_sync_rate - self.incoming_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The outlook for the moves that share one throttle, or for the unthrottled moves to one follower.

    For unthrottled moves ``limit`` and ``source`` are None.
    """

    load: Load
    source: Source | None
    limit: float | None
    rate: float | None  # the measured rate; None if not observed for long enough
    verdict: Verdict
    time_left_ms: float | None  # None unless the verdict is ENDS
    moves: frozenset[Move]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the report on a reassignment, about all replicas of one topic that are being copied to one broker."""

    topic: str
    follower: int
    partitions: int
    left_bytes: int
    size_bytes: int  # the bytes that are copied and those that are left
    rate: float | None
    incoming_rate: float
    limit: float | None  # the lowest throttle of these moves; moves of other rows may share it
    verdict: Verdict
    time_left_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report on all replicas that are being copied to new brokers, with totals for the whole reassignment."""

    span_ms: int  # the time over which rates were measured
    rows: tuple[Row, ...]  # by topic, then broker
    estimates: tuple[Estimate, ...]  # one for each throttle, and one for each follower with moves that have none
    loads: tuple[Load, ...]  # one for each leader and each follower, whether or not a throttle limits it now
    left_bytes: int
    size_bytes: int
    rate: float | None
    incoming_rate: float
    verdict: Verdict
    time_left_ms: float | None
    waiting: tuple[Waiting, ...] = ()  # moves that are in none of the numbers above

    @property
    def smallest_rate(self) -> float:
        """The rate that a throttle, if set at all brokers, must exceed for the reassignment to end."""
        return max((load.smallest_rate for load in self.loads), default=0.0)

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the throttle that, set at all brokers, makes the reassignment take ``duration_ms`` (above 0)."""
        return max((load.rate_to_end_in(duration_ms) for load in self.loads), default=0.0)

    def time_left_at_ms(self, rate: float) -> float | None:
        """Return how long the reassignment takes if all brokers have this throttle, or None if it never ends."""
        times = [load.time_left_ms(rate) for load in self.loads]
        ends = [time for time in times if time is not None]
        return max(ends, default=0.0) if len(ends) == len(times) else None


def time_to_copy_ms(left_bytes: int, net_rate: float) -> float | None:
    """Return the time it takes to copy ``left_bytes``, in milliseconds, or None if the copying never ends.

    ``net_rate`` is the rate of copying minus the rate of new data, in bytes per second.
    """
    if left_bytes == 0:
        return 0.0
    return left_bytes * 1_000 / net_rate if net_rate > 0 else None
