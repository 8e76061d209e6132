"""The usage log's sums equal what passed. Only a crash or a disk that fails may lose some, and nothing adds any."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.ledger import Exchange

# After these, records may be missing.
_LOSSES: Final = (
    "proxy killed", "power lost", "proxy restarted", "proxy paused", "disk full", "disk faulty", "no descriptors",
)  # fmt: skip
_IDENTITY: Final = ("start_ms", "proxy", "broker", "kind", "user", "client_id", "listener")
_FETCHES: Final = (frames.FETCH, frames.SHARE_FETCH)


class UsageLog(Check):
    """Reads all records at the end, and compares them with the ledger."""

    name: ClassVar[str] = "usage log"

    def end(self) -> None:
        """Compare the sums."""
        section = self.world.scenario.proxy.settings.get("usage_log")
        if not section or "directory" not in section:
            return
        sums = {"produce": 0, "fetch": 0}
        seen = set()
        for record in _records(Path(section["directory"])):
            identity = tuple(record.get(field) for field in _IDENTITY)
            if identity not in seen and record["kind"] in sums:
                sums[str(record["kind"])] += int(str(record["amount"]))
            seen.add(identity)
        exchanges = [one for one in self.world.ledger.exchanges.values() if not one.is_inter_broker]
        self._compare(
            "produce", sums["produce"], [_produced(one) for one in exchanges if one.api_key == frames.PRODUCE]
        )
        self._compare("fetch", sums["fetch"], [_fetched(one) for one in exchanges if one.api_key in _FETCHES])

    def _compare(self, kind: str, logged: int, amounts: list[tuple[int, float]]) -> None:
        least, most = sum(low for low, _ in amounts), sum(high for _, high in amounts)
        scenario = self.world.scenario
        may_lose = any(scenario.fired.get(fault) for fault in _LOSSES)
        # What strangers send is in no ledger.
        has_strangers = any(hasattr(actor, "manner") for actor in scenario.actors.values())
        if (logged < least and not may_lose) or (logged > most and not has_strangers):
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


def _records(folder: Path) -> "Iterator[dict[str, object]]":
    for path in sorted(folder.glob("usage-*")):
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "kind" in record:
                yield record
