"""Tests the metrics of the sources of quotas: brokers, topics and stores."""

from collections.abc import Iterable
from math import isnan
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    Listener,
    ProxyConfig,
    QuotaRule,
    QuotasFromBroker,
    Store,
)
from kafka_quota_proxy.config.quota_record import RecordFault, Setting, decode
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.quota_sources import (
    quota_change_metrics,
    quota_source_metrics,
)
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.audit import ChangeLog
from kafka_quota_proxy.proxy.rules.broker.broker_source import BrokerSource
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.source import NotKeptError, RuleSource
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.playbook import Playbook
from tests.support.reloads import Reloads
from tests.support.stores import no_room_above
from tests.support.stub_broker import on_uvloop
from tests.support.topic_log import TopicLog, stored_in

OF_BROKERS = "kafka_quota_proxy_broker_quotas_"
OF_MANAGER = "kafka_quota_proxy_quota_store_"
OF_RULES = "kafka_quota_proxy_quotas_topic_"
OF_STORE = "kafka_quota_proxy_store_topic_"
LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=0), upstream=Address(host="127.0.0.1", port=9))
RULE = StoredRule(limits={"producer_byte_rate": 1.0})


def values(prefix: str, families: Iterable[Family]) -> dict[str, float]:
    return {family.name.removeprefix(prefix): dict(family.samples)[""] for family in families}


def managed(source: RuleSource, *users: str) -> QuotaManager:
    """Return a manager of a source and of a file with rules of these users."""
    quotas = tuple(QuotaRule(user=user, producer_byte_rate=1.0) for user in users)
    config = ProxyConfig(listeners=(LISTENER,), quotas=quotas)
    return QuotaManager(config, source=source)


async def test_quotas_of_brokers_show_their_readings_and_rules() -> None:
    source = BrokerSource(QuotasFromBroker(), ())
    manager = managed(source, "a")
    assert isnan(values(OF_BROKERS, quota_source_metrics(manager))["last_read_timestamp_seconds"])

    source._rules = {Entity(user=name): StoredRule(limits={"producer_byte_rate": 1.0}) for name in ("a", "b")}
    await manager.keeper.apply([Change(*one) for one in source._rules.items()])
    source.is_connected, source.readings, source.failures, source.last_read_s = True, 3, 2, 7.5

    assert values(OF_BROKERS, quota_source_metrics(manager)) == {
        "connected": 1.0,
        "readings_total": 3.0,
        "failures_total": 2.0,
        "last_read_timestamp_seconds": 7.5,
        "entities": 2.0,
        "overruled_entities": 1.0,
    }


def test_changes_are_counted_by_result_and_lost_audit_lines_with_an_audit_log(tmp_path: Path) -> None:
    change_log = ChangeLog(Store(directory="d", audit_log=str(tmp_path / "a.jsonl")))
    change_log.counts["throttled"] += 7

    changes, lost = quota_change_metrics(change_log)

    assert changes == Family(
        "kafka_quota_proxy_quota_changes_total",
        "counter",
        "Changes of an entity's quotas that were requested, by their result.",
        [
            ('{result="applied"}', 0.0),
            ('{result="validated"}', 0.0),
            ('{result="unchanged"}', 0.0),
            ('{result="refused"}', 0.0),
            ('{result="unknown"}', 0.0),
            ('{result="throttled"}', 7.0),
        ],
    )
    assert (lost.name, lost.samples) == ("kafka_quota_proxy_quota_audit_lost_lines_total", [("", 0.0)])
    assert len(list(quota_change_metrics(ChangeLog(Store(directory="d"))))) == 1


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()}


async def changed(manager: QuotaManager, *entities: Entity) -> None:
    assert manager.store is not None
    assert manager.store.writer is not None
    await manager.store.writer.keep([Change(entity, RULE) for entity in entities], dict(manager.rules.stored))


@on_uvloop
async def test_a_store_shows_its_entities_and_failed_writes(tmp_path: Path) -> None:
    server = Server(ProxyConfig(listeners=(LISTENER,), store=Store(directory=str(tmp_path))))
    manager = server.quota_manager
    await manager.read(server.brokers.follow)
    assert manager.store is not None
    begun = values(OF_MANAGER, quota_source_metrics(manager))

    await changed(manager, Entity("alice"), Entity("bob"))
    await changed(manager, Entity("alice"))
    of_ip = StoredRule(limits={"connection_creation_rate": 1.0})
    assert manager.store.writer is not None
    await manager.store.writer.keep([Change(Entity(ip="192.0.2.1"), of_ip)], {})
    kept = values(OF_MANAGER, quota_source_metrics(manager))
    assert kept.pop("journal_bytes") == sizes(tmp_path)["quotas.db-wal"] > begun["journal_bytes"]
    with no_room_above(0), pytest.raises(NotKeptError):
        await changed(manager, Entity("carol"))
    failed = values(OF_MANAGER, quota_source_metrics(manager))

    assert kept == {
        "entities": 3.0,
        "writable": 1.0,
        "write_failures_total": 0.0,
        "damaged_files": 0.0,
    }
    assert (failed["entities"], failed["writable"], failed["write_failures_total"]) == (3.0, 0.0, 1.0)
    assert Health(server, Reloads()).readiness()["store"] == {
        "directory": str(tmp_path),
        "entities": 3,
        "writable": False,
        "damaged_files": 0,
    }
    await changed(manager, Entity("carol"))
    assert values(OF_MANAGER, quota_source_metrics(manager))["writable"] == 1.0
    await manager.stop()


async def test_a_topic_of_rules_shows_its_records_and_rules() -> None:
    topic = TopicSource("t", TopicState(name="t"), reader=Playbook)
    manager = managed(topic, "filed")
    fault = decode(b"?", None)
    assert isinstance(fault, RecordFault)
    records: list[Setting | RecordFault] = [
        Setting(user="alice", key="connections", value=5),
        Setting(user="filed", key="connections", value=5),
        fault,
    ]
    topic.state.begin()
    topic.state.take((TopicRecord(offset, record) for offset, record in enumerate(records)), next_offset=3)
    await manager.keeper.apply([one.change for one in topic.state.changes()])
    topic.is_connected, topic.failures = True, 4

    assert values(OF_RULES, quota_source_metrics(manager)) == {
        "records_total": 3.0,
        "not_understood_records_total": 1.0,
        "failures_total": 4.0,
        "connected": 1.0,
    }


def test_a_topic_that_is_the_store_shows_its_records_and_offset() -> None:
    topic = stored_in(TopicLog())
    setting = Setting(user="alice", key="producer_byte_rate", value=5.0)
    topic.state.begin()
    topic.state.take(
        [TopicRecord(0, setting), TopicRecord(1, decode(b"?", None)), TopicRecord(2, setting)], next_offset=3
    )
    topic.state.end_reached(next_offset=3)
    topic.is_connected, topic.failures, topic.refused, topic.offset = True, 4, 5, 3

    *of_topic, entities = quota_source_metrics(managed(topic))
    assert values(OF_MANAGER, [entities]) == {"entities": 0.0}
    assert values(OF_STORE, of_topic) == {
        "records_total": 3.0,
        "not_understood_records_total": 1.0,
        "failures_total": 4.0,
        "refused_changes_total": 5.0,
        "connected": 1.0,
        "entities": 1.0,
        "offset": 3.0,
    }
