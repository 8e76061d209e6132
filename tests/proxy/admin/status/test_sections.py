"""Tests the sections of the status page about brokers, the configuration file, changes of quotas and queues."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quota_proxy.config.errors import Fault, Severity
from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import Address, Cluster, Listener, ProxyConfig, QuotaRule, QuotasFromBroker, Store
from kafka_quota_proxy.protocol.client_quotas import Op
from kafka_quota_proxy.proxy.admin.status.sections import (
    MAX_FAULTS,
    MAX_USERS,
    broker_rows,
    change_rows,
    queue_section,
    reload_section,
    rules_section,
)
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.alter import APPLIED, UNCHANGED, UNKNOWN, Outcome
from kafka_quota_proxy.proxy.rules.api import Origin
from kafka_quota_proxy.proxy.rules.audit import MOST_RECENT, ChangeLog
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.server.brokers.faults import Fault as UpstreamFault
from kafka_quota_proxy.proxy.server.config_reloader import LastRead
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.stub_broker import on_uvloop, upstream_of

ANY = Address(host="127.0.0.1", port=0)
REACHED = {"reason": None, "detail": None, "bypass": None}
BROKERS = tuple(Address(host="127.0.0.1", port=19_092 + number) for number in range(2))
ORIGIN = Origin("admin", "adminclient-1", "10.0.0.9", "clients")


def server_of(*listeners: Listener) -> Server:
    return Server(ProxyConfig(listeners=listeners))


def test_each_broker_has_a_row_and_those_that_are_away_come_first() -> None:
    server = server_of(
        *(
            Listener(name=f"b{number}", bind=ANY, upstream=broker, node_id=number)
            for number, broker in enumerate(BROKERS)
        )
    )
    upstream_of(server, BROKERS[0]).fault = None
    for _ in range(3):
        upstream_of(server, BROKERS[1]).failed(UpstreamFault("refused", "no"))

    assert broker_rows(server) == [
        {
            "node_id": 1,
            "addresses": ["127.0.0.1:19093"],
            "reached": False,
            "failures": 3,
            "reason": "refused",
            "detail": "no",
            "bypass": None,
        },
        {"node_id": 0, "addresses": ["127.0.0.1:19092"], "reached": True, "failures": 0, **REACHED},
    ]


def test_the_last_read_of_the_file_has_a_bounded_number_of_faults() -> None:
    faults = tuple(Fault(file="p.yaml", line=n, key="k", message="m" * 999, severity=Severity.ERROR) for n in range(30))

    section = reload_section(LastRead(1_767_225_600.5, "config_refused", "p.yaml is not valid", faults, ("admin",)))

    assert len(section["faults"]) == MAX_FAULTS
    assert max(map(len, section["faults"])) <= 256
    assert section["faults"][3].startswith("p.yaml:3: k: mmm")
    del section["faults"]
    assert section == {
        "time": "2026-01-01T00:00:00.500Z",
        "event": "config_refused",
        "message": "p.yaml is not valid",
        "more_faults": 10,
        "needs_restart": ("admin",),
    }


def outcome(name: str | None, old: float | None, new: float | None, result: str = APPLIED) -> Outcome:
    key = "producer_byte_rate"
    rules = [
        None if limit is None else StoredRule(limits={key: limit, "consumer_byte_rate": 7.0}) for limit in (old, new)
    ]
    return Outcome((("user", name),), (Op(key, new),), None, rules[0], rules[1], 0, None, result)


def test_a_change_has_the_old_and_the_new_limit(tmp_path: Path) -> None:
    log = ChangeLog(Store(directory=str(tmp_path)))
    log.count([outcome("alice", 1_000_000.0, 2_000_000.0)], ORIGIN, unix_ms=1_767_225_600_000)
    log.count([outcome(None, None, 5.0, UNKNOWN)], ORIGIN, unix_ms=1_767_225_601_000)

    newest, oldest = change_rows(log) or []

    assert oldest == {
        "time": "2026-01-01T00:00:00.000Z",
        "principal": "admin",
        "address": "10.0.0.9",
        "listener": "clients",
        "entity": "user alice",
        "result": "applied",
        "changed": [{"key": "producer_byte_rate", "old": "1MB", "new": "2MB"}],
    }
    assert (newest["entity"], newest["result"]) == ("user <default>", "unknown")
    assert newest["changed"] == [
        {"key": "producer_byte_rate", "old": None, "new": "5"},
        {"key": "consumer_byte_rate", "old": None, "new": "7"},
    ]


def test_only_the_last_changes_are_kept_and_only_those_that_were_made(tmp_path: Path) -> None:
    log = ChangeLog(Store(directory=str(tmp_path)))
    log.count([outcome(f"u{number}", None, 1.0) for number in range(500)], ORIGIN, unix_ms=0)
    log.count([outcome("same", 1.0, 1.0, UNCHANGED)], ORIGIN, unix_ms=0)

    rows = change_rows(log) or []

    assert [row["entity"] for row in rows] == [f"user u{499 - number}" for number in range(MOST_RECENT)]


def test_without_a_store_there_is_no_section_about_changes() -> None:
    assert change_rows(None) is None


@on_uvloop
async def test_rules_are_counted_whatever_their_source() -> None:
    listener = Listener(name="a", bind=Address(host="127.0.0.1", port=0), upstream=Address(host="127.0.0.1", port=9))
    filed = QuotaRule(user="alice", producer_byte_rate=1.0, source="f.yaml:3")
    config = ProxyConfig(listeners=(listener,), quotas=(filed,), quotas_from=QuotasFromBroker())
    manager = QuotaManager(config)
    rule = StoredRule(limits={"producer_byte_rate": 2.0})
    await manager.keeper.apply([Change(Entity(user), rule) for user in ("alice", "bob")])

    found = rules_section(manager)

    assert found == {"of_file": 1, "source": "broker", "of_source": 2, "hidden": 1, "connected": False}
    alone = rules_section(QuotaManager(replace(config, quotas_from=None)))
    assert alone == {"of_file": 1, "source": None, "of_source": 0, "hidden": 0, "connected": True}


def test_names_are_cut(tmp_path: Path) -> None:
    log = ChangeLog(Store(directory=str(tmp_path)))
    log.count([outcome("é" * 30_000, None, 1.0)], ORIGIN._replace(principal="p" * 30_000), unix_ms=0)

    (row,) = change_rows(log) or []

    assert (len(row["entity"]), len(row["principal"])) == (256, 256)


async def test_queues_have_their_levels_slots_and_costliest_users() -> None:
    server = server_of(
        Listener(name="clients", bind=ANY, upstream=BROKERS[0], fair_call_queue=FairCallQueue(max_in_flight=4))
    )
    priorities = server.listeners[0].priorities
    assert priorities is not None
    for number in range(MAX_USERS + 3):
        priorities.scheduler.charge("x" * 300 if number == 0 else f"user-{number}", 1_000 - number)
    priorities.scheduler.sweep()

    (section,) = queue_section(server) or []

    assert (section["listener"], len(section["users"])) == ("clients", MAX_USERS)
    assert len(section["users"][0]["identity"]) == 256
    (broker,) = section["brokers"]
    assert broker == {
        "upstream": "127.0.0.1:19092",
        "queue_sizes": (0, 0, 0, 0),
        "in_flight": 0,
        "max_in_flight": 4,
    }


def test_without_a_queue_there_is_no_section_about_queues() -> None:
    assert queue_section(server_of(Listener(name="clients", bind=ANY, upstream=BROKERS[0]))) is None


@pytest.mark.parametrize("is_listed", [False, True])
async def test_brokers_of_a_cluster_are_those_that_it_lists(*, is_listed: bool) -> None:
    cluster = Cluster(bootstrap_servers=(BROKERS[0],), first_port=20_000, last_port=20_009, advertised_host="127.0.0.1")
    server = server_of(Listener(name="clients", bind=ANY, cluster=cluster))
    (of_server,) = server.brokers.clusters.values()
    if is_listed:
        for node_id, broker in enumerate(BROKERS, start=5):
            of_server.listeners[0].routes[node_id] = of_server.listeners[0]._route(of_server.upstream(node_id, broker))
        del of_server.listeners[0].routes[6]  # this broker has left
        of_server.brokers[5].reached()

    rows = [(row["node_id"], row["addresses"], row["reached"]) for row in broker_rows(server)]

    assert rows == [(5 if is_listed else None, ["127.0.0.1:19092"], is_listed)]
