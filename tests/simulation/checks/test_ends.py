"""Tests of the checks that compare records: of replicas, of the usage log."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulation.checks.in_sync import InSync
from tests.simulation.checks.support import StandIn
from tests.simulation.checks.usage_log import UsageLog
from tests.simulation.violation import Violation


def replica(at_ms: float) -> SimpleNamespace:
    return SimpleNamespace(at_ms=at_ms, topic="t", partition=0, node_id=2, is_in_sync=False, reason="it lags for 11 s")


def test_a_replica_that_lags_needs_a_fault() -> None:
    world = StandIn()
    world.cluster.isr_changes = []
    world.watch(InSync)
    world.send()
    world.cluster.isr_changes.append(replica(world.clock.now_ms))
    with pytest.raises(Violation, match="nothing explains it"):
        world.send()


def test_a_fault_explains_a_replica_that_lags() -> None:
    world = StandIn()
    world.cluster.isr_changes = [replica(world.clock.now_ms)]
    world.scenario.fired["broker crash"] = 1
    world.watch(InSync).end()


def a_log(folder: Path, *lines: object) -> tuple[StandIn, UsageLog]:
    """Return a world whose usage log has these lines in one file, and the check that reads it."""
    world = StandIn()
    disk = SimpleNamespace(is_full=False, torn={})
    world.scenario.proxy = SimpleNamespace(settings={"usage_log": {"directory": str(folder)}}, disk=disk)
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (folder / "usage-sim-1.jsonl").write_text(text)
    check: UsageLog = world.watch(UsageLog)
    return world, check


def produced(amount: int, *, start_ms: int = 1, interval_ms: int = 1_000, user: str = "alice") -> dict[str, object]:
    return {"kind": "produce", "start_ms": start_ms, "interval_ms": interval_ms, "amount": amount, "user": user}


@pytest.mark.parametrize(("logged", "is_right"), [(996, True), (995, False), (997, False)])
def test_the_usage_log_has_what_passed(tmp_path: Path, logged: int, is_right: bool) -> None:
    world, check = a_log(tmp_path, produced(logged), produced(logged))
    world.exchange(size=1_000)
    if is_right:
        check.end()
        return
    with pytest.raises(Violation, match="996 to 996 B have passed"):
        check.end()


def test_only_a_crash_or_a_hindered_stop_loses_records(tmp_path: Path) -> None:
    world, check = a_log(tmp_path)
    world.exchange(size=1_000)
    check.proxy_stopping(1)
    check.proxy_ended(1, is_crash=False)
    with pytest.raises(Violation, match="0 B of produce"):
        check.end()
    check.proxy_started(2)
    check.proxy_stopping(2)
    world.scenario.fired["disk full"] = 1
    check.proxy_ended(2, is_crash=False)
    check.end()


@pytest.mark.parametrize("line", ['{"kind"', '{"kind"\n'])
def test_complete_files_of_the_usage_log_have_whole_lines(tmp_path: Path, line: str) -> None:
    world, check = a_log(tmp_path, line)
    with pytest.raises(Violation, match=r"half a line|no record"):
        check.end()
    world.scenario.proxy.disk.torn[tmp_path / "usage-sim-1.jsonl"] = None
    check.end()


def test_intervals_of_the_usage_log_follow_each_other(tmp_path: Path) -> None:
    a_log(tmp_path, produced(0, start_ms=5), produced(0, start_ms=5, user="bob"), produced(0, start_ms=6))[1].end()
    for later in (produced(0, start_ms=4), produced(0, start_ms=5, interval_ms=2, user="bob")):
        with pytest.raises(Violation, match="after one of"):
            a_log(tmp_path, produced(0, start_ms=5), later)[1].end()


def test_no_two_records_of_the_usage_log_are_of_the_same(tmp_path: Path) -> None:
    with pytest.raises(Violation, match="of the same"):
        a_log(tmp_path, produced(1), produced(2))[1].end()
