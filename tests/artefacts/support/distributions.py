"""Builds sdist and wheels as a release does, each in an environment of its own, and installs them into empty ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.end_to_end.support.processes import HarnessError, Process

REPOSITORY: Final = Path(__file__).parents[3]
_CONSTRAINTS: Final = str(REPOSITORY / "constraints.txt")
# pip before 25.3 takes the versions of what builds from the first, later ones from the second.
PINNED: Final = {"PIP_CONSTRAINT": _CONSTRAINTS, "PIP_BUILD_CONSTRAINT": _CONSTRAINTS, "PYTHONPATH": ""}
_SMALL_QUOTAS: Final = ("--produce-rate", "200KiB", "--fetch-rate", "100KiB")


def built(directory: Path) -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel, and return their paths."""
    run([sys.executable, "-m", "build", "--outdir", directory, REPOSITORY])
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


def wait_for(build: Process, *, timeout_s: float) -> None:
    """Wait until a build ends. Raises HarnessError if it fails."""
    if (status := build.wait(timeout_s)) != 0:
        raise HarnessError(f"{' '.join(build.command)[:400]}: exit status {status}\n{build.log_tail()}")


def installed(directory: Path, *requirements: str | Path, pins: dict[str, str] = PINNED) -> Path:
    """Install packages and what they need into an empty environment, and return the directory of its programs."""
    run([sys.executable, "-m", "venv", directory])
    run([directory / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements], pins=pins)
    return directory / "bin"


def demo(programs: Path, *options: str) -> str:
    """Run the installed demo with small quotas, and return its output.

    On a busy machine its status may be 1: the clients were not within 5 % of their quotas.
    """
    words = [str(programs / "kafka-quota-proxy"), "demo", "--seconds", "4", *_SMALL_QUOTAS, *options]
    return run(words, statuses=(0, 1))


def run(
    words: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    pins: dict[str, str] = PINNED,
    statuses: tuple[int, ...] = (0,),
) -> str:
    """Run a program that finds nothing of the checkout, and return its output. Raises HarnessError if it fails."""
    ended = subprocess.run(
        list(map(str, words)),
        cwd=cwd or "/",
        env={**os.environ, **pins},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode not in statuses:
        raise HarnessError(f"{words}: exit status {ended.returncode}\n{ended.stdout[-2_000:]}{ended.stderr[-4_000:]}")
    return ended.stdout
