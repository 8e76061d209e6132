"""Runs ``kafka-quota-pipeline`` in its own process, and measures time, memory and spilling."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parent.parent
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The cost of a run, from the start of the process to its end.

    ``jvm_bytes`` is the JVM's largest resident set. ``python_bytes`` is the largest sum over all Python processes
    (PSS). ``spilled_bytes`` is the data that Spark wrote to disk because memory was short, and ``shuffled_bytes`` the
    data that its tasks wrote for each other. ``core_seconds`` is the time of all tasks together, in which a task keeps
    a core, also while it waits for a Python process.
    """

    seconds: float
    jvm_bytes: int
    python_bytes: int
    spilled_bytes: int
    shuffled_bytes: int = 0
    core_seconds: float = 0.0
    jobs: int = 0


def run(words: Iterable[str], *, events: Path) -> Run:
    """Run the pipeline with these arguments. ``events`` is an empty directory for Spark's log of events.

    Raises CalledProcessError if the run fails.
    """
    events.mkdir(parents=True)
    settings = {"enabled": "true", "dir": str(events), "compress": "false", "rolling.enabled": "false"}
    conf = [word for key, value in settings.items() for word in ("--conf", f"spark.eventLog.{key}={value}")]
    started = time.monotonic()
    command = [sys.executable, "-m", "kafka_quota_proxy.pipeline", *words, *conf]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL) as process:
        memory = Memory(process.pid)
        status = process.wait()
        seconds = time.monotonic() - started
        memory.end()
    if status:
        raise subprocess.CalledProcessError(status, command)
    lines = [line for path in events.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    return Run(seconds=seconds, jvm_bytes=memory.jvm, python_bytes=memory.python, **costs(lines))


def costs(lines: Iterable[str]) -> dict[str, Any]:
    """Return the costs of all tasks in an event log, and the number of jobs."""
    found: dict[str, Any] = {"spilled_bytes": 0, "shuffled_bytes": 0, "core_seconds": 0.0, "jobs": 0}
    for line in lines:
        found["jobs"] += '"SparkListenerJobStart"' in line
        if '"SparkListenerTaskEnd"' in line:
            metrics = json.loads(line).get("Task Metrics") or {}
            found["spilled_bytes"] += metrics.get("Disk Bytes Spilled", 0)
            found["shuffled_bytes"] += (metrics.get("Shuffle Write Metrics") or {}).get("Shuffle Bytes Written", 0)
            found["core_seconds"] += metrics.get("Executor Run Time", 0) / 1_000
    return found


class Memory(threading.Thread):
    """Samples the memory of a process and its descendants.

    ``jvm`` and ``python`` are the largest sums in bytes. ``one_python`` is the most that one Python process had.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.jvm = 0
        self.python = 0
        self.one_python = 0
        self._pid = pid
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:  # noqa: D102  (Thread's)
        while not self._ended.wait(_LOOK_EVERY_S):
            sizes = dict(_sizes(self._pid))
            self.jvm = max(self.jvm, sum(size for pid, size in sizes.items() if _name(pid) == "java"))
            python = [size for pid, size in sizes.items() if _name(pid) != "java"]
            self.python = max(self.python, sum(python))
            self.one_python = max([self.one_python, *python])

    def end(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self.join()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _sizes(pid: int) -> Iterator[tuple[int, int]]:
    """Yield a process and its descendants with their memory (PSS) in bytes. Processes that end are skipped."""
    for one in below(pid):
        try:
            found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{one}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        if found:
            yield one, int(found[1]) * 1_024


def _parents() -> dict[int, int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    return parents


def below(pid: int) -> Iterator[int]:
    """Yield a process and its present descendants."""
    yield from _with_children(pid, _parents())


def _with_children(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    yield pid
    for child in [child for child, parent in parents.items() if parent == pid]:
        yield from _with_children(child, parents)
