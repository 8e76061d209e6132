"""A reassignment as values: what is read of it, what throttles it, and what is said of it.

A *move* is a replica on its way to a broker that does not have it yet. Sizes are those of log directories, in bytes;
rates are bytes per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Move(NamedTuple):
    """A replica on its way: of this partition, to this broker (a node id)."""

    topic: str
    partition: int
    follower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A move at one moment."""

    leader: int  # node id
    leader_bytes: int  # of the log on the leader
    follower_bytes: int  # of the new replica
    in_sync_followers: int = 0  # of the partition, beside the leader: they fetch what comes in as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All moves of a cluster at one moment. ``time_ms`` is of any clock that only goes forward."""

    time_ms: int
    moves: Mapping[Move, Sizes]


class Side(Enum):
    """Where a throttle counts."""

    LEADER = "leader"
    FOLLOWER = "follower"
    PATH = "path"  # between leaders and followers that the file names


class Holder(NamedTuple):
    """Who counts: a leader or a follower, by its node id, or a path."""

    side: Side
    leader: int | None
    follower: int | None
    path: str = ""  # its ends in words, for one that counts for a path


class Source(Enum):
    """Whose throttle it is."""

    FILE = "file"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A throttle in force, and what it is shared by."""

    source: Source
    holder: Holder
    rate: float  # bytes per second
    moves: frozenset[Move]
    charges_in_sync: bool = False  # whether followers in sync take their part of it, as with Kafka's replica lists


class Verdict(Enum):
    """What becomes of a move."""

    UNKNOWN = "unknown"  # nothing limits it, and it was not watched for long enough
    ENDS = "ends"
    TOO_LOW = "too low"  # more comes in than is copied
    STANDS_STILL = "stands still"  # nothing is copied though something might be


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one holder of a throttle has before it. Rates in bytes per second."""

    holder: Holder
    left_bytes: int
    incoming_rate: float  # of what is left to copy: it grows by this
    in_sync_rate: float  # what followers in sync take of a throttle besides
    effect: float  # which part of a throttle arrives: what is copied beside what might be, 0.7 to 1

    @property
    def smallest_rate(self) -> float:
        """The throttle that keeps pace and no more: any rate above it ends."""
        return (self.incoming_rate + self.in_sync_rate) / self.effect

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the throttle that ends in this time; ``duration_ms`` above 0."""
        return (self.left_bytes * 1_000 / duration_ms + self.incoming_rate + self.in_sync_rate) / self.effect

    def time_left_ms(self, rate: float) -> float | None:
        """Return how long it takes under a throttle of ``rate``; None: for ever."""
        return time_left_ms(self.left_bytes, rate * self.effect - self.in_sync_rate - self.incoming_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When the moves of one holder end. ``limit`` and ``source`` are None where nothing throttles them."""

    load: Load
    source: Source | None
    limit: float | None
    rate: float | None  # what is copied; None: not watched for long enough
    verdict: Verdict
    time_left_ms: float | None  # None unless it ends
    moves: frozenset[Move]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The moves of a topic to a broker."""

    topic: str
    follower: int
    partitions: int
    left_bytes: int
    size_bytes: int  # of all, what has been copied and what is left
    rate: float | None
    incoming_rate: float
    limit: float | None  # the lowest that any of them is under, shared with others
    verdict: Verdict
    time_left_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A reassignment as a whole. Rates in bytes per second."""

    span_ms: int  # how long rates were taken over
    rows: tuple[Row, ...]  # by topic, then broker
    estimates: tuple[Estimate, ...]  # of all that holds moves back
    loads: tuple[Load, ...]  # of each leader and each follower, whatever holds them back now
    left_bytes: int
    size_bytes: int
    rate: float | None
    incoming_rate: float
    verdict: Verdict
    time_left_ms: float | None

    @property
    def smallest_rate(self) -> float:
        """The one throttle for all brokers, both sides, that any rate above ends under."""
        return max((load.smallest_rate for load in self.loads), default=0.0)

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the one throttle for all brokers, both sides, that ends in this time; ``duration_ms`` above 0."""
        return max((load.rate_to_end_in(duration_ms) for load in self.loads), default=0.0)

    def time_left_at_ms(self, rate: float) -> float | None:
        """Return how long it takes if all brokers, both sides, had a throttle of ``rate``; None: for ever."""
        times = [load.time_left_ms(rate) for load in self.loads]
        ends = [time for time in times if time is not None]
        return max(ends, default=0.0) if len(ends) == len(times) else None


def time_left_ms(left_bytes: int, net_rate: float) -> float | None:
    """Return how long what is left takes at what remains of a rate; None: for ever."""
    if left_bytes == 0:
        return 0.0
    return left_bytes * 1_000 / net_rate if net_rate > 0 else None
