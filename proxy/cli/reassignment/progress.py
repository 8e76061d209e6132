"""The arithmetic of a reassignment: what is left, how fast it goes, when it ends, which rate would end it.

A new replica copies what lies there and what comes in meanwhile: with R for what reaches it and A for what comes in,
L bytes take L / (R − A), and they never end where A is not below R. Source: the questions and answers of KIP-73, which
give this for one throttle. Here it is taken for each leader, each follower and each path that a throttle holds for, and
the slowest of them is the end.

Sizes are those of log directories, in bytes. They shrink where retention deletes segments, so rates come from growth
alone, and a step back counts as what the rest of the window would have brought.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple, TypeAlias

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
)
from kafka_quota_proxy.proxy.cli.reassignment.model import time_left_ms as time_to_copy_ms
from kafka_quota_proxy.proxy.cli.reassignment.rates import growth, rate

# How far back rates look. Replication quotas average over eleven windows of a second (replication.quota.window.num),
# and a follower that has used its share may rest for most of that.
WINDOW_MS: Final = 30_000
# Less says nothing: a throttled follower is given a second's worth at once.
LEAST_SPAN_MS: Final = 5_000
# The window of Kafka's quotas. Who was under a throttle, or got a higher one, is given the difference at once and then
# nothing for the rest of it: that a rate is below its throttle for less than this proves nothing.
_QUOTA_WINDOW_MS: Final = 11_000
# What a fetch brings at once: replica.fetch.max.bytes of each partition, replica.fetch.response.max.bytes in all.
_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 10 << 20
# What Kafka's own throttle lets through in the long run: a fetch that ends inside a batch is charged and thrown away,
# and of the oldest second only a part has passed. Measured from 0.88 to 0.94 (bench/REBALANCES.md). In its first window
# it gives all of its rate, so that for two windows what is measured promises more than what will come.
_LASTING_SHARE: Final = 0.9
_LASTING_AFTER_MS: Final = 2 * _QUOTA_WINDOW_MS
# So many fetches make a rate: of fewer, the one that just came or just did not would be too much of it.
_LEAST_FETCHES: Final = 4
# A throttle that is reached to this share is what holds the move back; below, something else does. Kafka's own lets
# through 85 to 95 in a hundred: it gives a follower whole fetches and then nothing until the next second.
_REACHED: Final = 0.7


class Progress:
    """What was seen of a reassignment in the last ``WINDOW_MS``, and before that: what has arrived."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque()
        self._arrived: dict[Move, int] = {}  # bytes

    def add(self, sample: Sample, limits: Iterable[Limit], *, arrived: Iterable[Move] = ()) -> None:
        """Take a sample and the throttles in force then.

        Args:
            sample: Not older than the last.
            limits: One for each source and holder at the most.
            arrived: Moves of earlier samples that have ended well.
        """
        seen = _Seen(sample, {(limit.source, limit.holder): limit for limit in limits})
        for move in arrived:
            self._arrived[move] = self._last_size(move)
        if self._seen and _is_changed(self._seen[-1].limits, seen.limits):
            self._seen.clear()  # what went under another throttle says nothing of this one
        self._seen.append(seen)
        while len(self._seen) > 2 and self._seen[1].sample.time_ms <= sample.time_ms - WINDOW_MS:
            self._seen.popleft()

    def _last_size(self, move: Move) -> int:
        sizes = (seen.sample.moves[move].leader_bytes for seen in reversed(self._seen) if move in seen.sample.moves)
        return next(sizes, 0)

    def report(self) -> Report:
        """Return where things stand with the last sample; there has to be one."""
        return _Window(tuple(self._seen), self._arrived).report()


_Limits: TypeAlias = Mapping[tuple[Source, Holder], Limit]


class _Seen(NamedTuple):
    sample: Sample
    limits: _Limits


def _is_changed(before: _Limits, now: _Limits) -> bool:
    """Return whether a rate is another one. A holder that came or went has no more or no longer moves, as a rule."""
    return any(key in before and before[key].rate != limit.rate for key, limit in now.items())


class _Held(NamedTuple):
    """What shares a limit, or has none, and what was seen of it."""

    load: Load
    limit: Limit | None
    moves: frozenset[Move]
    copied: float  # bytes per second
    lasting: float  # what of it goes on to arrive; bytes per second
    is_known: bool  # whether that can be believed yet
    share: float  # how much of the limit is used; 0 where that is not known


class _Window:
    """The samples of one report, and the growth between them."""

    def __init__(self, seen: Sequence[_Seen], arrived: Mapping[Move, int]) -> None:
        self._times = [one.sample.time_ms for one in seen]
        self._limits = [one.limits for one in seen]
        self._now = seen[-1].sample.moves
        self._arrived = arrived
        samples = [one.sample.moves for one in seen]
        moves = {move for sample in samples for move in sample}
        self._copied = {move: self._growth(samples, move, _follower_bytes) for move in moves}
        self._incoming = {move: self._growth(samples, move, _leader_bytes) for move in self._now}

    @property
    def span_ms(self) -> int:
        return self._times[-1] - self._times[0]

    def report(self) -> Report:
        held = [self._held(holder, limit, moves) for holder, limit, moves in self._groups()]
        reached = [one for one in held if one.share >= _REACHED]
        bound = frozenset().union(*(one.moves for one in reached))
        # The one that is used best shows what arrives of a throttle; the others are less used for its sake.
        effect = min(1.0, max((one.share for one in reached), default=1.0))
        estimates = tuple(
            self._estimate(one, effect=effect, is_decisive=one in reached or not one.moves <= bound) for one in held
        )
        rows = tuple(self._row(topic, follower, estimates) for topic, follower in self._places())
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

    def _groups(self) -> list[tuple[Holder, Limit | None, frozenset[Move]]]:
        """Return who holds which moves back; a follower's that nobody does stand under its name, without a limit."""
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

    def _held(self, holder: Holder, limit: Limit | None, moves: frozenset[Move]) -> _Held:
        copied = self._rate(self._copied[move] for move in self._ever(limit, moves))
        is_known = self._is_known(limit.rate if limit else None, len(moves))
        load = self._load(holder, moves, charges_in_sync=limit is not None and limit.charges_in_sync)
        share = (copied + load.in_sync_rate) / limit.rate if limit is not None and limit.rate > 0 and is_known else 0.0
        return _Held(
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
        # How long it takes is a guess, that it never ends has to be seen.
        return min(copied, lasting) if lasting > load.incoming_rate else copied

    def _estimate(self, held: _Held, *, effect: float, is_decisive: bool) -> Estimate:
        """Return when it ends: by what is copied, or by its throttle where another one is what holds its moves back."""
        limit = held.limit.rate if held.limit else None
        verdict, time_left_ms = _outlook(
            held.load,
            limit,
            held.lasting if held.is_known and is_decisive else None,
            is_settled=self.span_ms >= _QUOTA_WINDOW_MS,
        )
        return Estimate(
            load=replace(held.load, effect=effect),
            source=held.limit.source if held.limit else None,
            limit=limit,
            rate=held.copied if self.span_ms >= LEAST_SPAN_MS else None,
            verdict=verdict,
            time_left_ms=time_left_ms,
            moves=held.moves,
        )

    def _ever(self, limit: Limit | None, moves: frozenset[Move]) -> frozenset[Move]:
        """Return the moves that shared a limit within the window: what has arrived since had its part as well."""
        if limit is None:
            return moves
        key = (limit.source, limit.holder)
        return moves.union(*(limits[key].moves for limits in self._limits if key in limits)) & self._copied.keys()

    def _is_known(self, limit: float | None, partitions: int) -> bool:
        """Return whether what was measured is worth more than what a limit promises."""
        if self.span_ms < LEAST_SPAN_MS:
            return False
        fetch_bytes = min(_RESPONSE_BYTES, partitions * _PARTITION_BYTES)
        return limit is None or limit * self.span_ms / 1_000 >= _LEAST_FETCHES * fetch_bytes

    def _loads(self) -> Iterable[Load]:
        """Return what each leader and each follower has before it, under one throttle for all."""
        charges_in_sync = any(limit.charges_in_sync for limit in self._limits[-1].values()) or not self._limits[-1]
        for leader in sorted({sizes.leader for sizes in self._now.values()}):
            moves = frozenset(move for move, sizes in self._now.items() if sizes.leader == leader)
            holder = Holder(Side.LEADER, leader, None)
            yield self._load(holder, moves, charges_in_sync=charges_in_sync)
        for follower in sorted({move.follower for move in self._now}):
            moves = frozenset(move for move in self._now if move.follower == follower)
            holder = Holder(Side.FOLLOWER, None, follower)
            yield self._load(holder, moves, charges_in_sync=charges_in_sync)

    def _load(self, holder: Holder, moves: frozenset[Move], *, charges_in_sync: bool) -> Load:
        return Load(
            holder=holder,
            left_bytes=sum(_left_bytes(self._now[move]) for move in moves),
            incoming_rate=self._rate(self._incoming[move] for move in moves),
            # Of a partition that goes to two brokers the followers in sync are the same.
            in_sync_rate=sum(
                self._rate([self._incoming[move]]) * self._now[move].in_sync_followers
                for move in {(move.topic, move.partition): move for move in moves}.values()
            )
            if charges_in_sync and holder.side is Side.LEADER
            else 0.0,
            effect=1.0,
        )

    def _places(self) -> list[tuple[str, int]]:
        return sorted({(move.topic, move.follower) for move in self._now})

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
            verdict, time_left_ms = Verdict.ENDS, own_ms  # it is another one's lag that grows
        elif own_ms is not None and time_left_ms is not None:
            # Later than all that it shares a throttle with it cannot be; sooner it may.
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


def first_responses_ms(
    *, leaders: int, response_bytes: int, leader_rate: float | None, follower_rate: float | None
) -> float | None:
    """Return how long a follower's first responses take under its throttles; None: nothing throttles them.

    They come at once, before anybody has counted. Where this is longer than the quota's window (its number of windows
    times their size) they break the throttle, and what follows is one burst a window.

    Args:
        leaders: How many brokers the follower fetches from.
        response_bytes: The most that one response brings (``replica.fetch.response.max.bytes``).
        leader_rate: The throttle of each leader; bytes per second.
        follower_rate: The throttle of the follower, all leaders together.

    Source: question 5 of KIP-73, with the follower's throttle for the speed of its network.
    """
    rates = [
        rate for rate in (None if leader_rate is None else leader_rate * leaders, follower_rate) if rate is not None
    ]
    if not rates:
        return None
    return leaders * response_bytes * 1_000 / min(rates) if min(rates) > 0 else inf


def _outlook(
    load: Load, limit: float | None, copied: float | None, *, is_settled: bool
) -> tuple[Verdict, float | None]:
    """Return what becomes of a load: by what is copied where that is known, else by what the limit promises."""
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
    """Return the growth of the leader's log; None where another broker has become leader: its log is another."""
    return after.leader_bytes - before.leader_bytes if before.leader == after.leader else None


def _by_name(limit: Limit) -> tuple[str, str, int, int]:
    side, leader, follower, path = limit.holder
    return (
        limit.source.value,
        side.value + path,
        -1 if leader is None else leader,
        -1 if follower is None else follower,
    )
