"""A reassignment as values: samples, throttles, estimates and reports.

A *move* is a replica that is being copied to a broker. Sizes are those of log directories, in bytes;
rates are bytes per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Move(NamedTuple):
    """A replica of this partition that is copied to this broker (a node id)."""

    topic: str
    partition: int
    follower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A move at one moment."""

    leader: int  # node id
    leader_bytes: int  # of the log on the leader
    follower_bytes: int  # of the new replica
    in_sync_followers: int = 0  # without the leader; they fetch new data too


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All moves of a cluster at one moment. ``time_ms`` is from a monotonic clock."""

    time_ms: int
    moves: Mapping[Move, Sizes]


class Side(Enum):
    """The place where a throttle counts."""

    LEADER = "leader"
    FOLLOWER = "follower"
    PATH = "path"  # between leaders and followers that the file names


class Holder(NamedTuple):
    """The holder of a throttle: a leader or a follower, by its node id, or a path."""

    side: Side
    leader: int | None
    follower: int | None
    path: str = ""  # the ends of the path, in words


class Source(Enum):
    """Where a throttle is configured."""

    FILE = "file"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An active throttle, and the moves that share it."""

    source: Source
    holder: Holder
    rate: float  # bytes per second
    moves: frozenset[Move]
    charges_in_sync: bool = False  # whether in-sync followers use a part of it, as with Kafka's replica lists


class Verdict(Enum):
    """The outlook of a move."""

    UNKNOWN = "unknown"  # no throttle, and not observed for long enough
    ENDS = "ends"
    TOO_LOW = "too low"  # more data arrives than is copied
    STANDS_STILL = "stands still"  # nothing is copied, although the throttle has room


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The remaining work of one holder. Rates in bytes per second."""

    holder: Holder
    left_bytes: int
    incoming_rate: float  # new data per second for the replicas that are copied
    in_sync_rate: float  # the part of a throttle that in-sync followers use
    effect: float  # the measured part of a throttle that is really used, 0.7 to 1

    @property
    def smallest_rate(self) -> float:
        """The throttle that only keeps pace; any higher one ends."""
        return (self.incoming_rate + self.in_sync_rate) / self.effect

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the throttle that ends in ``duration_ms``, which is above 0."""
        return (self.left_bytes * 1_000 / duration_ms + self.incoming_rate + self.in_sync_rate) / self.effect

    def time_left_ms(self, rate: float) -> float | None:
        """Return the time that it takes under a throttle of ``rate``; None: it never ends."""
        return time_to_copy_ms(self.left_bytes, rate * self.effect - self.in_sync_rate - self.incoming_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The outlook of one holder's moves. ``limit`` and ``source`` are None without a throttle."""

    load: Load
    source: Source | None
    limit: float | None
    rate: float | None  # as measured; None: not observed for long enough
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
    size_bytes: int  # copied and left together
    rate: float | None
    incoming_rate: float
    limit: float | None  # the lowest throttle of any of them, which others may share
    verdict: Verdict
    time_left_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A reassignment as a whole. Rates in bytes per second."""

    span_ms: int  # the time over which rates were measured
    rows: tuple[Row, ...]  # by topic, then broker
    estimates: tuple[Estimate, ...]  # of each holder
    loads: tuple[Load, ...]  # of each leader and each follower, whatever throttles them now
    left_bytes: int
    size_bytes: int
    rate: float | None
    incoming_rate: float
    verdict: Verdict
    time_left_ms: float | None

    @property
    def smallest_rate(self) -> float:
        """The one throttle for all brokers and both sides that only keeps pace; any higher one ends."""
        return max((load.smallest_rate for load in self.loads), default=0.0)

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the one throttle for all brokers and both sides that ends in ``duration_ms``, which is above 0."""
        return max((load.rate_to_end_in(duration_ms) for load in self.loads), default=0.0)

    def time_left_at_ms(self, rate: float) -> float | None:
        """Return the time that it takes with a throttle of ``rate`` at all brokers, both sides; None: it never ends."""
        times = [load.time_left_ms(rate) for load in self.loads]
        ends = [time for time in times if time is not None]
        return max(ends, default=0.0) if len(ends) == len(times) else None


def time_to_copy_ms(left_bytes: int, net_rate: float) -> float | None:
    """Return the time to copy the rest at a net rate; None: it never ends."""
    if left_bytes == 0:
        return 0.0
    return left_bytes * 1_000 / net_rate if net_rate > 0 else None
