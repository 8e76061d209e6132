"""Tests of the checks that compare records: of administrators, of replicas, of the usage log."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulation.checks.administration import Administration
from tests.simulation.checks.in_sync import InSync
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.checks.usage_log import UsageLog
from tests.simulation.violation import Violation

SPARE = (("client-id", "spare-1"),)
KEY = "producer_byte_rate"


def altered(begun_ms: float, value: float | None, error_code: int = 0) -> SimpleNamespace:
    quota = (SPARE, KEY, value)
    return SimpleNamespace(
        kind="alter", quota=quota, begun_ms=begun_ms, ended_ms=begun_ms + 1, error_code=error_code, entries=()
    )


def described(begun_ms: float, value: float | None) -> SimpleNamespace:
    values = [] if value is None else [SimpleNamespace(key=KEY, value=value)]
    entries = [SimpleNamespace(entity=SPARE, values=values)]
    return SimpleNamespace(
        kind="describe", quota=None, begun_ms=begun_ms, ended_ms=begun_ms + 1, error_code=0, entries=entries
    )


def administer(*operations: SimpleNamespace) -> None:
    world = StandIn(Settings(administers_quotas=True))
    world.scenario.actors = {"admin-1": SimpleNamespace(operations=list(operations))}
    world.watch(Administration).end()


def test_acknowledged_changes_hold() -> None:
    administer(altered(1, 10.0), described(5, 10.0), altered(10, None), described(15, None))
    administer(altered(1, 10.0), altered(3, 20.0, error_code=7), described(5, 20.0), described(8, 10.0))


@pytest.mark.parametrize("seen", [None, 30.0])
def test_a_lost_change_is_found(seen: float | None) -> None:
    with pytest.raises(Violation, match="because of what was acknowledged"):
        administer(altered(1, 10.0), described(5, seen))


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
