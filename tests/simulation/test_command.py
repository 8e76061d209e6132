"""The command: how much it runs, what it prints of a finding, and its exit status."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.simulation import kept, record
from tests.simulation.command import main
from tests.simulation.made_up import BREAKS, SIMULATION, draw

# A shell without job control lets what it runs in the background ignore SIGINT.
_PROGRAM: Final = """
import signal, sys
from tests.simulation import command, made_up
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(command.main(made_up.SIMULATION, sys.argv[1:]))
"""


def run(*arguments: str) -> int:
    return main(SIMULATION, arguments)


def test_seeds_are_run_and_summed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seeds", "10", "--from", "1", "--jobs", "2", "--json") == 0
    output = capsys.readouterr().out
    assert "seeds from 1, 2 jobs\n" in output
    assert "10 seeds, 10,000 steps" in output
    assert "never fired: never" in output
    assert json.loads(output.splitlines()[-1])["findings"] == []


def test_steps_bound_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--steps", "2e4", "--from", "100", "--jobs", "1", "--json") == 0
    assert 20_000 <= json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] <= 22_000


def test_only_seeds_of_a_theme_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--theme", "even", "--seeds", "3", "--from", "18", "--jobs", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["seeds"] == 3

    assert run("--theme", "odd", "--seeds", "3", "--from", str(BREAKS), "--jobs", "1", "--shrink-seconds", "0") == 1


def test_theme_that_is_not_known_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--theme", "no such theme")
    assert "'even', 'odd'" in capsys.readouterr().err


def test_finding_is_told_shrunk_and_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", "10", "--jobs", "1") == 1
    output = capsys.readouterr().out
    assert "BROKEN: made-up promise\n  it was broken\n" in output
    assert f"replay: python -m tests.simulation --seed {BREAKS}\n" in output
    assert "the last 40 lines of its story (10 before):\n  line 10\n" in output
    assert "    producer-1: producer\n    at 2.000 s stall-2: stall\n" in output
    file = next(line.split()[-1] for line in output.splitlines() if "--plan" in line)
    assert run("--plan", file) == 1
    assert "BROKEN: made-up promise" in capsys.readouterr().out
    Path(file).unlink()


def test_more_findings_are_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--from", "10", "--seeds", "5", "--jobs", "1", "--findings", "5", "--shrink-seconds", "0", "--json")
    assert run(*arguments) == 1
    findings = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    assert [(one["seed"], one["check"]) for one in findings] == [
        (13, "made-up promise"),
        (14, "no unexpected error"),
    ]


def test_replay_prints_story_and_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "3") == 0
    output = capsys.readouterr().out
    assert "line 0\n" in output
    assert f"digest {draw(3).random_of('digest').randbytes(8).hex()}\n" in output


def test_run_in_which_a_fault_never_fired_is_not_recorded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "RECORD", tmp_path / "RECORD.md")
    assert run("--seeds", "2", "--from", "1", "--jobs", "1", "--record") == 2
    assert "not recorded: these kinds of faults never fired: never" in capsys.readouterr().out
    assert not record.RECORD.exists()


def test_seed_is_kept_with_its_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept.write, "__defaults__", (tmp_path,))
    assert run("--keep", "13", "a promise was broken") == 0
    assert kept.read(tmp_path / "a_promise_was_broken.json") == kept.Kept(13, draw(13), "a promise was broken")
    assert "a_promise_was_broken.json" in capsys.readouterr().out


def test_kinds_of_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    assert capsys.readouterr().out.splitlines()[1] == "reset: a connection is reset"


def test_interrupt_ends_a_run_with_its_sums() -> None:
    command = [sys.executable, "-c", _PROGRAM, "--from", "100", "--jobs", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "seeds from 100, 2 jobs\n"
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert rest.startswith("stopped\n"), rest
    assert "no finding" in rest
    assert "Traceback" not in rest
