"""Tests when a watch reads, reports and ends, with a simulated clock and cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ClusterSnapshot, ReadingError
from kafka_quota_proxy.proxy.cli.reassignment.display import Display
from kafka_quota_proxy.proxy.cli.reassignment.model import (
    Holder,
    Limit,
    Move,
    Report,
    Sample,
    Side,
    Sizes,
    Source,
    Verdict,
    Waiting,
)
from kafka_quota_proxy.proxy.cli.reassignment.watch import Clock, Plan, Watcher

MB = 1_000_000
_MOVE = Move("orders", 0, 4)
_START = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
_ONCE = Plan(first_ms=12_000, every_ms=12_000, continues=False)
_WATCH = Plan(first_ms=10_000, every_ms=5_000, continues=True)


class FakeClock(Clock):
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def local(self) -> datetime:
        return _START + timedelta(milliseconds=self.ms - 1_000_000)

    def wait(self, duration_ms: int) -> None:
        assert duration_ms > 0
        self.ms += duration_ms


class SlowClock(FakeClock):
    """A simulated clock that advances by a millisecond at each reading."""

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


@dataclass
class RecordingDisplay(Display):
    clock: FakeClock
    shown: list[tuple[int, Report, Question, tuple[str, ...]]] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        self.shown.append((self.clock.ms - 1_000_000, report, question, tuple(notes)))

    def end(self, state: str, text: str, *, now: datetime) -> None:
        self.ended.append((state, text))

    def show_error(self, text: str) -> None:
        self.errors.append(text)


@dataclass
class Cluster:
    """A cluster that moves 300 MB at 10 MB/s while data comes in. Reading the cluster takes 20 ms."""

    clock: FakeClock
    incoming: float = 0
    cancelled_at_ms: int | None = None
    away: Callable[[int], bool] = lambda _: False
    was_moving: bool = False
    unsettled_until_ms: int = 0
    waits: bool = False
    reads: int = 0

    def read(self) -> ClusterSnapshot:
        self.reads += 1
        self.clock.ms += 20
        at_ms = self.clock.ms - 1_000_000
        if self.away(at_ms):
            raise ReadingError("orders-0 has no leader")
        leader_bytes = 300 * MB + round(self.incoming * at_ms / 1_000)
        follower_bytes = 10 * MB * at_ms // 1_000
        is_cancelled = self.cancelled_at_ms is not None and at_ms >= self.cancelled_at_ms
        is_moving = follower_bytes < leader_bytes and not is_cancelled
        if self.waits:
            waiting = (Waiting(_MOVE, (4,), "away"),)
            return ClusterSnapshot(
                sample=Sample(time_ms=self.clock.ms, moves={}),
                limits=(),
                arrived=(),
                cancelled=(),
                waiting=waiting,
                notes=(),
            )
        limit = Limit(source=Source.FILE, holder=Holder(Side.FOLLOWER, None, 4), rate=10 * MB, moves=frozenset({_MOVE}))
        gone = (_MOVE,) if self.was_moving and not is_moving else ()
        self.was_moving = is_moving
        unsettled: tuple[Move, ...] = ()
        if gone and at_ms < self.unsettled_until_ms:
            gone, unsettled, self.was_moving = (), gone, True
        sizes = Sizes(leader=1, leader_bytes=leader_bytes, follower_bytes=follower_bytes)
        return ClusterSnapshot(
            sample=Sample(time_ms=self.clock.ms, moves={_MOVE: sizes} if is_moving else {}),
            limits=(limit,) if is_moving else (),
            arrived=() if is_cancelled else gone,
            cancelled=gone if is_cancelled else (),
            unsettled=unsettled,
            notes=("a note",),
        )


def _follow(plan: Plan, cluster: Cluster) -> tuple[int, RecordingDisplay]:
    display = RecordingDisplay(cluster.clock)
    watcher = Watcher(cluster.read, failures=(OSError,), clock=cluster.clock, display=display, plan=plan)
    return watcher.run(), display


def test_it_waits_until_brokers_agree_on_a_move() -> None:
    cluster = Cluster(FakeClock(), unsettled_until_ms=40_000)

    status, display = _follow(_WATCH, cluster)

    assert status == 0
    assert [state for state, _ in display.ended] == ["done"]
    assert 40_000 <= cluster.clock.ms - 1_000_000 < 41_000
    assert display.shown[-1][0] <= 30_020


def test_once_reports_when_there_is_a_rate_and_ends() -> None:
    cluster = Cluster(FakeClock())

    status, display = _follow(_ONCE, cluster)

    ((at_ms, report, _, notes),) = display.shown
    assert (status, display.ended, notes) == (0, [], ("a note",))
    assert 12_000 <= at_ms <= 12_600
    assert report.verdict is Verdict.ENDS
    assert report.time_left_ms == pytest.approx(30_000 - at_ms, rel=0.01)
    assert cluster.reads == 25  # it is read twice a second


def test_the_status_is_1_if_it_never_ends() -> None:
    status, display = _follow(_ONCE, Cluster(FakeClock(), incoming=11 * MB))

    assert (status, display.shown[0][1].verdict) == (1, Verdict.TOO_LOW)


def test_a_reassignment_that_waits_is_reported_with_status_1() -> None:
    """All of it waits, so nothing is measured."""
    status, display = _follow(_ONCE, Cluster(FakeClock(), waits=True))

    (shown,) = display.shown
    assert (status, shown[1].rows, shown[1].waiting[0].brokers) == (1, (), (4,))
    assert (shown[1].verdict, display.ended) == (Verdict.WAITS, [])


def test_a_watch_lasts_to_the_end() -> None:
    status, display = _follow(_WATCH, Cluster(FakeClock()))

    assert [at_ms // 1_000 for at_ms, *_ in display.shown] == [10, 15, 20, 25]
    assert (status, display.ended) == (0, [("done", "done: 1 replica arrived while this was watching")])


def test_an_end_before_the_first_report_is_done() -> None:
    plan = Plan(first_ms=60_000, every_ms=60_000, continues=False)

    status, display = _follow(plan, Cluster(FakeClock()))

    assert (status, display.shown, display.ended[0][0]) == (0, [], "done")


def test_a_cancelled_reassignment_is_not_done() -> None:
    status, display = _follow(_WATCH, Cluster(FakeClock(), cancelled_at_ms=12_000))

    assert status == 1
    assert display.ended == [("given up", "no reassignment is in progress any more; cancelled: orders-0 to broker 4")]


def test_no_moves_are_reported_at_once() -> None:
    clock = FakeClock()

    status, display = _follow(_ONCE, Cluster(clock, cancelled_at_ms=0))

    assert (status, display.ended) == (0, [("none", "no reassignment in progress")])
    assert clock.ms == 1_000_020


def test_a_watch_retries_an_unreachable_cluster() -> None:
    cluster = Cluster(FakeClock(), away=lambda at_ms: 12_000 < at_ms < 14_000)

    status, display = _follow(_WATCH, cluster)

    assert status == 0
    assert display.errors[0] == "the cluster does not answer; trying again: orders-0 has no leader"
    assert 3 <= len(display.errors) <= 5


def test_missed_reports_are_not_repeated() -> None:
    cluster = Cluster(FakeClock(), incoming=5 * MB, away=lambda at_ms: 12_000 < at_ms < 28_000)

    _, display = _follow(_WATCH, cluster)

    times = [at_ms for at_ms, *_ in display.shown]
    assert [round(at_ms / 1_000) for at_ms in times[:4]] == [10, 28, 30, 35]


@pytest.mark.parametrize(
    ("plan", "away_from_ms", "at_least_ms", "at_most_ms"),
    [(_WATCH, 0, 0, 1_000), (_WATCH, 12_000, 72_000, 74_000), (_ONCE, 2_000, 2_000, 3_000)],
)
def test_a_cluster_unreachable_for_long_is_an_error(
    plan: Plan, away_from_ms: int, at_least_ms: int, at_most_ms: int
) -> None:
    """A single report fails at once, and a watch fails after a minute."""
    clock = FakeClock()

    with pytest.raises(ReadingError):
        _follow(plan, Cluster(clock, away=lambda at_ms: at_ms >= away_from_ms))

    assert at_least_ms <= clock.ms - 1_000_000 <= at_most_ms


def test_a_cluster_unreachable_at_the_start_is_an_error_at_once() -> None:
    clock = SlowClock()

    with pytest.raises(ReadingError):
        _follow(_WATCH, Cluster(clock, away=lambda _: True))

    assert clock.ms - 1_000_000 <= 1_000


def test_a_deadline_comes_nearer_and_is_dropped_when_it_has_passed() -> None:
    plan = Plan(
        first_ms=10_000,
        every_ms=5_000,
        continues=True,
        throttle=50 * MB,
        by=_START + timedelta(seconds=18),
        by_words="by 22:00",
    )

    _, display = _follow(plan, Cluster(FakeClock()))

    questions = [question for _, _, question, _ in display.shown]
    assert {question.throttle for question in questions} == {50 * MB}
    assert [question.by_ms is None for question in questions] == [False, False, True, True]
    assert questions[0].by_ms == pytest.approx(8_000, abs=600)
