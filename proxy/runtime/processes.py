"""Runs the child processes of the demo and of ``ThrottlingProxy``. They end with this process, even if it is killed.

Each child process runs under a guard, a process of the module ``guard``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Final

_START_TIMEOUT_S: Final = 20
_STOP_TIMEOUT_S: Final = 6  # more than a guard gives its program
_TAIL_LINES: Final = 8


class ChildError(Exception):
    """Raised if a child process has ended, or was not ready in time. The message has the end of its log."""


class Child:
    """A program that runs under a guard. The file ``log`` receives the program's standard error."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.log = log
        self._name = name
        self._process = process
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for_line(self, ready: re.Pattern[str]) -> re.Match[str]:
        """Wait for a line of the program's standard output that matches ``ready``, and return the match.

        Raises:
            ChildError: The program ended, or printed no such line in time.
        """
        while True:
            try:
                line = self._lines.get(timeout=_START_TIMEOUT_S)
            except Empty:
                raise ChildError(f"{self._name} was not ready within {_START_TIMEOUT_S} s{self._tail()}") from None
            if not line:
                self._process.wait()
                self.check()
            if match := ready.search(line):
                return match

    def check(self) -> None:
        """Raise ``ChildError`` if the program has ended."""
        status = self._process.poll()
        if status is not None:
            raise ChildError(f"{self._name} ended with exit status {status}{self._tail()}")

    def stop(self) -> None:
        """Make the guard stop the program, and wait for the guard to end. If that takes too long, kill the guard."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_STOP_TIMEOUT_S)

    def _read(self) -> None:
        """Read the output until it ends, because a full pipe would block the program."""
        if self._process.stdout is not None:
            with self._process.stdout as lines:
                for line in lines:
                    self._lines.put(line)
        self._lines.put("")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "".join(f"\n  {line}" for line in lines)


@contextmanager
def running(name: str, arguments: Sequence[str], *, log: Path) -> Iterator[Child]:
    """Run ``python ARGUMENTS…`` under a guard, and stop it at the end of the ``with`` block."""
    python = (sys.executable, "-P")  # imports nothing from the working directory
    with log.open("wb") as stderr:
        process = subprocess.Popen(  # noqa: S603 - of our own
            [*python, "-m", "kafka_quota_proxy.proxy.runtime.guard", *python, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            # Ctrl-C at a terminal signals all processes of the foreground group. The children are not part of it, so
            # that this process decides in which order they end.
            start_new_session=True,
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        child.stop()
