"""Starts programs for the tests, each in its own process group. No program outlives the test run.

An ``atexit`` hook ends them after an interrupt, and the kernel's parent-death signal if the run is killed. The names of
scratch directories contain the run's process id, so that a later run can remove those of a killed run.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

_SCRATCH_PREFIX: Final = "kafka-quota-proxy-e2e-"
# Linux takes the ports of outgoing connections from 32768 on. Such a connection could take a server's port during a
# restart, or connect to itself.
_PORTS: Final = range(15_000, 32_000)
_PR_SET_PDEATHSIG: Final = 1

_running: set[Process] = set()
_given_out: set[int] = set()


class HarnessError(Exception):
    """Something that the tests need is missing or did not start. The message names the remedy."""


def free_port() -> int:
    """Return an unused port of 127.0.0.1 that this run has not returned before."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - two runs side by side should rarely pick the same
        if port in _given_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given_out.add(port)
                return port


def free_ports(count: int) -> int:
    """Return the first of ``count`` consecutive unused ports."""
    while True:
        first = random.choice(_PORTS)  # noqa: S311
        wanted = range(first, first + count)
        if not _given_out.isdisjoint(wanted):
            continue
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in wanted:
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
            _given_out.update(wanted)
            return first


def allow_open_files(count: int) -> int:
    """Raise the limit of open files, which started programs inherit, and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limits in ((count, max(hard, count)), (hard, hard)):
        if soft < count:
            with contextlib.suppress(ValueError):  # the machine does not allow that many
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def wait_until(is_true: Callable[[], bool], *, timeout_s: float, what: str, poll_s: float = 0.05) -> None:
    """Wait for a condition. Raises HarnessError if it does not become true in time."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not within {timeout_s:g} s")
        time.sleep(poll_s)


def scratch_directory(name: str) -> Path:
    """Create an empty directory, which is removed at the end of this run or by a later run."""
    return Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-{name}-"))


def remove_scratch_of_dead_runs() -> None:
    """Remove the scratch directories of runs that no longer exist."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_SCRATCH_PREFIX}*"):
        owner = directory.name.removeprefix(_SCRATCH_PREFIX).split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(directory, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A running program. Its output is appended to a file.

    Start it from the main thread, because the parent-death signal is sent when the *thread* that started it ends.
    """

    def __init__(
        self, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        """Start ``command``. Standard output and standard error are appended to ``log``."""
        self.command = [str(part) for part in command]
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        _running.add(self)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """Return the exit status: negative after a signal, None while the program runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait until the program ends by itself, and return its exit status. Raises HarnessError if it does not."""
        wait_until(lambda: not self.is_running, timeout_s=timeout_s, what=f"{self.command[0]} ends")
        return self._popen.wait()

    def output(self) -> str:
        """Return all that the program has written so far."""
        return self.log.read_text(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the output, for an error message."""
        return "\n".join(self.output().splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program, but not to its children."""
        self._popen.send_signal(number)

    def stop(self, *, timeout_s: float = 30) -> int:
        """End the program with SIGTERM, or with SIGKILL after ``timeout_s``, and return its exit status."""
        if self.is_running:
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout_s)
        return self.kill()

    def kill(self) -> int:
        """End the program and its children with SIGKILL, and return its exit status."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        _running.discard(self)
        return self._popen.wait()

    def memory_bytes(self) -> int:
        """Return the resident memory. Linux only."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise HarnessError(f"process {self.pid} has no resident memory: has it ended?")


def run(command: Sequence[str | Path], *, timeout_s: float = 120, cwd: Path | None = None) -> str:
    """Run a program to its end, and return its standard output. Raises HarnessError if the program fails."""
    words = [str(part) for part in command]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout_s, cwd=cwd, preexec_fn=_die_with_parent, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"{' '.join(words)[:400]}: not done within {timeout_s:g} s") from error
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-4_000:]
        raise HarnessError(f"{' '.join(words)[:400]}: exit status {done.returncode}\n{tail}")
    return done.stdout


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Create a scratch directory, and remove it at the end of the ``with`` block."""
    directory = scratch_directory(name)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@atexit.register
def _end_all() -> None:
    for process in list(_running):
        process.kill()
    for directory in Path(tempfile.gettempdir()).glob(f"{_SCRATCH_PREFIX}{os.getpid()}-*"):
        shutil.rmtree(directory, ignore_errors=True)
