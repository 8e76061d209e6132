"""Tests the section of the status page about throttled replication."""

from typing import NamedTuple, cast

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, Replication
from kafka_quota_proxy.proxy.admin.status.sections import replication_section
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session import Session
from tests.support.move import Move, view
from tests.support.replica_frames import Place
from tests.support.replicas import Follower

UPSTREAM = Address(host="127.0.0.1", port=19092)
ANY = Address(host="127.0.0.1", port=0)


class Connection(NamedTuple):
    session: Session


def server_of(replication: Replication | None) -> Server:
    listener = Listener(name="brokers", bind=ANY, upstream=UPSTREAM, inter_broker=True, node_id=1)
    return Server(ProxyConfig(listeners=(listener,), replication=replication))


def test_a_move_has_its_rates_limits_and_lag() -> None:
    logs: dict[Place, tuple[int, int]] = {("moving", 0): (10_000, 1_000), ("moving", 1): (10_000, 1_000)}
    server = server_of(Replication(leader_rate=200_000.0))
    throttle = server.replication.throttle
    move = Move(17, logs, None, view({"moving"}), throttle=throttle, leader=throttle.leaders[0])
    follower = move.add(Follower(3, 17, logs))
    server.listeners[0].connections[cast(ClientConnection, Connection(move.sessions[0]))] = None
    move.run(30_000)

    section = replication_section(server, now_ms=move.now_ms, rest=lambda: None)

    assert section is not None
    assert (section["cluster"], section["total"]) == (None, 2)
    rows = {(row["side"], row["name"]): row for row in section["limits"]}
    assert rows.keys() == {("leader", "1"), ("follower", "3")}
    leader, three = rows["leader", "1"], rows["follower", "3"]
    assert leader["rate"] == pytest.approx(200_000, rel=0.1)
    assert (leader["limit"], three["limit"]) == (200_000, None)
    assert three["bytes"] == sum(delivery.size_bytes for delivery in follower.deliveries)
    lag = sum(log.end_offset - follower.offsets[place] for place, log in move.leader.logs.items())
    assert three["lag"] == pytest.approx(lag, abs=20)
    assert leader["lag"] is None


def test_the_cluster_says_what_is_being_reassigned() -> None:
    assert replication_section(server_of(None), now_ms=0) is None
    server = server_of(Replication(leader_rate=1.0))
    replication = server.replication
    replication.watcher = ReplicationWatcher(Replication(), {}, fallback=(UPSTREAM,), on_view=replication.see)
    before = replication_section(server, now_ms=0)
    replication.watcher.last_success_s, replication.watcher.is_successful = 1_767_225_600.0, True
    replication.see(ClusterView(moving=frozenset({("orders", 0), ("orders", 1), ("clicks", 7)})))

    after = replication_section(server, now_ms=0)

    assert before == {"cluster": None, "limits": [], "total": 0}
    assert after is not None
    assert after["cluster"] == {
        "read": "2026-01-01T00:00:00.000Z",
        "answers": True,
        "orphaned": False,
        "moving_partitions": 3,
        "moving_topics": ["clicks", "orders"],
        "throttled_topics": 0,
    }
