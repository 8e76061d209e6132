"""Tests the metrics of throttled replicas, of KIP-73 and of the proxy."""

from typing import NamedTuple, cast

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, Replication
from kafka_quota_proxy.proxy.admin.metrics.replication import replication_metrics
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session import Session
from tests.support.move import Move, view
from tests.support.replica_frames import Place
from tests.support.replicas import Follower
from tests.support.scrape import Scrape, scraped
from tests.support.wire import START_MS

UPSTREAM = Address(host="127.0.0.1", port=19092)
ANY = Address(host="127.0.0.1", port=0)
PREFIX = "kafka_quota_proxy_"


def scrape_of(server: Server, now_ms: int) -> Scrape:
    replication = server.replication
    return scraped(replication_metrics(replication.throttle, replication.watcher, server.listeners, now_ms))


def server_of(replication: Replication | None) -> Server:
    listener = Listener(name="brokers", bind=ANY, upstream=UPSTREAM, inter_broker=True, node_id=1)
    return Server(ProxyConfig(listeners=(listener,), replication=replication))


class Connection(NamedTuple):
    session: Session


def moving(
    server: Server, version: int, logs: dict[Place, tuple[int, int]], known: ClusterView | None = None
) -> tuple[Move, Follower]:
    """Return a move through the proxy to broker 3, and its follower."""
    throttle = server.replication.throttle
    move = Move(version, logs, None, known, throttle=throttle, leader=throttle.leaders[0])
    follower = move.add(Follower(3, version, logs))
    server.listeners[0].connections[cast(ClientConnection, Connection(move.sessions[0]))] = None
    return move, follower


@pytest.mark.parametrize("version", [3, 17])
def test_rates_limits_lag_and_partition_bytes(version: int) -> None:
    logs: dict[Place, tuple[int, int]] = {("moving", 0): (10_000, 1_000), ("moving", 1): (10_000, 1_000)}
    server = server_of(Replication(leader_rate=200_000.0))
    move, follower = moving(server, version, logs, view({"moving"}))
    move.every(100, 30_000, lambda: move.leader.logs["moving", 0].append(10_000))
    move.run(30_000)
    found = scrape_of(server, move.now_ms)
    one, three = (("broker", "1"),), (("broker", "3"),)
    sent = sum(delivery.size_bytes for delivery in follower.deliveries)
    for name in ("leader_replication_throttled_rate", "follower_replication_throttled_rate"):
        broker = one if name.startswith("leader") else three
        assert found[PREFIX + name, broker] == pytest.approx(200_000, rel=0.1)
        kafka_name = f"kafka_server_{name.split('_')[0]}replication_byte_rate"
        assert found[kafka_name, broker] == found[PREFIX + name, broker]
    assert found[PREFIX + "leader_replication_throttled_limit", one] == 200_000
    assert (PREFIX + "follower_replication_throttled_limit", three) not in found
    assert found[PREFIX + "follower_replication_throttled_bytes_total", three] == sent
    assert found[PREFIX + "leader_replication_throttled_bytes_total", one] == pytest.approx(sent, rel=0.02)
    lag = sum(log.end_offset - follower.offsets[place] for place, log in move.leader.logs.items())
    assert found[PREFIX + "sum_replica_lag", three] == pytest.approx(lag, abs=20)
    written = {
        number: found[PREFIX + "partition_bytes_in_rate", (("topic", "moving"), ("partition", number))]
        for number in "01"
    }
    assert written == {"0": pytest.approx(100_000, rel=0.1), "1": 0}


def test_families_stay_after_a_limit_is_removed() -> None:
    assert scrape_of(server_of(None), START_MS) == {}
    server = server_of(Replication(leader_rate=200_000.0))
    move, _ = moving(server, 17, {("moving", 0): (10_000, 100)}, view({"moving"}))
    move.run(1_000)

    move.change(None)

    names = {
        name.removeprefix(PREFIX) for name, labels in scrape_of(server, move.now_ms) if labels == (("broker", "1"),)
    }
    assert {"leader_replication_throttled_bytes_total", "leader_replication_throttled_rate"} <= names
    assert "leader_replication_throttled_limit" not in names


def test_a_topic_without_a_known_name_is_shown_by_its_id() -> None:
    server = server_of(Replication(leader_rate=200_000.0))
    move, _ = moving(server, 17, {("moving", 0): (10_000, 100)})
    move.run(1_000)

    names = {labels[0][1] for name, labels in scrape_of(server, move.now_ms) if name.endswith("bytes_in_rate")}
    assert names == {b"moving".ljust(16, b".").hex()}
