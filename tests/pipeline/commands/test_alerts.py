"""The command ``alerts`` on files of the usage log.

Records are late, out of order or duplicated, lines are malformed, and the command is stopped and resumed.
"""

import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.support import record, write_log

# A time in the past, because records from the future are treated differently.
BASE_MS = 1_767_225_600_000


def used(at_s: float, amount: int, **given: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a record under a limit of 100 bytes a second, which allows 1,000 bytes in a window of these tests."""
    return record(start_ms=BASE_MS + int(at_s * 1_000), limit=100.0, amount=amount, **given)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    places = {"--usage": "usage", "--out": "alerts", "--checkpoint": "checkpoint"}
    named = [word for name, place in places.items() for word in (name, str(tmp_path / place))]
    (tmp_path / "usage").mkdir()
    return [
        "alerts",
        *named,
        "--window",
        "10s",
        "--late",
        "20s",
        "--every",
        "10ms",
        "--conf",
        "spark.sql.shuffle.partitions=1",
    ]


def found(tmp_path: Path) -> list[tuple[int, str, str, int]]:
    """Return the second, user, level and amount of each alert."""
    every = [
        json.loads(line)
        for path in (tmp_path / "alerts").glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(((one["start_ms"] - BASE_MS) // 1_000, one["user"], one["level"], one["amount"]) for one in every)


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_alerts_come_once_over_runs_and_what_is_left_out_is_counted(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = tmp_path / "usage"
    write_log(usage / "1.jsonl", [used(3, 900), used(12, 1_001), used(1, 50, user="bob", throttled_requests=1)])
    (usage / "bad.jsonl").write_text("bad\n", encoding="utf-8")

    # The watermark is just below 0 s, so no window is closed yet.
    assert main([*words, "--once"]) == 0
    assert found(tmp_path) == []
    (quarantined,) = (tmp_path / "checkpoint" / "quarantine").glob("*.jsonl")
    assert json.loads(quarantined.read_text(encoding="utf-8")) == {
        "source": str(usage / "bad.jsonl"),
        "fault": "is not a JSON object; a record is one object on one line",
        "text": "bad",
    }
    # A record of 26 s before the newest one is not late, since its window is only 20 s older. A duplicate counts once.
    # The watermark moves to just below 10 s, and then to just below 20 s.
    write_log(usage / "2.jsonl", [used(29, 1), used(3, 900), used(9.5, 50)])
    assert main([*words, "--once"]) == 0
    assert found(tmp_path) == []
    write_log(usage / "3.jsonl", [used(35, 1)])
    assert main([*words, "--once"]) == 0
    first = found(tmp_path)
    capsys.readouterr()
    # The window from 0 s is closed. A record from a clock that is years ahead closes no window.
    ahead = used(0, 1, proxy="p9") | {"start_ms": 4_000_000_000_000}
    write_log(usage / "4.jsonl", [used(5, 5_000), used(52, 1_001), ahead])
    assert main([*words, "--once"]) == 0

    assert first == [(0, "alice", "near", 950), (0, "bob", "over", 50)]
    assert found(tmp_path) == [*first, (10, "alice", "over", 1_001)]
    said = capsys.readouterr()
    late = "1 too late (a longer --late keeps more)"
    assert f"ended: 3 lines, 1 alerts; left out: {late}, 1 from the future (look at the clock of p9)" in said.err
    assert said.out == f"{tmp_path}/alerts\n"


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_alerts_follows_the_log_until_sigterm(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "usage" / "1.jsonl", [used(0, 2_000), used(60, 1)])
    ended = threading.Event()

    def tell() -> None:
        while not found(tmp_path) and not ended.is_set():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    teller = threading.Thread(target=tell)
    before = signal.getsignal(signal.SIGTERM)
    teller.start()
    try:
        status = main(words)
    finally:
        ended.set()
        teller.join()

    assert status == 0
    assert found(tmp_path) == [(0, "alice", "over", 2_000)]
    # The signal may end the command before Spark reports the batch with the alert.
    assert "ended: 2 lines" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_another_window_needs_another_checkpoint(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--once"]) == 0

    assert main([*words, "--once", "--window", "20s"]) == 2

    assert "belongs to --window 10000ms" in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
def test_a_log_that_cannot_be_followed_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "usage").rmdir()

    assert main(words) == 2
    assert main([*words, "--usage", "kafka://127.0.0.1:1/usage"]) == 2

    said = capsys.readouterr().err
    assert "there is no such file or directory" in said
    assert "spark.jars.packages" in said
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("argument", ["--out", "--checkpoint"])
def test_output_below_the_log_is_refused(
    words: list[str], argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, argument, str(tmp_path / "usage" / "own")]) == 2

    assert f"{argument} {tmp_path}/usage/own: is inside --usage" in capsys.readouterr().err
    assert list((tmp_path / "usage").iterdir()) == []


@pytest.mark.pipeline
@pytest.mark.usefixtures("spark")
def test_without_a_destination_alerts_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "usage" / "1.jsonl", [used(12, 1_001), used(3, 900), used(0, 1, user="bob"), used(60, 1)])
    words = ["alerts", "--usage", str(tmp_path / "usage"), "--window", "10s", "--late", "20s", "--once"]
    words += ["--conf", "spark.sql.shuffle.partitions=1"]

    status = main(words)
    printed = capsys.readouterr().out
    with monkeypatch.context() as patched, nobody_reads() as closed:
        patched.setattr(sys, "stdout", closed)
        again = main(words)

    assert (status, again) == (0, 141)  # 141 is the exit status that a shell reports for SIGPIPE
    found = [json.loads(line) for line in printed.splitlines()]
    assert [(one["user"], one["level"], one["amount"]) for one in found] == [
        ("alice", "near", 900),
        ("alice", "over", 1_001),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["usage"]


@pytest.mark.pipeline
@pytest.mark.usefixtures("spark")
def test_records_that_wait_in_files_for_five_minutes_are_not_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Two proxies write a record a second. Their files are complete after five minutes, at different times.
    ends_s = {150: "p2", 300: "p1", 450: "p2", 600: "p1", 750: "p2", 900: "p1"}
    words = ["alerts", "--usage", str(tmp_path / "usage"), "--once", "--conf", "spark.sql.shuffle.partitions=1"]
    words += ["--out", str(tmp_path / "alerts"), "--checkpoint", str(tmp_path / "checkpoint")]
    (tmp_path / "usage").mkdir()

    for end_s, proxy in ends_s.items():
        log = [used(at_s, 1, proxy=proxy, interval_ms=1_000) for at_s in range(max(0, end_s - 300), end_s)]
        write_log(tmp_path / "usage" / f"{end_s}.jsonl", log)
        assert main(words) == 0
    assert "late" not in capsys.readouterr().err

    # A third proxy is five minutes behind. Two of its minutes are older than the newest minute by more than seven.
    write_log(tmp_path / "usage" / "p3.jsonl", [used(at_s, 1, proxy="p3") for at_s in range(300, 600)])
    assert main(words) == 0
    assert "left out: 120 too late (a longer --late keeps more)" in capsys.readouterr().err


@contextmanager
def nobody_reads() -> Iterator[io.TextIOWrapper]:
    """Yield a stdout that is a closed pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    # It has no buffer, because closing it would try to flush the rest of a buffer and fail.
    with io.TextIOWrapper(open(writing, "wb", buffering=0), write_through=True) as stdout:  # noqa: PTH123
        yield stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "kafka://h:1/t"], "alerts --to needs --checkpoint DIR"),
        (["--out", "x"], "alerts --out needs --checkpoint DIR"),
        (["--checkpoint", "c"], "--checkpoint goes with --to or --out"),
    ],
)
def test_a_destination_and_a_checkpoint_need_each_other(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["alerts", "--usage", "u", *words]) == 2

    assert said in capsys.readouterr().err


def test_two_destinations_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["alerts", "--usage", "u", "--checkpoint", "c", "--out", "x", "--to", "kafka://h:1/t"])

    assert "not allowed with" in capsys.readouterr().err
