"""Runs the child processes of the demo. They end with the demo, even if the demo is killed by SIGKILL.

Each child process runs under a guard, a process of the module ``guard``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

from kafka_quota_proxy.proxy.cli.demo.workload import DemoError

_START_TIMEOUT_S: Final = 20
_STOP_TIMEOUT_S: Final = 5  # more than a guard gives its program
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
        return await self.fail_when_ended()

    async def fail_when_ended(self) -> NoReturn:
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
            *(*python, "-m", "kafka_quota_proxy.proxy.cli.demo.guard", *python, *arguments),
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
