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


@pytest.mark.parametrize(("logged", "is_right"), [(996, True), (995, False), (997, False)])
def test_the_usage_log_has_what_passed(tmp_path: Path, logged: int, is_right: bool) -> None:
    world = StandIn()
    world.scenario.proxy = SimpleNamespace(settings={"usage_log": {"directory": str(tmp_path)}})
    record = {"kind": "produce", "start_ms": 1, "amount": logged}
    (tmp_path / "usage-sim-1.jsonl").write_text(2 * (json.dumps(record) + "\n"))
    world.exchange(size=1_000)
    check = world.watch(UsageLog)
    if is_right:
        check.end()
        return
    with pytest.raises(Violation, match="996 to 996 B have passed"):
        check.end()
