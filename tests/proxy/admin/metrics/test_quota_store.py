"""The metrics of quotas that are set through a proxy, and what readiness says of them."""

import time
from math import isnan
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, Store
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.admin.metrics.quota_sources import quota_store_metrics
from kafka_quota_proxy.proxy.client_quotas.manager import QuotaManager
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.store import NotKeptError
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.reloads import Reloads
from tests.support.stores import no_room_above
from tests.support.stub_broker import on_uvloop

PREFIX = "kafka_quota_proxy_quota_store_"
LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=0), upstream=Address(host="127.0.0.1", port=9))
RULE = StoredRule(limits={"producer_byte_rate": 1.0})


def values(manager: QuotaManager) -> dict[str, float]:
    return {family.name.removeprefix(PREFIX): dict(family.samples)[""] for family in quota_store_metrics(manager)}


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()}


async def changed(manager: QuotaManager, *entities: Entity) -> None:
    assert manager.store is not None
    await manager.store.keep([Change(entity, RULE) for entity in entities], {})


@on_uvloop
async def test_entities_and_failed_writes_are_counted(tmp_path: Path) -> None:
    server = Server(ProxyConfig(listeners=(LISTENER,), store=Store(directory=str(tmp_path))))
    manager = server.quota_manager
    await manager.read()
    assert manager.store is not None
    begun = values(manager)
    assert isnan(begun["last_write_failure_timestamp_seconds"])
    before_s = time.time()

    await changed(manager, Entity("alice"), Entity("bob"))
    await changed(manager, Entity("alice"))
    host = StoredRule(limits={"connection_creation_rate": 1.0})
    await manager.store.keep([Change(Entity(ip="nobody.example"), host)], {})
    kept = values(manager)
    assert kept.pop("journal_bytes") == sizes(tmp_path)["quotas.db-wal"] > begun["journal_bytes"]
    with no_room_above(0), pytest.raises(NotKeptError):
        await changed(manager, Entity("carol"))
    failed = values(manager)

    assert kept.pop("snapshot_bytes") == sizes(tmp_path)["quotas.db"] > 0
    assert 0 <= kept.pop("snapshot_age_seconds") < 60
    assert isnan(kept.pop("last_write_failure_timestamp_seconds"))
    assert kept == {
        "entities": 3.0,
        "unknown_hosts": 1.0,
        "writable": 1.0,
        "write_failures_total": 0.0,
        "damaged_files": 0.0,
    }
    assert (failed["entities"], failed["writable"], failed["write_failures_total"]) == (3.0, 0.0, 1.0)
    assert before_s <= failed["last_write_failure_timestamp_seconds"] <= time.time()
    assert Health(server, Reloads()).readiness()["store"] == {
        "directory": str(tmp_path),
        "entities": 3,
        "writable": False,
        "damaged_files": 0,
        "unknown_hosts": 1,
    }
    await changed(manager, Entity("carol"))
    assert values(manager)["writable"] == 1.0
    await manager.stop()


@on_uvloop
async def test_without_a_store_there_are_no_families() -> None:
    server = Server(ProxyConfig(listeners=(LISTENER,)))

    assert list(quota_store_metrics(server.quota_manager)) == []
    assert "store" not in Health(server, Reloads()).readiness()
