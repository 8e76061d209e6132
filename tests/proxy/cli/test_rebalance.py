"""Tests how ``rebalance`` reads its command line."""

from __future__ import annotations

import argparse
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.cli import rebalance as command
from kafka_quota_proxy.proxy.cli.rebalance import add_arguments, deadline


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["c.yaml", *arguments])


def test_times_have_units() -> None:
    args = _parsed("--by", "90m", "--every", "1m")

    assert args.every == 60_000
    assert args.by == (timedelta(minutes=90), "within 90m")
    assert _parsed("--by", "6:05").by == (time(6, 5), "by 6:05")
    assert _parsed().every == 12_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--by", "24:00"],
        ["--by", "0s"],
        ["--by", "90000h"],
        ["--by", "tomorrow"],
        ["--every", "1s"],
        ["--every", "10"],
    ],
)
def test_invalid_arguments_are_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rebalance", "c.yaml", *arguments])

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"argument {arguments[0]}: " in said


def test_ctrl_c_before_an_answer_prints_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "ClusterClient", interrupted)
    file = tmp_path / "f.yaml"
    file.write_text("listeners: [{name: a, bind: 'h:1', upstream: 'k:1'}]\n")

    assert main(["rebalance", str(file)]) == 1
    assert capsys.readouterr().err == ""
    file.write_text("listeners: []\n")
    assert main(["rebalance", str(file)]) == 2
    assert f"{file}:1: listeners" in capsys.readouterr().err


def test_a_time_of_day_is_the_next_one_and_a_duration_counts_from_now() -> None:
    now = datetime(2026, 3, 28, 22, 15).astimezone()

    assert deadline(time(23, 0), now) == now + timedelta(minutes=45)
    assert deadline(time(22, 15), now).date() == (now + timedelta(days=1)).date()
    assert deadline(time(6, 0), now).timetuple()[:5] == (2026, 3, 29, 6, 0)
    assert deadline(timedelta(hours=2), now) == now + timedelta(hours=2)
