"""Tests what ``rebalance`` reads of its command line, when it reads the cluster, and its exit status."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import datetime, time, timedelta
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.cli import rebalance as command
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ReadingError
from kafka_quota_proxy.proxy.cli.reassignment.progress import Move, Sample, Sizes, Waiting
from kafka_quota_proxy.proxy.cli.rebalance import add_arguments, deadline

MB = 1_000_000
_MOVE = Move("orders", 0, 4)


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["c.yaml", *arguments])


def test_times_have_units() -> None:
    assert _parsed("--by", "90m").by == timedelta(minutes=90)
    assert _parsed("--by", "6:05").by == time(6, 5)


@pytest.mark.parametrize("text", ["24:00", "0s", "90000h", "tomorrow"])
def test_invalid_times_are_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rebalance", "c.yaml", "--by", text])

    assert ended.value.code == 2
    assert "argument --by: " in capsys.readouterr().err


def test_a_time_of_day_is_the_next_one_and_a_duration_counts_from_now() -> None:
    now = datetime(2026, 3, 28, 22, 15).astimezone()

    assert deadline(time(23, 0), now) == now + timedelta(minutes=45)
    assert deadline(time(22, 15), now).date() == (now + timedelta(days=1)).date()
    assert deadline(time(6, 0), now).timetuple()[:5] == (2026, 3, 29, 6, 0)
    assert deadline(timedelta(hours=2), now) == now + timedelta(hours=2)


class Cluster:
    """Stands for a client of a cluster that moves 300 MB at 10 MB/s. Time passes while the command sleeps."""

    def __init__(self, *_: object) -> None:
        """Take the arguments of ``ClusterClient``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing."""


@pytest.fixture
def rebalance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    file = tmp_path / "proxy.yaml"
    file.write_text("listeners: [{name: a, bind: 'h:1', upstream: 'k:1'}]\n")
    now_ms = 0

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        now_ms += round(seconds * 1_000)

    def run(read: Callable[[int], Sample], *arguments: str) -> int:
        monkeypatch.setattr(command, "ClusterClient", Cluster)
        monkeypatch.setattr(command, "read_snapshot", lambda *_, **__: read(now_ms))
        monkeypatch.setattr("time.sleep", sleep)
        return main(["rebalance", str(file), *arguments])

    return run


def _moving(now_ms: int, *, incoming: int = 0) -> Sample:
    sizes = Sizes(
        leader=1, leader_bytes=300 * MB + incoming * now_ms // 1_000, follower_bytes=10 * MB * now_ms // 1_000
    )
    return Sample(time_ms=now_ms, moves={_MOVE: sizes})


def test_a_report_has_the_rate_of_twelve_seconds(
    rebalance: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rebalance(_moving, "--json", "--by", "1m") == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["state"], report["sampled_ms"], report["rate"]) == ("ends", 12_000, 10 * MB)
    assert report["time_left_ms"] == 18_000
    assert report["by"] == {"time_left_ms": 60_000, "rate": 3 * MB}

    assert rebalance(_moving) == 0
    _, heading, *_ = capsys.readouterr().out.splitlines()
    assert heading.startswith("topic ")


@pytest.mark.parametrize(
    ("read", "state"),
    [
        (lambda now_ms: _moving(now_ms, incoming=11 * MB), "never ends"),
        (lambda now_ms: Sample(time_ms=now_ms, moves={}, waiting=(Waiting(_MOVE, (4,), "away"),)), "waits"),
    ],
)
def test_the_status_is_1_if_it_never_ends_or_waits(
    rebalance: Callable[..., int], capsys: pytest.CaptureFixture[str], read: Callable[[int], Sample], state: str
) -> None:
    assert rebalance(read, "--json") == 1

    assert json.loads(capsys.readouterr().out)["state"] == state


def test_what_has_ended_is_reported_at_once(rebalance: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert rebalance(lambda now_ms: _moving(now_ms) if now_ms < 5_000 else Sample(time_ms=now_ms, moves={})) == 0
    assert capsys.readouterr().out == "no reassignment in progress\n"
    assert rebalance(lambda now_ms: Sample(time_ms=now_ms, moves={}), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["moves"]) == ("none", [])


def test_errors_and_ctrl_c_print_no_traceback(
    rebalance: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(_: int) -> NoReturn:
        raise KeyboardInterrupt

    def unreadable(_: int) -> NoReturn:
        raise ReadingError("orders-0 has no size")

    assert rebalance(interrupted) == 130
    assert capsys.readouterr().err == ""
    assert rebalance(unreadable) == 1
    assert capsys.readouterr().err == "kafka-quota-proxy rebalance: ReadingError: orders-0 has no size\n"
    file = tmp_path / "proxy.yaml"
    file.write_text("listeners: []\n")
    assert rebalance(_moving) == 2
    assert f"{file}:1: listeners" in capsys.readouterr().err
