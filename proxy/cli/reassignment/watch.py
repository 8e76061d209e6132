"""Following a reassignment: when to read, when to tell, and when it is over. The clock and the cluster are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import Observation, ReadingError
from kafka_quota_proxy.proxy.cli.reassignment.model import Move, Report, Verdict
from kafka_quota_proxy.proxy.cli.reassignment.progress import Progress

# Half a second shows the steps of Kafka's own throttle, which are one a second.
_SAMPLE_MS: Final = 500
# How long a cluster may be away while it is watched.
_PATIENCE_MS: Final = 60_000


class Clock(Protocol):
    """Time, and how it passes."""

    def now_ms(self) -> int:
        """Return a time that only goes forward."""

    def local(self) -> datetime:
        """Return the local time, with its zone."""

    def wait(self, duration_ms: int) -> None:
        """Return when so much has passed."""


class Display(Protocol):
    """Where reports go."""

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Show how things stand."""

    def end(self, state: str, text: str, *, now: datetime) -> None:
        """Show that there is nothing to watch any more: ``none``, ``done`` or ``given up``."""

    def trouble(self, text: str) -> None:
        """Tell of what went wrong and is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the operator asked for."""

    first_ms: int  # how long to read before the first report
    every_ms: int  # and between reports
    goes_on: bool  # until it ends; else one report is all
    throttle: float | None = None
    by: datetime | None = None
    by_words: str = ""


class Follower:
    """Reads, tells and ends.

    Args:
        read: Returns what the cluster says now.
        failures: What ``read`` raises where the cluster is away.
        clock: Whose time it is.
        display: Who shows it.
        plan: What was asked for.
    """

    def __init__(
        self,
        read: Callable[[], Observation],
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
        self._given_up: set[Move] = set()
        self._verdict = Verdict.UNKNOWN

    @property
    def status(self) -> int:
        """The exit status if it ended now: 1 where it would never end."""
        return 1 if self._verdict is Verdict.TOO_LOW else 0

    def run(self) -> int:
        """Follow to the end, or to the first report; return the exit status.

        Raises:
            Exception: One of ``failures``, where the cluster cannot be reached, or not any more.
        """
        due_ms = self._clock.now_ms() + self._plan.first_ms
        has_begun = False
        while True:
            seen = self._read_patiently(has_begun=has_begun)
            has_begun = True
            self._progress.add(seen.sample, seen.limits, arrived=seen.arrived)
            self._arrived |= set(seen.arrived)
            self._given_up |= set(seen.given_up)
            if not seen.sample.moves and not seen.unsure:
                return self._end()
            now_ms = self._clock.now_ms()
            if now_ms >= due_ms and seen.sample.moves:
                self._tell(seen)
                if not self._plan.goes_on:
                    return self.status
                due_ms += self._plan.every_ms * ((now_ms - due_ms) // self._plan.every_ms + 1)
            self._clock.wait(max(1, _SAMPLE_MS - (self._clock.now_ms() - seen.sample.time_ms)))

    def _tell(self, seen: Observation) -> None:
        report = self._progress.report()
        self._verdict = report.verdict
        now = self._clock.local()
        by_ms = None if self._plan.by is None else (self._plan.by - now).total_seconds() * 1_000
        question = Question(
            throttle=self._plan.throttle,
            by_ms=by_ms if by_ms is not None and by_ms > 0 else None,
            by=self._plan.by_words,
        )
        cancelled = tuple(f"{_named(move)} was cancelled" for move in sorted(self._given_up))
        self._display.show(report, now=now, question=question, notes=(*seen.notes, *cancelled))

    def _end(self) -> int:
        now = self._clock.local()
        if not self._arrived and not self._given_up:
            self._display.end("none", "no reassignment in progress", now=now)
            return 0
        if self._given_up:
            cancelled = ", ".join(map(_named, sorted(self._given_up)))
            self._display.end("given up", f"no reassignment in progress any more; cancelled: {cancelled}", now=now)
            return 1
        replicas = "1 replica" if len(self._arrived) == 1 else f"{len(self._arrived)} replicas"
        self._display.end("done", f"done: {replicas} arrived while this was watching", now=now)
        return 0

    def _read_patiently(self, *, has_begun: bool) -> Observation:
        """Return what the cluster says; where it was there before it may be away for a while."""
        give_up_ms = self._clock.now_ms() + (_PATIENCE_MS if has_begun and self._plan.goes_on else 0)
        while True:
            try:
                return self._read()
            except self._failures as error:
                if self._clock.now_ms() >= give_up_ms:
                    raise
                self._display.trouble(f"the cluster does not answer, trying again: {error}")
                self._clock.wait(_SAMPLE_MS)


def _named(move: Move) -> str:
    return f"{move.topic}-{move.partition} to broker {move.follower}"
