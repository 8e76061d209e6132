"""The source of rules on the page for contributors works as written."""

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule, Store
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.alter import Decision
from kafka_quota_proxy.proxy.rules.api import Origin, Ticket
from kafka_quota_proxy.proxy.rules.codec import read_changes
from tests.support.pages import block
from tests.support.stub_broker import eventually, on_uvloop

P = "producer_byte_rate"
FILED = QuotaRule(user="filed", producer_byte_rate=1.0, source="f.yaml:3")


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """Return the page's source as a module that reads its file often."""
    text = block("contributing/add-a-source-of-rules.md", "python", holding="class JsonFileSource").text
    assert text.count("\n") < 100
    path = tmp_path / "json_file_source.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("json_file_source", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    found.EVERY_S = 0.01  # type: ignore[attr-defined]
    return found


def write(path: Path, **rates: float) -> None:
    rules = [{"entity": {"user": user}, "limits": {P: rate}} for user, rate in rates.items()]
    path.write_text(json.dumps({"rules": rules}))


@asynccontextmanager
async def managed(module: ModuleType, path: Path) -> AsyncIterator[QuotaManager]:
    config = ProxyConfig(listeners=(), quotas=(FILED,), store=Store())
    manager = QuotaManager(config, source=module.JsonFileSource(path))
    await manager.read(lambda _: None)
    running = asyncio.ensure_future(manager.run())
    try:
        yield manager
    finally:
        running.cancel()
        await asyncio.wait([running])
        await manager.stop()


async def altered(manager: QuotaManager, user: str, limit: float | None) -> Decision:
    class Owner:
        has_turn = asyncio.Event()
        take_turn = fail = has_turn.set

    changes = read_changes({"changes": [{"entity": {"user": user}, "limits": {P: limit}}]})
    ticket = Ticket(Origin("admin"), Owner, changes=changes)
    assert manager.submit(ticket)
    await Owner.has_turn.wait()
    assert ticket.altered is not None
    return ticket.altered


def rates(manager: QuotaManager) -> dict[Any, float]:
    return {rule.user: rule.limits[P] for rule in manager.rules.quotas}


@on_uvloop
async def test_rules_are_followed_and_listed(module: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    write(path, alice=5.0, filed=7.0)
    async with managed(module, path) as manager:
        assert rates(manager) == {"filed": 1.0, "alice": 5.0}

        write(path, alice=6.0, bob=2.0)
        await eventually(lambda: rates(manager) == {"filed": 1.0, "alice": 6.0, "bob": 2.0})
        listed = [(one.entity.user, one.source, one.can_change) for one in manager.listed()]
        assert listed == [("filed", "f.yaml:3", False), ("alice", str(path), True), ("bob", str(path), True)]

        path.write_text("{")
        await eventually(lambda: not manager.source or not manager.source.is_connected)
        assert rates(manager) == {"filed": 1.0, "alice": 6.0, "bob": 2.0}
        assert manager.source is not None
        assert manager.source.status() == {"file": str(path), "connected": False, "entities": 2}


@on_uvloop
async def test_changes_of_administrators_are_stored(module: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    write(path, alice=5.0)
    async with managed(module, path) as manager:
        assert [one.error_code for one in (await altered(manager, "bob", 3.0)).results] == [0]
        assert [one.error_code for one in (await altered(manager, "alice", None)).results] == [0]
        assert [one.error_code for one in (await altered(manager, "filed", 9.0)).results] == [44]
        assert rates(manager) == {"filed": 1.0, "bob": 3.0}
    async with managed(module, path) as again:
        assert rates(again) == {"filed": 1.0, "bob": 3.0}
        path.write_text("{")
        assert [one.error_code for one in (await altered(again, "bob", 4.0)).results] == [56]
        assert rates(again) == {"filed": 1.0, "bob": 3.0}


@on_uvloop
async def test_without_its_file_the_proxy_does_not_start(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="No such file"):
        async with managed(module, tmp_path / "none.json"):
            pass
