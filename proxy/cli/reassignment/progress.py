"""Computes the progress of a reassignment: the bytes left, the rates, the time left, and the throttle that it needs.

A new replica copies the existing data and the data that arrives meanwhile. If R bytes per second are copied and A bytes
per second arrive, copying the L bytes that are left takes L / (R − A) seconds. The copying never ends unless R is above
A (KIP-73, questions and answers). The time is computed for each leader, follower and path, and the longest of these
times is that of the reassignment. A path is the traffic from certain leaders to certain followers that the proxy's
configuration file names.

Sizes are those of the logs on disk. Retention makes logs shrink, so the rates count only growth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from kafka_quota_proxy.proxy.cli.reassignment.log_growth import growth, rate
from kafka_quota_proxy.proxy.cli.reassignment.model import (
    Estimate,
    Holder,
    Limit,
    Load,
    Move,
    Report,
    Row,
    Sample,
    Side,
    Sizes,
    Source,
    Verdict,
    Waiting,
    time_to_copy_ms,
)

# Rates are measured over this time. Replication quotas average over eleven windows of a second
# (replication.quota.window.num), and a follower that has used its share may rest for most of that time.
WINDOW_MS: Final = 30_000
# A shorter time gives no rate, because a throttled follower gets a second's worth of data at once.
LEAST_SPAN_MS: Final = 5_000
# The window of Kafka's quotas. After a change of its throttle a follower gets the difference at once and then nothing
# for the rest of the window. So a rate that is below the throttle for less than this time proves nothing.
_QUOTA_WINDOW_MS: Final = 11_000
# The most bytes of one fetch: replica.fetch.max.bytes for each partition, replica.fetch.response.max.bytes in all.
_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 10 << 20
# The share of its rate that Kafka's own throttle lets through in the long run. It is below 1 because a fetch that ends
# inside a batch is charged but discarded, and because only a part of the oldest second has passed. Measurements gave
# 0.88 to 0.94 (bench/REBALANCES.md). In its first window the throttle lets all of its rate through, so for two windows
# the measured rate is too optimistic.
_LASTING_SHARE: Final = 0.9
_LASTING_AFTER_MS: Final = 2 * _QUOTA_WINDOW_MS
# The fewest fetches that make a rate: with fewer, one fetch more or less would change it too much.
_LEAST_FETCHES: Final = 4
# A throttle limits a move if at least this share of the throttle is used. Otherwise something else limits the move.
# Kafka's own throttle lets 85 to 95 per cent through, because it gives a follower whole fetches and then nothing until
# the next second.
_REACHED: Final = 0.7


class Progress:
    """Collects the samples of a reassignment over the last ``WINDOW_MS``, and computes reports from these samples."""

    def __init__(self) -> None:
        self._samples: deque[_ThrottledSample] = deque()
        self._arrived: dict[Move, int] = {}  # the size of each completed move, in bytes

    def add(self, sample: Sample, limits: Iterable[Limit], *, arrived: Iterable[Move] = ()) -> None:
        """Add a sample, and the throttles that applied when it was taken, one for each source and holder.

        ``arrived`` contains the moves that have completed since the previous sample.
        """
        latest = _ThrottledSample(sample, {(limit.source, limit.holder): limit for limit in limits})
        for move in arrived:
            self._arrived[move] = self._last_size(move)
        if self._samples and _is_changed(self._samples[-1].limits, latest.limits):
            self._samples.clear()  # samples under another throttle say nothing about this one
        self._samples.append(latest)
        while len(self._samples) > 2 and self._samples[1].sample.time_ms <= sample.time_ms - WINDOW_MS:
            self._samples.popleft()

    def _last_size(self, move: Move) -> int:
        earlier = (sample.moves for sample, _ in reversed(self._samples))
        return next((moves[move].leader_bytes for moves in earlier if move in moves), 0)

    def report(self, waiting: Sequence[Waiting] = ()) -> Report:
        """Return a report on the progress as of the last sample. At least one sample must have been added.

        ``waiting`` are moves that are not in this sample, because they wait for brokers.
        """
        report = _Window(tuple(self._samples), self._arrived).report()
        if not waiting:
            return report
        verdict = report.verdict if report.verdict is Verdict.TOO_LOW else Verdict.WAITS
        return replace(report, verdict=verdict, time_left_ms=None, waiting=tuple(waiting))


_Limits: TypeAlias = Mapping[tuple[Source, Holder], Limit]


class _ThrottledSample(NamedTuple):
    sample: Sample
    limits: _Limits


def _is_changed(before: _Limits, now: _Limits) -> bool:
    """Return whether the rate of any throttle has changed. Added and removed throttles do not count."""
    return any(key in before and before[key].rate != limit.rate for key, limit in now.items())


class _Group(NamedTuple):
    """The moves that share one throttle, or the unthrottled moves to one follower, with their measured rate."""

    load: Load
    limit: Limit | None
    moves: frozenset[Move]
    copied: float  # the measured rate, in bytes per second
    lasting: float  # the part of ``copied`` that will last, in bytes per second
    is_known: bool  # whether there are enough samples for ``copied`` to be reliable
    share: float  # the share of the throttle that is used, or 0 if unknown


class _Window:
    """Computes one report on the progress of a reassignment from a sequence of samples."""

    def __init__(self, samples: Sequence[_ThrottledSample], arrived: Mapping[Move, int]) -> None:
        self._times = [one.sample.time_ms for one in samples]
        self._limits = [one.limits for one in samples]
        self._now = samples[-1].sample.moves
        self._arrived = arrived
        sizes = [one.sample.moves for one in samples]
        moves = {move for at_once in sizes for move in at_once}
        self._copied = {move: self._growth(sizes, move, _follower_bytes) for move in moves}
        self._incoming = {move: self._growth(sizes, move, _leader_bytes) for move in self._now}

    @property
    def span_ms(self) -> int:
        return self._times[-1] - self._times[0]

    def report(self) -> Report:
        groups = [self._measured(*group) for group in self._moves_by_limit()]
        reached = [one for one in groups if one.share >= _REACHED]
        bound = frozenset().union(*(one.moves for one in reached))
        # The holder that uses the highest share of its throttle holds the others back. So its share shows how much of
        # a throttle is really used.
        effect = min(1.0, max((one.share for one in reached), default=1.0))
        estimates = tuple(
            self._estimate(one, effect=effect, is_decisive=one in reached or not one.moves <= bound) for one in groups
        )
        rows = tuple(
            self._row(topic, follower, estimates)
            for topic, follower in sorted({(move.topic, move.follower) for move in self._now})
        )
        verdict, time_left_ms = _worst(estimates)
        return Report(
            span_ms=self.span_ms,
            rows=rows,
            estimates=estimates,
            loads=tuple(replace(load, effect=effect) for load in self._loads()),
            left_bytes=sum(row.left_bytes for row in rows),
            size_bytes=sum(row.size_bytes for row in rows),
            rate=self._rate(self._copied.values()) if self.span_ms >= LEAST_SPAN_MS else None,
            incoming_rate=self._rate(self._incoming.values()),
            verdict=verdict,
            time_left_ms=time_left_ms,
        )

    def _moves_by_limit(self) -> list[tuple[Holder, Limit | None, frozenset[Move]]]:
        """Group the moves by the throttle that applies to them, and the unthrottled moves by follower."""
        groups: list[tuple[Holder, Limit | None, frozenset[Move]]] = []
        free = set(self._now)
        for limit in sorted(self._limits[-1].values(), key=_by_name):
            moves = limit.moves & self._now.keys()
            if moves:
                groups.append((limit.holder, limit, moves))
                free -= moves
        for follower in sorted({move.follower for move in free}):
            moves = frozenset(move for move in free if move.follower == follower)
            groups.append((Holder(Side.FOLLOWER, None, follower), None, moves))
        return groups

    def _measured(self, holder: Holder, limit: Limit | None, moves: frozenset[Move]) -> _Group:
        copied = self._rate(self._copied[move] for move in self._moves_in_window(limit, moves))
        is_known = self._is_known(limit.rate if limit else None, len(moves))
        load = self._load(holder, moves, charges_in_sync=limit is not None and limit.charges_in_sync)
        share = (copied + load.in_sync_rate) / limit.rate if limit is not None and limit.rate > 0 and is_known else 0.0
        return _Group(
            load=load,
            limit=limit,
            moves=moves,
            copied=copied,
            lasting=self._lasting(copied, limit, load),
            is_known=is_known,
            share=share,
        )

    def _lasting(self, copied: float, limit: Limit | None, load: Load) -> float:
        if limit is None or limit.source is not Source.CLUSTER or self.span_ms >= _LASTING_AFTER_MS:
            return copied
        lasting = _LASTING_SHARE * limit.rate - load.in_sync_rate
        # The time left may be an estimate, but "never ends" has to be measured.
        return min(copied, lasting) if lasting > load.incoming_rate else copied

    def _estimate(self, group: _Group, *, effect: float, is_decisive: bool) -> Estimate:
        """Return the outlook for a group of moves.

        ``is_decisive`` is False if other throttles hold back all of these moves. Then the group's measured rate says
        nothing about its own throttle and is not used.
        """
        limit = group.limit.rate if group.limit else None
        verdict, time_left_ms = _outlook(
            group.load,
            limit,
            group.lasting if group.is_known and is_decisive else None,
            is_settled=self.span_ms >= _QUOTA_WINDOW_MS,
        )
        return Estimate(
            load=replace(group.load, effect=effect),
            source=group.limit.source if group.limit else None,
            limit=limit,
            rate=group.copied if self.span_ms >= LEAST_SPAN_MS else None,
            verdict=verdict,
            time_left_ms=time_left_ms,
            moves=group.moves,
        )

    def _moves_in_window(self, limit: Limit | None, moves: frozenset[Move]) -> frozenset[Move]:
        """Return all moves that shared ``limit`` at any time in the window, including those that have completed."""
        if limit is None:
            return moves
        key = (limit.source, limit.holder)
        return moves.union(*(limits[key].moves for limits in self._limits if key in limits)) & self._copied.keys()

    def _is_known(self, limit: float | None, partitions: int) -> bool:
        """Return whether the window is long enough to measure a reliable rate.

        Under a throttle it must be long enough for several fetches of the largest size.
        """
        if self.span_ms < LEAST_SPAN_MS:
            return False
        fetch_bytes = min(_RESPONSE_BYTES, partitions * _PARTITION_BYTES)
        return limit is None or limit * self.span_ms / 1_000 >= _LEAST_FETCHES * fetch_bytes

    def _loads(self) -> Iterable[Load]:
        """Yield how much copying of replicas is left at each leader and at each follower, whether throttled or not."""
        charges_in_sync = any(limit.charges_in_sync for limit in self._limits[-1].values()) or not self._limits[-1]
        by_holder: dict[Holder, set[Move]] = {}
        for leader, move in sorted((sizes.leader, move) for move, sizes in self._now.items()):
            by_holder.setdefault(Holder(Side.LEADER, leader, None), set()).add(move)
        for move in sorted(self._now, key=lambda move: move.follower):
            by_holder.setdefault(Holder(Side.FOLLOWER, None, move.follower), set()).add(move)
        for holder, moves in by_holder.items():
            yield self._load(holder, frozenset(moves), charges_in_sync=charges_in_sync)

    def _load(self, holder: Holder, moves: frozenset[Move], *, charges_in_sync: bool) -> Load:
        return Load(
            holder=holder,
            left_bytes=sum(_left_bytes(self._now[move]) for move in moves),
            incoming_rate=self._rate(self._incoming[move] for move in moves),
            # Two moves of one partition have the same in-sync followers, which count once.
            in_sync_rate=sum(
                self._rate([self._incoming[move]]) * self._now[move].in_sync_followers
                for move in {(move.topic, move.partition): move for move in moves}.values()
            )
            if charges_in_sync and holder.side is Side.LEADER
            else 0.0,
            effect=1.0,
        )

    def _row(self, topic: str, follower: int, estimates: Sequence[Estimate]) -> Row:
        moves = frozenset(move for move in self._now if (move.topic, move.follower) == (topic, follower))
        over = [estimate for estimate in estimates if estimate.moves & moves]
        arrived_bytes = sum(
            size for move, size in self._arrived.items() if (move.topic, move.follower) == (topic, follower)
        )
        left_bytes = sum(_left_bytes(self._now[move]) for move in moves)
        incoming = self._rate(self._incoming[move] for move in moves)
        copied = self._rate(self._copied[move] for move in moves)
        verdict, time_left_ms = _worst(over)
        own_ms = time_to_copy_ms(left_bytes, copied - incoming) if self.span_ms >= LEAST_SPAN_MS else None
        if own_ms is not None and verdict is Verdict.TOO_LOW:
            verdict, time_left_ms = Verdict.ENDS, own_ms  # another move falls behind, not this one
        elif own_ms is not None and time_left_ms is not None:
            # This row ends no later than the other moves that share its throttle, and may end sooner.
            time_left_ms = min(own_ms, time_left_ms)
        return Row(
            topic=topic,
            follower=follower,
            partitions=len(moves),
            left_bytes=left_bytes,
            size_bytes=arrived_bytes + sum(self._now[move].leader_bytes for move in moves),
            rate=copied if self.span_ms >= LEAST_SPAN_MS else None,
            incoming_rate=incoming,
            limit=min((estimate.limit for estimate in over if estimate.limit is not None), default=None),
            verdict=verdict,
            time_left_ms=time_left_ms,
        )

    def _growth(
        self, samples: Sequence[Mapping[Move, Sizes]], move: Move, step_of: Callable[[Sizes, Sizes], int | None]
    ) -> list[float]:
        steps = [
            step_of(before[move], after[move]) if move in before and move in after else None
            for before, after in pairwise(samples)
        ]
        return growth(steps, [after - before for before, after in pairwise(self._times)])

    def _rate(self, growths: Iterable[Sequence[float]]) -> float:
        return rate(growths, self._times)


def _outlook(
    load: Load, limit: float | None, copied: float | None, *, is_settled: bool
) -> tuple[Verdict, float | None]:
    """Return whether the copying will end, and the time left if it will.

    Both are computed from the measured rate ``copied``. If that is None, or too short a measurement to be trusted, they
    are computed from the throttle ``limit`` instead.
    """
    if load.left_bytes == 0:
        return Verdict.ENDS, 0.0
    promised = None if limit is None else limit - load.in_sync_rate
    if promised is not None and copied is not None and copied <= load.incoming_rate < promised and not is_settled:
        copied = None
    if copied == 0 and (promised is None or promised > load.incoming_rate):
        return Verdict.STANDS_STILL, None
    arriving = promised if copied is None else copied
    if arriving is None:
        return Verdict.UNKNOWN, None
    time_left_ms = time_to_copy_ms(load.left_bytes, arriving - load.incoming_rate)
    return (Verdict.TOO_LOW if time_left_ms is None else Verdict.ENDS), time_left_ms


def _worst(estimates: Sequence[Estimate]) -> tuple[Verdict, float | None]:
    verdicts = {estimate.verdict for estimate in estimates}
    for verdict in (Verdict.TOO_LOW, Verdict.STANDS_STILL, Verdict.UNKNOWN):
        if verdict in verdicts:
            return verdict, None
    return Verdict.ENDS, max((estimate.time_left_ms or 0.0 for estimate in estimates), default=0.0)


def _left_bytes(sizes: Sizes) -> int:
    return max(0, sizes.leader_bytes - sizes.follower_bytes)


def _follower_bytes(before: Sizes, after: Sizes) -> int:
    return after.follower_bytes - before.follower_bytes


def _leader_bytes(before: Sizes, after: Sizes) -> int | None:
    """Return how much the leader's log grew between two samples, or None if another broker has become the leader."""
    return after.leader_bytes - before.leader_bytes if before.leader == after.leader else None


def _by_name(limit: Limit) -> tuple[str, str, int, int]:
    side, leader, follower, path = limit.holder
    return (
        limit.source.value,
        side.value + path,
        -1 if leader is None else leader,
        -1 if follower is None else follower,
    )
