"""Computes the progress of a reassignment from samples of log sizes: the bytes left, the rates, and the time left.

A *move* is the copying of one partition's replica to a new broker. Sizes are in bytes, rates in bytes per second. They
are those of the logs on disk. Retention makes logs shrink, so the rates count only growth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Move(NamedTuple):
    """The copying of one partition's replica to a new broker. ``follower`` is the node id of that broker."""

    topic: str
    partition: int
    follower: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} to broker {self.follower}"


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

    @property
    def left_bytes(self) -> int:
        """What the new replica lacks of the leader's log."""
        return max(0, self.leader_bytes - self.follower_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Holds all moves of a cluster and their sizes at one moment. ``time_ms`` is from a monotonic clock."""

    time_ms: int
    moves: Mapping[Move, Sizes]
    waiting: tuple[Waiting, ...] = ()  # moves that have no sizes, because a broker is away


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Holds what is left to copy to one broker, from one broker, or of one topic to one broker."""

    left_bytes: int
    rate: float  # at which replicas are copied
    incoming_rate: float  # new data that arrives for the replicas that are being copied, and has to be copied too
    in_sync_rate: float = 0.0  # new data that followers in sync fetch, which counts in a leader's throttle

    @property
    def time_left_ms(self) -> float | None:
        """How long the copying takes, in milliseconds. None if it never ends.

        It takes L / (R − A) seconds for L bytes that are left, if R bytes per second are copied and A arrive. It never
        ends unless R is above A. Source: KIP-73, questions and answers.
        """
        if self.left_bytes == 0:
            return 0.0
        net_rate = self.rate - self.incoming_rate
        return self.left_bytes * 1_000 / net_rate if net_rate > 0 else None

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the throttle with which copying the remaining data takes ``duration_ms``, which must be above 0."""
        return self.left_bytes * 1_000 / duration_ms + self.incoming_rate + self.in_sync_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the report on a reassignment, about all replicas of one topic that are being copied to one broker."""

    topic: str
    follower: int
    load: Load
    time_left_ms: float | None  # None if it never ends

    @property
    def never_ends(self) -> bool:
        """Whether the copying does not end at its rate."""
        return self.time_left_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report on all replicas that are being copied to new brokers, with totals for the whole reassignment."""

    span_ms: int  # the time over which rates were measured
    rows: tuple[Row, ...]  # by topic, then broker
    total: Load
    brokers: tuple[Load, ...]  # one for each leader and each follower
    waiting: tuple[Waiting, ...]  # moves that are in none of the numbers above

    @property
    def never_ends(self) -> bool:
        """Whether the copying of any topic to any broker never ends at its rate."""
        return any(row.never_ends for row in self.rows)

    @property
    def time_left_ms(self) -> float | None:
        """How long the whole takes, in milliseconds. None if it never ends or waits."""
        times = [row.time_left_ms for row in self.rows]
        ends = [time for time in times if time is not None]
        return max(ends, default=0.0) if len(ends) == len(times) and not self.waiting else None

    def rate_to_end_in(self, duration_ms: float) -> float:
        """Return the throttle that, set at all brokers, makes the reassignment take ``duration_ms`` (above 0)."""
        return max((load.rate_to_end_in(duration_ms) for load in self.brokers), default=0.0)


def report_of(samples: Sequence[Sample]) -> Report:
    """Return a report on the progress as of the last of ``samples``, of which there are at least two.

    A shorter time than eleven seconds gives no rate. Replication quotas average over eleven windows of a second
    (replication.quota.window.num), and a follower may get the bytes of a whole window of its quota at once.
    """
    now = samples[-1]
    every = {move for sample in samples for move in sample.moves}  # with those that have arrived meanwhile
    followers = sorted({move.follower for move in now.moves})
    leaders = sorted({sizes.leader for sizes in now.moves.values()})
    to_brokers = {broker: _load(samples, {move for move in every if move.follower == broker}) for broker in followers}
    from_brokers = [
        _load(samples, {move for move, sizes in now.moves.items() if sizes.leader == broker}, counts_in_sync=True)
        for broker in leaders
    ]
    rows = []
    for topic, broker in sorted({(move.topic, move.follower) for move in now.moves}):
        load = _load(samples, {move for move in every if (move.topic, move.follower) == (topic, broker)})
        # When other topics have arrived at the broker, this one gets their rate, so it ends with all at the latest.
        times = [time for one in (load, to_brokers[broker]) if (time := one.time_left_ms) is not None]
        rows.append(Row(topic=topic, follower=broker, load=load, time_left_ms=min(times, default=None)))
    return Report(
        span_ms=now.time_ms - samples[0].time_ms,
        rows=tuple(rows),
        total=_load(samples, every),
        brokers=(*from_brokers, *to_brokers.values()),
        waiting=now.waiting,
    )


def _load(samples: Sequence[Sample], moves: Set[Move], *, counts_in_sync: bool = False) -> Load:
    """Return the load of ``moves``. Of those that have arrived only the rate counts."""
    copied = incoming = in_sync = left_bytes = 0
    for move in moves:
        steps = list(pairwise(one.moves[move] for one in samples if move in one.moves))
        copied += sum(max(0, after.follower_bytes - before.follower_bytes) for before, after in steps)
        sizes = samples[-1].moves.get(move)
        if sizes is None:
            continue
        # A new leader's log may have another size.
        same = [(before, after) for before, after in steps if before.leader == after.leader]
        grown = sum(max(0, after.leader_bytes - before.leader_bytes) for before, after in same)
        left_bytes += sizes.left_bytes
        incoming += grown
        in_sync += grown * sizes.in_sync_followers if counts_in_sync else 0
    per_s = 1_000 / (samples[-1].time_ms - samples[0].time_ms)
    return Load(
        left_bytes=left_bytes, rate=copied * per_s, incoming_rate=incoming * per_s, in_sync_rate=in_sync * per_s
    )
