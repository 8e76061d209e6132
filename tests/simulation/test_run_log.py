"""A long run in parts: the sums of all, and the seeds that are run again."""

from pathlib import Path

import pytest

from tests.simulation import run_log
from tests.simulation.command import main
from tests.simulation.made_up import BREAKS, FAULT_KINDS, SIMULATION, run_seed
from tests.simulation.progress import Totals
from tests.simulation.record import recorded
from tests.simulation.run_log import RunLog


def run(log: Path, *arguments: str) -> int:
    return main(SIMULATION, ("--log", str(log), "--jobs", "1", "--shrink-seconds", "0", *arguments))


def test_run_goes_on_after_the_last_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.json"
    assert run(log, "--from", "18", "--seeds", "3") == 0
    assert run(log, "--from", "18", "--seeds", "5") == 0
    output = capsys.readouterr().out
    assert f"run 2 of {log}: 0 seeds again, then from 21\n" in output
    assert "5 seeds, 5,000 steps" in output
    assert RunLog(log, Totals(FAULT_KINDS)).next_seed == 23


def test_seed_that_had_failed_is_run_again_and_counts_when_it_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.json"
    assert run(log, "--from", str(BREAKS - 1), "--seeds", "2") == 1
    assert run(log, "--seeds", "1") == 0, "one has passed"
    assert run(log, "--seeds", "2") == 1, "the other fails as before"
    again = RunLog(log, totals := Totals(FAULT_KINDS))
    assert (again.again, totals.seeds, totals.findings) == ([BREAKS], 1, 0)
    again.add(run_seed(BREAKS)._replace(violation=None))
    assert totals.seeds == 2


def test_seed_that_was_not_at_its_end_is_run_again(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.json", Totals(FAULT_KINDS))
    log.given(18)
    log.given(19)
    log.add(run_seed(19))
    log.write(1.0)
    later = RunLog(tmp_path / "run.json", totals := Totals(FAULT_KINDS))
    assert (later.again, later.next_seed, later.runs, later.seconds, totals.seeds) == ([18], 20, 2, 1.0, 1)


def test_log_of_another_proxy_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.json"
    assert run(log, "--from", "18", "--seeds", "3") == 0
    monkeypatch.setattr(run_log, "digest_of_proxy", lambda: "another")
    assert run(log, "--from", "18", "--seeds", "3") == 0
    output = capsys.readouterr().out
    assert f"{log} is of another proxy, and begins anew\n" in output
    assert output.count("3 seeds, 3,000 steps") == 2


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '{"seeds": 1}'])
def test_file_that_is_no_log_is_an_error(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.json"
    log.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit):
        run(log, "--seeds", "1")
    assert f"{log} is not the log of a run; name another file" in capsys.readouterr().err
    assert log.read_text(encoding="utf-8") == text


def test_digest_is_of_the_proxy_and_not_of_the_tests() -> None:
    assert run_log.digest_of_proxy() == run_log.digest_of_proxy()
    assert len(run_log.digest_of_proxy()) == 16


def test_record_says_how_many_runs_there_were() -> None:
    totals = Totals(())
    totals.seeds = 1
    assert "| runs | 3, all of the same proxy." in recorded(totals, {}, command="x", seconds=1.0, runs=3)
    assert "| runs |" not in recorded(totals, {}, command="x", seconds=1.0)
