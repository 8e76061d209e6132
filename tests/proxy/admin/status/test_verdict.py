"""Tests the sentence that the status page begins with."""

from typing import cast

import pytest

from kafka_quota_proxy.config.errors import Fault
from kafka_quota_proxy.proxy.admin.clients.rows import Overview, Section
from kafka_quota_proxy.proxy.admin.status.verdict import faults_of, verdict
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.server.config_reloader import LastRead

READ = LastRead(0.0, "config_loaded", "proxy.yaml was read at the start")
REACHED = {"addresses": ["b:1"], "reached": True}


def away(number: int) -> dict[str, object]:
    return {"addresses": [f"away:{number}"], "reached": False, "reason": "refused"}


def overview(clients: int, throttled: int) -> Overview:
    return Overview("t", clients, clients, Section(throttled, throttled, []), Section(0, 0, []))


def test_a_proxy_without_a_fault_is_well() -> None:
    assert (
        verdict("ready", [], overview(12, 3), [REACHED, REACHED]) == "Well: 12 clients, 3 throttled, 2 brokers reached"
    )
    assert verdict("ready", [], overview(1, 0), [REACHED]) == "Well: 1 client, 0 throttled, 1 broker reached"


@pytest.mark.parametrize(
    ("state", "said"), [("starting", "clients cannot connect yet"), ("draining", "waits for open connections to end")]
)
def test_a_proxy_that_starts_or_stops_is_not_well(state: str, said: str) -> None:
    sentence = verdict(state, ["and a fault"], overview(0, 0), [REACHED])

    assert sentence.startswith("Not well: the proxy st")
    assert sentence.endswith(f"{said}; and a fault. 0 clients, 0 throttled, 1 broker reached")


def test_brokers_that_cannot_be_reached_are_named() -> None:
    found = faults_of([REACHED, away(1)], READ, None, None)
    many = faults_of([away(number) for number in range(5)], READ, None, None)

    assert verdict("degraded", found, overview(2, 1), [REACHED, away(1)]) == (
        "Not well: broker away:1 (refused) cannot be reached. 2 clients, 1 throttled, 1 of 2 brokers reached"
    )
    assert many == ["brokers away:0 (refused), away:1 (refused), away:2 (refused) and 2 others cannot be reached"]


def test_a_refused_file_is_a_fault() -> None:
    refused = LastRead(
        0.0, "config_refused", "proxy.yaml is not valid", (Fault(file="f", line=1, key="k", message="m"),)
    )

    assert faults_of([REACHED], refused, None, None) == ["proxy.yaml is not valid"]


class Source:
    def __init__(self, name: str, *, is_connected: bool, key: str = "topic", is_store: bool = False) -> None:
        self.name = name
        self.is_connected = is_connected
        self.writer = self if is_store else None
        self._key = key

    def status(self) -> dict[str, object]:
        return {self._key: self.name}


class Watcher:
    def __init__(self, *, is_successful: bool = True, is_orphaned: bool = False) -> None:
        self.is_successful, self.is_orphaned = is_successful, is_orphaned


DIRECTORY = Source("d", is_connected=False, key="directory", is_store=True)
TOPIC = Source("t", is_connected=False, is_store=True)
FOLLOWED = Source("kafka://b:1/quotas", is_connected=False)


@pytest.mark.parametrize(
    ("source", "watcher", "said"),
    [
        (Source("d", is_connected=True, key="directory", is_store=True), Watcher(), []),
        (FOLLOWED, None, ["the quotas of quotas_from (kafka://b:1/quotas) cannot be read"]),
        (DIRECTORY, None, ["the store of quotas d cannot be written"]),
        (TOPIC, None, ["the store of quotas in the topic t cannot be reached"]),
        (None, Watcher(is_successful=False), ["the cluster does not say which replication it throttles"]),
        (None, Watcher(is_orphaned=True), ["the cluster throttles replication while nothing is being reassigned"]),
    ],
)
def test_where_quotas_come_from_and_replication_count_too(source: object, watcher: object, said: list[str]) -> None:
    found = faults_of([REACHED], READ, cast(RuleSource, source), cast(ReplicationWatcher, watcher))

    assert found == said
