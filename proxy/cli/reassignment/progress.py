"""Computes the progress of a reassignment from samples of log sizes: the bytes left, the rates, and the time left.

Sizes are those of the logs on disk. Retention makes logs shrink, so the rates count only growth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from itertools import pairwise
from typing import Final

from kafka_quota_proxy.proxy.cli.reassignment.model import Load, Move, Report, Row, Sample

# Rates are measured over this time. Replication quotas average over eleven windows of a second
# (replication.quota.window.num), and a follower that has used its share may rest for most of that time.
WINDOW_MS: Final = 30_000
# A shorter time gives no rate. A follower may get the bytes of a whole window of its quota at once.
LEAST_SPAN_MS: Final = 11_000


class Progress:
    """Collects the samples of a reassignment over the last ``WINDOW_MS``, and computes reports from these samples."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        """Add a sample, which is newer than those before it."""
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].time_ms <= sample.time_ms - WINDOW_MS:
            self._samples.popleft()

    def report(self) -> Report:
        """Return a report on the progress as of the last sample. At least one sample must have been added."""
        now = self._samples[-1]
        every = {move for sample in self._samples for move in sample.moves}  # with those that have arrived meanwhile
        followers = sorted({move.follower for move in now.moves})
        leaders = sorted({sizes.leader for sizes in now.moves.values()})
        to_brokers = {broker: self._load({move for move in every if move.follower == broker}) for broker in followers}
        from_brokers = [
            self._load({move for move, sizes in now.moves.items() if sizes.leader == broker}, counts_in_sync=True)
            for broker in leaders
        ]
        rows = []
        for topic, broker in sorted({(move.topic, move.follower) for move in now.moves}):
            load = self._load({move for move in every if (move.topic, move.follower) == (topic, broker)})
            # When other topics have arrived at the broker, this one gets their rate, so it ends with all at the latest.
            times = [time for one in (load, to_brokers[broker]) if (time := one.time_left_ms) is not None]
            rows.append(Row(topic=topic, follower=broker, load=load, time_left_ms=min(times, default=None)))
        return Report(
            span_ms=self._span_ms,
            rows=tuple(rows),
            total=self._load(every),
            brokers=(*from_brokers, *to_brokers.values()),
            waiting=now.waiting,
        )

    @property
    def _span_ms(self) -> int:
        return self._samples[-1].time_ms - self._samples[0].time_ms

    def _load(self, moves: Set[Move], *, counts_in_sync: bool = False) -> Load:
        """Return the load of ``moves``. Of those that have arrived only the rate counts."""
        copied = incoming = in_sync = left_bytes = 0
        for move in moves:
            steps = list(pairwise(one.moves[move] for one in self._samples if move in one.moves))
            copied += sum(max(0, after.follower_bytes - before.follower_bytes) for before, after in steps)
            sizes = self._samples[-1].moves.get(move)
            if sizes is None:
                continue
            # A new leader's log may have another size.
            same = [(before, after) for before, after in steps if before.leader == after.leader]
            grown = sum(max(0, after.leader_bytes - before.leader_bytes) for before, after in same)
            left_bytes += sizes.left_bytes
            incoming += grown
            in_sync += grown * sizes.in_sync_followers if counts_in_sync else 0
        return Load(
            left_bytes=left_bytes,
            rate=self._rate(copied) if self._span_ms >= LEAST_SPAN_MS else None,
            incoming_rate=self._rate(incoming),
            in_sync_rate=self._rate(in_sync),
        )

    def _rate(self, grown_bytes: int) -> float:
        return grown_bytes * 1_000 / self._span_ms if self._span_ms else 0.0
