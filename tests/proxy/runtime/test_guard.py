"""Tests that a guard ends its program when standard input is closed, and returns the program's exit status."""

import subprocess
import sys

import pytest

from tests.support.process_tree import is_alive

# This program prints its process id, and runs until it is stopped.
PROGRAM = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PROGRAM


@pytest.mark.parametrize("program", [PROGRAM, STUBBORN])
def test_a_guarded_program_ends_with_standard_input(program: str) -> None:
    guard = [sys.executable, "-m", "kafka_quota_proxy.proxy.runtime.guard", sys.executable, "-c", program]
    with subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline().split()[1])
        was_alive = is_alive(pid)

        process.stdin.close()
        process.wait(timeout=10)

        assert was_alive
        assert not is_alive(pid)


@pytest.mark.parametrize(("end", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_guard_returns_the_exit_status_of_its_program(end: str, status: int) -> None:
    guard = [sys.executable, "-m", "kafka_quota_proxy.proxy.runtime.guard", sys.executable, "-c", end]
    with subprocess.Popen(guard, stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=10) == status
