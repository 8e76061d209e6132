"""The usage log's files are whole, its intervals follow each other, and its sums equal what passed.

It is read as by a pipeline: each line of a complete file is a record. Only a crash, or a disk that cannot be written
to while the proxy stops, may lose some records, and nothing adds any.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# After these while the proxy stops, it may not write its last records in time.
_DELAYS: Final = ("disk full", "proxy paused")
_IDENTITY: Final = ("start_ms", "proxy", "broker", "kind", "user", "client_id", "listener")
_FETCHES: Final = (frames.FETCH, frames.SHARE_FETCH)
_FILE: Final = re.compile(r"usage-sim-(\d+)(?:\.(\d+))?\.jsonl(\.part)?")


class UsageLog(Check):
    """Reads all records at the end, and compares them with the ledger."""

    name: ClassVar[str] = "usage log"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._may_lose = False
        self._delays_at_stop: int | None = None  # None: the process was not asked to stop

    def _delays(self) -> int:
        return sum(self.world.scenario.fired.get(fault, 0) for fault in _DELAYS)

    def proxy_started(self, number: int) -> None:
        """A new process has all its time."""
        self._delays_at_stop = None

    def proxy_stopping(self, number: int) -> None:
        """The last records must be written in time, unless a second signal ends that."""
        self._may_lose |= self._delays_at_stop is not None or self.world.scenario.proxy.disk.is_full
        self._delays_at_stop = self._delays()

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """A crash loses the last records."""
        self._may_lose |= is_crash or self._delays_at_stop not in (None, self._delays())

    def end(self) -> None:
        """Read the files and compare the sums."""
        section = self.world.scenario.proxy.settings.get("usage_log")
        if not section or "directory" not in section:
            return
        sums = {"produce": 0, "fetch": 0}
        for record in self._records(Path(section["directory"])):
            if record["kind"] in sums:
                if record.get("user") == "<other>":  # where the proxy has removed 10,000 buckets in an interval
                    self.world.fail(self.name, f"the usage of a removed bucket has no user: {record}")
                sums[record["kind"]] += record["amount"]
        exchanges = [one for one in self.world.ledger.exchanges.values() if not one.is_inter_broker]
        self._compare(
            "produce", sums["produce"], [_produced(one) for one in exchanges if one.api_key == frames.PRODUCE]
        )
        self._compare("fetch", sums["fetch"], [_fetched(one) for one in exchanges if one.api_key in _FETCHES])

    def _records(self, folder: Path) -> "Iterator[dict[str, Any]]":
        """Yield each record once, after its place in the log is judged."""
        torn = self.world.scenario.proxy.disk.torn
        seen: dict[tuple[object, ...], dict[str, Any]] = {}
        start_ms = interval_ms = -1
        for path in _files(folder):
            for record in self._lines(path, torn):
                identity = tuple(record.get(field) for field in _IDENTITY)
                if identity in seen:
                    if seen[identity] != record:
                        self.world.fail(self.name, f"two records are of the same: {seen[identity]}, {record}")
                    continue
                seen[identity] = record
                # The start of the last interval is unknown to a process that found only a half line of it.
                is_behind = record["start_ms"] < start_ms
                is_another = record["start_ms"] == start_ms and record["interval_ms"] != interval_ms
                if (is_behind or is_another) and not torn:
                    text = f"an interval of {record['interval_ms']} ms begins at {record['start_ms']}"
                    self.world.fail(self.name, f"{text}, after one of {interval_ms} ms that begins at {start_ms}")
                start_ms, interval_ms = record["start_ms"], record["interval_ms"]
                yield record

    def _lines(self, path: Path, torn: "Collection[Path]") -> "Iterator[dict[str, Any]]":
        """Yield the records of a file. A complete file has whole lines, unless the disk itself has lost some of it."""
        may_be_torn = path in torn or path.suffix != ".jsonl"
        data = path.read_bytes()
        if data and not data.endswith(b"\n") and not may_be_torn:
            self.world.fail(self.name, f"{path.name} ends in half a line: {data[-100:]!r}")
        for line in data.splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                if not may_be_torn:
                    self.world.fail(self.name, f"{path.name} has a line that is no record: {line[-100:]!r}")

    def _compare(self, kind: str, logged: int, amounts: list[tuple[int, float]]) -> None:
        least, most = sum(low for low, _ in amounts), sum(high for _, high in amounts)
        # What strangers send is in no ledger.
        has_strangers = any(hasattr(actor, "manner") for actor in self.world.scenario.actors.values())
        if (logged < least and not self._may_lose) or (logged > most and not has_strangers):
            text = f"the records say {logged:,} B of {kind}, and {least:,} to {most:,} B have passed"
            self.world.fail(self.name, text)


def _produced(exchange: "Exchange") -> tuple[int, float]:
    """Return how many bytes a Produce is surely, and at most, charged."""
    size = len(exchange.request) - 4
    if exchange.forwarded_first_ms < 0:
        return 0, 0
    is_sure = exchange.passed_ms >= 0 if exchange.expects_response else exchange.at_broker_ms >= 0
    return (size if is_sure else 0), size


def _fetched(exchange: "Exchange") -> tuple[int, float]:
    """Return the same for a fetch. What a fetch whose client has left is charged, nobody here knows."""
    if exchange.forwarded_first_ms < 0:
        return 0, 0
    if exchange.response_of_broker is None:
        return 0, float("inf")
    size = len(exchange.response_of_broker) - 4
    if exchange.passed_ms < 0:
        return 0, float("inf")
    return size - 1, size


def _files(folder: Path) -> list[Path]:
    """Return the files of the log, the oldest first. An interval that was divided has numbered files."""
    found = ((path, _FILE.fullmatch(path.name)) for path in folder.iterdir())
    return [path for *_, path in sorted((int(one[1]), int(one[2] or 0), path) for path, one in found if one)]
