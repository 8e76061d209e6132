"""Tests reports that are printed as lines, printed as JSON objects, or drawn over the last one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question
from kafka_quota_proxy.proxy.cli.reassignment.display import JsonDisplay, LiveDisplay, PlainDisplay
from kafka_quota_proxy.proxy.cli.reassignment.model import Move, Report, Sample, Sizes
from kafka_quota_proxy.proxy.cli.reassignment.progress import Progress

_NOW = datetime(2026, 3, 28, 22, 15, 0, tzinfo=UTC)


def _report(topics: int = 1) -> Report:
    progress = Progress()
    sizes = Sizes(leader=1, leader_bytes=100, follower_bytes=50)
    moves = {Move(f"topic-{index}", 0, 4): sizes for index in range(topics)}
    progress.add(Sample(time_ms=0, moves=moves), [])
    return progress.report()


def test_lines_begin_with_the_time_and_have_an_empty_one_between_reports() -> None:
    out, errors = StringIO(), StringIO()
    display = PlainDisplay(out, errors)

    for _ in range(2):
        display.show(_report(), now=_NOW, question=Question(), notes=["a note"])
    display.show_error("trouble")
    display.end("done", "done", now=_NOW)

    blocks = out.getvalue().split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == ["2026-03-28 22:15:00"] * 2
    assert blocks[0].endswith("a note")
    assert out.getvalue().endswith("a note\ndone\n")
    assert errors.getvalue() == "trouble\n"
    assert "\x1b" not in out.getvalue()


def test_each_report_is_an_object_in_a_line() -> None:
    out, errors = StringIO(), StringIO()
    display = JsonDisplay(out, errors)

    display.show(_report(), now=_NOW, question=Question(), notes=())
    display.show_error("trouble")
    display.end("done", "done: 1 replica", now=_NOW)

    report, end = map(json.loads, out.getvalue().splitlines())
    assert (report["time_ms"], report["left_bytes"]) == (1_774_736_100_000, 50)
    assert end == {"time_ms": 1_774_736_100_000, "state": "done", "moves": [], "notes": ["done: 1 replica"]}
    assert errors.getvalue() == "trouble\n"


def test_in_a_terminal_the_report_is_drawn_over() -> None:
    out = StringIO()
    display = LiveDisplay(out, out)

    display.show(_report(), now=_NOW, question=Question(), notes=())
    first = out.getvalue()
    display.show(_report(), now=_NOW, question=Question(), notes=())
    display.show_error("trouble")
    display.end("done", "done", now=_NOW)

    assert first.startswith("[████████████░░░░░░░░░░░░] 50.0 %\x1b[K\n")
    assert first.count("\n") == 4
    assert out.getvalue() == f"{first}\x1b[4A\r{first}\x1b[4A\rtrouble\x1b[K\n\x1b[Jdone\n"


def test_an_error_of_several_lines_is_drawn_in_one() -> None:
    out = StringIO()
    display = LiveDisplay(out, out)

    display.show_error("no answer:\n  away")
    display.show_error("again")

    assert out.getvalue() == "no answer: away\x1b[K\n\x1b[J\x1b[1A\ragain\x1b[K\n\x1b[J"


def test_lines_beyond_the_terminal_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "10")
    out = StringIO()

    display = LiveDisplay(out, out)
    display.show(_report(topics=40), now=_NOW, question=Question(), notes=())
    first = out.getvalue()
    display.show(_report(topics=40), now=_NOW, question=Question(), notes=())

    assert out.getvalue() == f"{first}\x1b[9A\r{first}"
    *drawn, _ = first.split("\n")
    assert len(drawn) == 9
    assert all(len(line.removesuffix("\x1b[K")) <= 30 for line in drawn)
    assert drawn[-1] == "… 35 more lines\x1b[K"
