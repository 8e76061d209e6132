"""Tests from which brokers and replicas the usage log reads quotas."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    Cluster,
    Enforcement,
    Listener,
    ProxyConfig,
    QuotaRule,
    Replication,
    UsageFiles,
    UsageLog,
)
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.replication import throttle as throttle_module
from kafka_quota_proxy.proxy.server.brokers.broker import Upstream
from kafka_quota_proxy.proxy.server.brokers.identity import BrokerIdentity
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.usage.meter import FOLLOWER_REPLICATION, LEADER_REPLICATION, MeteredBroker, MeteredReplicas
from tests.support.frames import produce_request, produce_response
from tests.support.stub_broker import client_of, correlation_id, listener_to, on_uvloop, running, stub_broker

BROKER = Address(host="127.0.0.1", port=19092)
OTHER = Address(host="127.0.0.1", port=29092)
LISTENER = Listener(name="clients", bind=Address(host="127.0.0.1", port=9092), upstream=BROKER, node_id=3)


def metered(one: Server) -> list[MeteredBroker]:
    return list(one.brokers.metered())


def server(*listeners: Listener, **more: object) -> Server:
    return Server(ProxyConfig(listeners=listeners, **more))  # type: ignore[arg-type]


def test_a_broker_is_enforced_if_one_of_its_listeners_enforces() -> None:
    observing = replace(LISTENER, enforcement=Enforcement.OBSERVE)
    enforcing = replace(LISTENER, name="others", bind=OTHER)

    assert [one.enforces for one in metered(server(observing))] == [False]
    assert [one.enforces for one in metered(server(observing, enforcing))] == [True]


@pytest.mark.parametrize("written", [BROKER, replace(BROKER, host=f"{BROKER.host}.")])
def test_brokers_and_bootstrap_ports_of_a_cluster_are_read_by_node_id(written: Address) -> None:
    cluster = Cluster(bootstrap_servers=(written,), advertised_host="h", first_port=9193, last_port=9292)
    one = server(replace(LISTENER, upstream=None, node_id=None, cluster=cluster))
    (brokers,) = one.brokers.clusters.values()
    assert [broker.node_id for broker in metered(one)] == [None, None]  # the second is the bootstrap port

    brokers.upstream(1, OTHER)
    brokers.upstream(2, BROKER)

    assert [broker.node_id for broker in metered(one)] == [1, 2, 2]
    assert len({id(broker.quotas) for broker in metered(one)}) == 3


def test_a_broker_is_read_with_the_id_of_its_cluster_once_that_is_known() -> None:
    cluster = Cluster(bootstrap_servers=(OTHER,), advertised_host="h", first_port=9193, last_port=9292)
    one = server(LISTENER, replace(LISTENER, name="laptop", upstream=None, node_id=None, cluster=cluster))
    assert {broker.cluster for broker in metered(one)} == {None}

    (upstream,), (brokers,) = one.brokers.single.values(), one.brokers.clusters.values()
    upstream.broker.identity = BrokerIdentity("c-1", 3)
    brokers.cluster_id = "c-2"

    assert {(broker.node_id, broker.cluster) for broker in metered(one)} == {(3, "c-1"), (None, "c-2")}


@pytest.mark.parametrize("observed", [True, False])
def test_a_broker_of_a_cluster_is_enforced_as_the_listeners_of_the_cluster_are(observed: bool) -> None:
    cluster = Cluster(bootstrap_servers=(BROKER,), advertised_host="h", first_port=9193, last_port=9292)
    enforcement = Enforcement.OBSERVE if observed else Enforcement.RESPOND
    one = server(replace(LISTENER, upstream=None, node_id=None, cluster=cluster, enforcement=enforcement))
    (brokers,) = one.brokers.clusters.values()
    brokers.upstream(1, OTHER)

    assert [broker.enforces for broker in metered(one)] == [not observed] * 3


def test_throttled_leaders_and_followers_are_read_also_an_evicted_one() -> None:
    one = server(LISTENER, replication=Replication(leader_rate=5e6, follower_rate=1e6))
    leader = one.replication.throttle.leaders[0].quota(now_ms=0)
    throttle_module._MAX_FOLLOWERS, most = 2, throttle_module._MAX_FOLLOWERS  # type: ignore[misc]
    try:
        quotas = [one.replication.throttle.follower_quota(follower, now_ms=0) for follower in (7, 8, 9)]
    finally:
        throttle_module._MAX_FOLLOWERS = most  # type: ignore[misc]

    assert list(one.replication.metered()) == [
        MeteredReplicas(LEADER_REPLICATION, 3, leader),
        *(
            MeteredReplicas(FOLLOWER_REPLICATION, node_id, quota)
            for node_id, quota in zip((7, 8, 9), quotas, strict=True)
        ),
    ]


def test_a_reload_changes_nothing_of_the_log_before_the_next_start(tmp_path: Path) -> None:
    """Otherwise a broker that joins later could discard usage that is not logged yet."""
    settings = UsageLog(to=UsageFiles(directory=str(tmp_path)))
    one = server(LISTENER, usage_log=settings)

    one.apply(ProxyConfig(listeners=(LISTENER,)))

    assert one.config.usage_log == settings


@on_uvloop
async def test_a_stop_logs_the_last_usage(tmp_path: Path) -> None:
    request = produce_request(7, acks=1)
    async with stub_broker(lambda frame: produce_response(correlation_id(frame))) as broker:
        config = ProxyConfig(
            listeners=(listener_to(broker.address),),
            usage_log=UsageLog(interval_ms=3_600_000, proxy="p1", to=UsageFiles(directory=str(tmp_path))),
        )
        async with running(config) as one, client_of(one) as client:
            await client.ask(request)

    lines = [line for path in tmp_path.glob("*.jsonl") for line in path.read_bytes().splitlines()]  # noqa: ASYNC240
    found = {record["kind"]: record for record in map(json.loads, lines)}
    assert found["produce"]["amount"] == len(request) - 4
    assert found["connection"]["amount"] == 1


async def test_the_servers_of_the_start_are_asked_even_if_a_reload_names_others_before_the_first_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(bootstrap_servers=(BROKER,), advertised_host="h", first_port=9193, last_port=9292)
    in_front = replace(LISTENER, name="cluster", bind=OTHER, upstream=None, node_id=None, cluster=cluster)
    one = server(LISTENER, in_front)
    asked: list[Address] = []

    async def introduce(_: str, upstreams: list[Upstream], __: object) -> bool:
        asked.extend(upstream.address for upstream in upstreams)
        return True

    monkeypatch.setattr(one.brokers._finder, "introduce", introduce)
    one.apply(
        ProxyConfig(listeners=(LISTENER, replace(in_front, cluster=replace(cluster, bootstrap_servers=(OTHER,)))))
    )

    assert await one.brokers.introduce(one.listeners[1])
    assert asked == [BROKER]


def test_brokers_follow_a_changed_rule_at_once() -> None:
    one = server(LISTENER)
    (quotas,) = one.brokers.quotas
    manager = quotas.produce
    before = manager.bucket(user="alice", client_id="etl", now_ms=0)
    rule = QuotaRule(user="alice", producer_byte_rate=1_000.0)

    one.brokers.follow(QuotaChanges({("alice", None): rule}, {}))

    after = manager.bucket(user="alice", client_id="etl", now_ms=1)
    assert (before.is_limited, after.is_limited, after.limit) == (False, True, 1_000.0)
