"""Tests that the programs of the demo end with it, and that their early end is an error."""

import re
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.runtime.processes import ChildError, running
from tests.support.process_tree import is_alive

# This program prints its process id, and runs until it is stopped.
PROGRAM = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def test_a_program_is_stopped_at_the_end_of_its_block(tmp_path: Path) -> None:
    with running("sleeper", ("-c", PROGRAM), log=tmp_path / "log") as child:
        pid = int(child.wait_for_line(re.compile(r"pid (\d+)"))[1])
        assert is_alive(pid)

    assert not is_alive(pid)


def test_an_early_end_is_an_error_with_the_last_lines_of_the_log(tmp_path: Path) -> None:
    program = "import sys; sys.exit('no room left')"
    fault = pytest.raises(ChildError, match=r"the broker ended with exit status 1\n  no room left")
    with running("the broker", ("-c", program), log=tmp_path / "log") as child, fault:
        child.wait_for_line(re.compile("ready"))


def test_a_later_end_is_an_error(tmp_path: Path) -> None:
    program = "print('ready', flush=True); raise SystemExit(3)"
    with running("the proxy", ("-c", program), log=tmp_path / "log") as child:
        child.wait_for_line(re.compile("ready"))

        with pytest.raises(ChildError, match="the proxy ended with exit status 3"):
            child.wait_for_line(re.compile("never"))
        with pytest.raises(ChildError, match="the proxy ended with exit status 3"):
            child.check()
