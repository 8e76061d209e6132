"""Runs the child processes of the demo. They end with the demo, even if the demo is killed by SIGKILL.

Each child process runs under a guard. This is a process that runs this module: ``python -m … PROGRAM ARGUMENT…``. The
guard's standard input is a pipe from the demo. However the demo ends, the kernel then closes the pipe, and the guard
ends the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from kafka_quota_proxy.proxy.cli.demo.workload import DemoError

_START_TIMEOUT_S: Final = 20
_GRACE_S: Final = 3
_STOP_TIMEOUT_S: Final = _GRACE_S + 2
_TAIL_LINES: Final = 5


class Child:
    """A program that runs under a guard. The file ``log`` receives the program's standard error."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, *, log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log

    async def wait_for_line(self, ready: re.Pattern[str]) -> re.Match[str]:
        """Wait for a line of the program's standard output that matches ``ready``, and return the match.

        Raises:
            DemoError: The program ended, or printed no such line in time.
        """
        if self._process.stdout is None:
            raise AssertionError("started without a pipe")
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while line := await self._process.stdout.readline():
                    if match := ready.search(line.decode(errors="replace")):
                        return match
        except TimeoutError:
            raise DemoError(f"{self._name} was not ready within {_START_TIMEOUT_S} s{self._tail()}") from None
        await self.fail_when_ended()
        raise AssertionError("fail_when_ended returns only by raising")

    async def fail_when_ended(self) -> None:
        """Wait until the program ends, then raise ``DemoError``. The program should run as long as the demo does."""
        if self._process.stdout is not None:
            while await self._process.stdout.read(4_096):  # a full pipe would block the program
                pass
        status = await self._process.wait()
        raise DemoError(f"{self._name} ended with exit status {status}{self._tail()}")

    async def stop(self) -> None:
        """Make the guard stop the program, and wait for the guard to end. If that takes too long, kill the guard."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "".join(f"\n  {line}" for line in lines)


@contextlib.asynccontextmanager
async def running(name: str, arguments: Sequence[str], *, log: Path) -> AsyncIterator[Child]:
    """Run ``python ARGUMENTS…`` under a guard, and stop it at the end of the ``async with`` block."""
    python = (sys.executable, "-P")  # imports nothing from the working directory
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(*python, "-m", "kafka_quota_proxy.proxy.cli.demo.processes", *python, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # Ctrl-C at a terminal signals all processes of the foreground group. The children are not part of it, so
            # that the demo decides in which order they end.
            start_new_session=True,
        )
    child = Child(name, process, log=log)
    try:
        yield child
    finally:
        await child.stop()


def free_ports(count: int) -> list[int]:
    """Return ``count`` free ports on 127.0.0.1."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def guard(command: list[str]) -> int:
    """Run ``command`` until it ends. End it as soon as standard input is closed, which shows that the demo has ended.

    Return the exit status of the command, or 128 + n if signal n ended it.
    """
    # The program has a process group of its own, so that its children end, too. It has no standard input, because the
    # guard watches that.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0) as program:

        def stop_with_the_demo() -> None:
            while os.read(sys.stdin.fileno(), 4_096):
                pass
            program.terminate()
            try:
                program.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(program.pid, signal.SIGKILL)

        # The thread is a daemon, because os.read may block for ever after the program has ended by itself.
        threading.Thread(target=stop_with_the_demo, daemon=True).start()
        status = program.wait()
        return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
