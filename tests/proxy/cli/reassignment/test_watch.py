"""Tests when a watch reads, reports and ends, with a simulated clock and cluster."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.progress import Move, Sample, Sizes, Waiting
from kafka_quota_proxy.proxy.cli.reassignment.watch import Clock, Plan, ReadingError, Watcher

MB = 1_000_000
_MOVE = Move("orders", 0, 4)
_START = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
_START_MS = round(_START.timestamp() * 1_000)
_ONCE = Plan(every_ms=12_000, is_json=True)
_WATCH = Plan(every_ms=5_000, continues=True, is_json=True)


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


@dataclass
class Cluster:
    """A cluster that moves 300 MB at 10 MB/s while data comes in. Reading the cluster takes 20 ms."""

    clock: FakeClock
    incoming: float = 0
    away: Callable[[int], bool] = lambda _: False
    waiting: tuple[Waiting, ...] = ()
    is_moving: bool = True
    reads: int = 0

    def read(self) -> Sample:
        self.reads += 1
        self.clock.ms += 20
        at_ms = self.clock.ms - 1_000_000
        if self.away(at_ms):
            raise ReadingError("orders-0 has no leader")
        sizes = Sizes(
            leader=1,
            leader_bytes=300 * MB + round(self.incoming * at_ms / 1_000),
            follower_bytes=10 * MB * at_ms // 1_000,
        )
        is_moving = self.is_moving and sizes.left_bytes > 0
        return Sample(time_ms=self.clock.ms, moves={_MOVE: sizes} if is_moving else {}, waiting=self.waiting)


@dataclass
class Followed:
    """What a watch has written."""

    status: int
    text: str
    errors: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def times_s(self) -> list[int]:
        return [(one["time_ms"] - _START_MS) // 1_000 for one in self.objects if one["moves"]]


def _follow(plan: Plan, cluster: Cluster) -> Followed:
    out, errors = io.StringIO(), io.StringIO()
    watcher = Watcher(cluster.read, failures=(OSError,), clock=cluster.clock, plan=plan, out=out, errors=errors)
    return Followed(watcher.run(), out.getvalue(), errors.getvalue())


def test_once_reports_when_there_is_a_rate_and_ends() -> None:
    cluster = Cluster(FakeClock())

    followed = _follow(_ONCE, cluster)

    (report,) = followed.objects
    assert (followed.status, report["state"]) == (0, "ends")
    assert followed.times_s == [12]
    assert report["ends_at_ms"] - _START_MS == pytest.approx(30_000, rel=0.01)
    assert cluster.reads == 25  # it is read twice a second


@pytest.mark.parametrize(
    ("incoming", "waiting", "state"),
    [(11 * MB, (), "never ends"), (0, (Waiting(_MOVE, (4,), "away"),), "waits")],
)
def test_the_status_is_1_if_it_never_ends_or_waits(incoming: int, waiting: tuple[Waiting, ...], state: str) -> None:
    """If all of it waits, nothing is measured."""
    cluster = Cluster(FakeClock(), incoming=incoming, is_moving=not waiting, waiting=waiting)

    followed = _follow(_ONCE, cluster)

    (report,) = followed.objects
    assert (followed.status, report["state"], len(report["moves"])) == (1, state, 0 if waiting else 1)


def test_a_watch_lasts_to_the_end() -> None:
    followed = _follow(_WATCH, Cluster(FakeClock()))

    assert followed.times_s == [5, 10, 15, 20, 25]
    assert (followed.status, followed.objects[-1]["state"]) == (0, "ended")


def test_reports_in_text_have_the_time_and_a_gap_between_them() -> None:
    followed = _follow(replace(_WATCH, every_ms=20_000, is_json=False), Cluster(FakeClock()))

    first, last = followed.text.split("\n\n")
    assert first.startswith("2026-03-28 22:00:20\ntopic ")
    assert last == "no reassignment in progress any more\n"


def test_no_moves_are_reported_at_once() -> None:
    clock = FakeClock()

    followed = _follow(replace(_ONCE, is_json=False), Cluster(clock, is_moving=False))

    assert (followed.status, followed.text, clock.ms) == (0, "no reassignment in progress\n", 1_000_020)


def test_missed_reports_are_not_repeated_and_an_unreachable_cluster_is_asked_again() -> None:
    cluster = Cluster(FakeClock(), incoming=5 * MB, away=lambda at_ms: 12_000 < at_ms < 28_000)

    followed = _follow(_WATCH, cluster)

    assert followed.times_s[:4] == [5, 10, 28, 30]
    assert followed.errors.startswith("the cluster does not answer; trying again: orders-0 has no leader\n")


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


def test_a_deadline_comes_nearer_and_is_dropped_when_it_has_passed() -> None:
    plan = replace(_WATCH, by=_START + timedelta(seconds=18), by_words="by 22:00")

    followed = _follow(plan, Cluster(FakeClock()))

    reports = [one for one in followed.objects if one["moves"]]
    assert ["by" in one for one in reports] == [True, True, True, False, False]
    assert reports[1]["by"]["time_left_ms"] == pytest.approx(8_000, abs=600)
