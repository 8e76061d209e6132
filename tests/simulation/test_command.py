"""The command: how much it runs, what it prints of a finding, what it goes on with and records, its exit status."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.simulation import totals
from tests.simulation.command import main
from tests.simulation.made_up import BREAKS, FAULT_KINDS, SIMULATION, draw, run_seed
from tests.simulation.totals import CannotRecordError, Totals

# A shell without job control lets what it runs in the background ignore SIGINT.
_PROGRAM: Final = """
import signal, sys
from tests.simulation import command, made_up
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(command.main(made_up.SIMULATION, sys.argv[1:]))
"""
Output = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return main(SIMULATION, arguments)


def run_seeds(*arguments: object) -> int:
    return run("--jobs", "1", "--shrink-seconds", "0", *map(str, arguments))


def test_seeds_are_run_and_summed(capsys: Output) -> None:
    assert run("--seeds", "10", "--from", "1", "--jobs", "2") == 0
    output = capsys.readouterr().out
    for text in ("seeds from 1, jobs: 2\n", "10 seeds, 10,000 steps", "never fired: never", "findings: 0\n"):
        assert text in output


def test_only_seeds_of_a_theme_are_run(capsys: Output) -> None:
    assert run_seeds("--theme", "even", "--seeds", 3, "--from", 18) == 0
    assert "3 seeds, 3,000 steps" in capsys.readouterr().out
    assert run_seeds("--theme", "odd", "--seeds", 3, "--from", BREAKS) == 1


def test_finding_is_told_shrunk_and_replayed(capsys: Output) -> None:
    assert run("--from", "10", "--jobs", "1") == 1
    output = capsys.readouterr().out
    for text in (
        "BROKEN: made-up promise\n  it was broken\n",
        f"replay: python -m tests.simulation --seed {BREAKS}\n",
        "the last 40 lines of its story (10 before):\n  line 10\n",
        "  producer-1: producer\n  at 2.000 s stall-2: stall\n",
    ):
        assert text in output
    file = next(line.split()[-1] for line in output.splitlines() if "--plan" in line)
    assert run("--plan", file) == 1
    assert "BROKEN: made-up promise" in capsys.readouterr().out
    Path(file).unlink()


def test_replay_prints_story_and_digest(capsys: Output) -> None:
    assert run("--seed", "3") == 0
    output = capsys.readouterr().out
    assert "line 0\n" in output
    assert f"digest {draw(3).random_of('digest').randbytes(8).hex()}\n" in output


def test_interrupt_ends_a_run_with_its_sums() -> None:
    command = [sys.executable, "-c", _PROGRAM, "--from", "100", "--jobs", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "seeds from 100, jobs: 2\n"
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert rest.startswith("stopped\n"), rest
    assert "findings: 0" in rest
    assert "Traceback" not in rest


# -- a run in parts --


def test_run_goes_on_after_the_last_seed_unless_the_proxy_is_another(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.json"
    assert run_seeds("--log", log, "--from", 18, "--seeds", 3) == 0
    assert run_seeds("--log", log, "--from", 18, "--seeds", 5) == 0
    output = capsys.readouterr().out
    assert f"run 2 of {log}: 0 seeds again, then from 21\n" in output
    assert "5 seeds, 5,000 steps" in output
    assert Totals(FAULT_KINDS, log).next_seed == 23
    monkeypatch.setattr(totals, "digest_of_proxy", lambda: "another")
    assert run_seeds("--log", log, "--from", 18, "--seeds", 3) == 0
    output = capsys.readouterr().out
    assert f"{log} is of another proxy, and begins anew\n" in output
    assert "3 seeds, 3,000 steps" in output


def test_seed_that_had_failed_or_was_not_at_its_end_is_run_again(tmp_path: Path) -> None:
    log = tmp_path / "run.json"
    assert run_seeds("--log", log, "--from", BREAKS - 1, "--seeds", 2) == 1
    assert run_seeds("--log", log, "--seeds", 1) == 0, "one has passed"
    assert run_seeds("--log", log, "--seeds", 2) == 1, "the other fails as before"
    later = Totals(FAULT_KINDS, log)
    assert (later.again, later.seeds, later.failed) == ([BREAKS], 1, [])
    later.add(run_seed(BREAKS)._replace(violation=None))
    later.given(18)
    later.write(1.0)
    later = Totals(FAULT_KINDS, log)
    assert (later.again, later.next_seed, later.runs, later.seconds, later.seeds) == ([18, BREAKS], 19, 5, 1.0, 2)


# -- the record --


def test_record_has_each_kind_of_fault_and_the_command() -> None:
    sums = Totals(FAULT_KINDS)
    sums.add(run_seed(1))
    with pytest.raises(CannotRecordError, match="never fired: never"):
        sums.recorded("", 1.0)
    sums.faults["never"] += 1
    text = sums.recorded("python -m tests.simulation --from 1", seconds=2)
    for row in (
        "command | `python -m tests.simulation --from 1`",
        "steps | 1,000",
        "real time | 0.00 h (500 steps/s)",
        "reset | a connection is reset | 3",
    ):
        assert f"| {row} |" in text
    sums.add(run_seed(BREAKS))
    with pytest.raises(CannotRecordError, match="findings: 1"):
        sums.recorded("", 1.0)
