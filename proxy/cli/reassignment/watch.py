"""Watches a reassignment: decides when to read the cluster, when to report, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question, name_of
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ClusterSnapshot, ReadingError
from kafka_quota_proxy.proxy.cli.reassignment.display import Display
from kafka_quota_proxy.proxy.cli.reassignment.model import Move, Verdict
from kafka_quota_proxy.proxy.cli.reassignment.progress import Progress

# Half a second is short enough to see the steps of Kafka's own throttle, which come once a second.
_SAMPLE_MS: Final = 500
# How long the cluster may be unreachable during a watch.
_PATIENCE_MS: Final = 60_000


class Clock:
    """The clock of this machine. Tests replace it."""

    def now_ms(self) -> int:
        """Return the time of a monotonic clock, in milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def local(self) -> datetime:
        """Return the local date and time, with the time zone."""
        return datetime.now(UTC).astimezone()

    def wait(self, duration_ms: int) -> None:
        """Sleep for ``duration_ms``."""
        time.sleep(duration_ms / 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Holds what the operator wants to know about a reassignment, and when to report.

    ``throttle`` asks when the reassignment would end with this throttle. ``by`` asks which throttle would end it by
    this time. Each is None if the operator did not ask.
    """

    first_ms: int  # the time before the first report
    every_ms: int  # the time between reports
    continues: bool  # whether to watch until the reassignment ends, and not only until the first report
    throttle: float | None = None
    by: datetime | None = None
    by_words: str = ""


class Watcher:
    """Reads the state of a cluster's reassignments repeatedly and shows reports, until all reassignments have ended.

    ``read`` returns the state. It raises one of the exceptions ``failures`` if the cluster is unreachable.
    """

    def __init__(
        self,
        read: Callable[[], ClusterSnapshot],
        *,
        failures: tuple[type[Exception], ...],
        clock: Clock,
        display: Display,
        plan: Plan,
    ) -> None:
        self._read = read
        self._failures: tuple[type[Exception], ...] = (*failures, ReadingError)
        self._clock = clock
        self._display = display
        self._plan = plan
        self._progress = Progress()
        self._arrived: set[Move] = set()
        self._cancelled: set[Move] = set()
        self._verdict = Verdict.UNKNOWN

    @property
    def status(self) -> int:
        """The exit status as of the last report: 1 if the reassignment never ends or waits for brokers, otherwise 0."""
        return 1 if self._verdict in (Verdict.TOO_LOW, Verdict.WAITS) else 0

    def run(self) -> int:
        """Watch until the reassignment ends, or until the first report if the plan says so. Return the exit status.

        Raises ReadingError or one of ``failures`` if the cluster cannot be read. After a first successful read, a watch
        that continues tries again for a minute before it gives up.
        """
        due_ms = self._clock.now_ms() + self._plan.first_ms
        has_begun = False
        while True:
            snapshot = self._read_patiently(has_begun=has_begun)
            has_begun = True
            self._progress.add(snapshot.sample, snapshot.limits, arrived=snapshot.arrived)
            self._arrived |= set(snapshot.arrived)
            self._cancelled |= set(snapshot.cancelled)
            is_moving = bool(snapshot.sample.moves or snapshot.waiting)
            if not is_moving and not snapshot.unsettled:
                return self._end()
            now_ms = self._clock.now_ms()
            if now_ms >= due_ms and is_moving:
                self._report(snapshot)
                if not self._plan.continues:
                    return self.status
                due_ms += self._plan.every_ms * ((now_ms - due_ms) // self._plan.every_ms + 1)
            self._clock.wait(max(1, _SAMPLE_MS - (self._clock.now_ms() - snapshot.sample.time_ms)))

    def _report(self, snapshot: ClusterSnapshot) -> None:
        report = self._progress.report(snapshot.waiting)
        self._verdict = report.verdict
        now = self._clock.local()
        by_ms = 0.0 if self._plan.by is None else (self._plan.by - now).total_seconds() * 1_000
        question = Question(throttle=self._plan.throttle, by_ms=by_ms if by_ms > 0 else None, by=self._plan.by_words)
        cancelled = tuple(f"{name_of(move)} was cancelled" for move in sorted(self._cancelled))
        self._display.show(report, now=now, question=question, notes=(*snapshot.notes, *cancelled))

    def _end(self) -> int:
        now = self._clock.local()
        if not self._arrived and not self._cancelled:
            self._display.end("none", "no reassignment in progress", now=now)
            return 0
        if self._cancelled:
            cancelled = ", ".join(map(name_of, sorted(self._cancelled)))
            self._display.end("given up", f"no reassignment is in progress any more; cancelled: {cancelled}", now=now)
            return 1
        replicas = "1 replica" if len(self._arrived) == 1 else f"{len(self._arrived)} replicas"
        self._display.end("done", f"done: {replicas} arrived while this was watching", now=now)
        return 0

    def _read_patiently(self, *, has_begun: bool) -> ClusterSnapshot:
        """Return the cluster's state. Once a watch has begun, retry for a minute before raising an error."""
        give_up_ms = self._clock.now_ms() + (_PATIENCE_MS if has_begun and self._plan.continues else 0)
        while True:
            try:
                return self._read()
            except self._failures as error:
                if self._clock.now_ms() >= give_up_ms:
                    raise
                self._display.show_error(f"the cluster does not answer; trying again: {error}")
                self._clock.wait(_SAMPLE_MS)
