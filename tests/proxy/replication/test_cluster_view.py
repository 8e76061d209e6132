"""Tests how a ``ClusterView`` is made from the responses of a cluster, and the ``Lease`` that ends a throttle."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.throttled_replicas import ALL_REPLICAS, parse
from kafka_quota_proxy.proxy.replication.cluster_view import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ClusterView,
    Lease,
    Readings,
    servers_of,
    view_of,
    without_throttle,
)

ID = bytes(range(16))
THROTTLED = ClusterView(
    leader_rates={1: 5_000_000.0},
    follower_rates={2: 6_000_000.0},
    leader_replicas={"orders": parse("0:1")},
)
MOVING = replace(THROTTLED, moving=frozenset({("orders", 0)}))
LEASE_MS = 60_000


def seen(readings: Readings, before: ClusterView | None = None) -> ClusterView:
    view, unread = view_of(readings, before or ClusterView())
    assert unread == ()
    return view


# -- the answers of the cluster --


def test_nothing_is_known_of_a_cluster_that_was_not_asked() -> None:
    view = ClusterView()

    assert not view.has_throttle
    assert (view.topic_names, view.moving, view.node_ids) == ({}, frozenset(), {})


def test_the_four_configs_are_read_each_for_itself() -> None:
    view = seen(
        Readings(
            brokers=(1, 2, 3),
            topic_names={ID: "orders"},
            broker_configs={1: {LEADER_RATE: "100", FOLLOWER_RATE: "0"}, 2: {FOLLOWER_RATE: "200"}, 3: {}},
            topic_configs={
                "orders": {LEADER_REPLICAS: "0:1, 1:2", FOLLOWER_REPLICAS: "*"},
                "idle": {LEADER_REPLICAS: "", FOLLOWER_REPLICAS: None},
                "unset": {},
            },
            moving=frozenset({("orders", 0)}),
        )
    )

    assert view == ClusterView(
        topic_names={ID: "orders"},
        leader_rates={1: 100.0},
        follower_rates={1: 0.0, 2: 200.0},
        leader_replicas={"orders": parse("0:1,1:2")},
        follower_replicas={"orders": ALL_REPLICAS},
        moving=frozenset({("orders", 0)}),
    )


def test_kafkas_largest_long_is_unlimited() -> None:
    view = seen(Readings(brokers=(), broker_configs={1: {LEADER_RATE: "9223372036854775807"}}))

    assert view.leader_rates == {}


def test_values_not_requested_stay() -> None:
    view = seen(Readings(brokers=(1,)), replace(THROTTLED, topic_names={ID: "orders"}))

    assert view == replace(THROTTLED, topic_names={ID: "orders"})


def test_absent_broker_keeps_its_rates_and_removed_broker_loses_them() -> None:
    before = ClusterView(leader_rates={1: 10.0, 2: 20.0}, follower_rates={1: 30.0})

    view = seen(Readings(brokers=(), broker_configs={1: None, 3: None}), before)

    assert (view.leader_rates, view.follower_rates) == ({1: 10.0}, {1: 30.0})


def test_configs_that_are_gone_lift_the_throttle() -> None:
    view = seen(Readings(brokers=(1,), broker_configs={1: {}, 2: {}}, topic_configs={"orders": {}}), THROTTLED)

    assert view == without_throttle(THROTTLED)
    assert not view.has_throttle


def test_unreadable_values_are_reported_and_the_rest_is_read() -> None:
    view, unread = view_of(
        Readings(
            brokers=(),
            broker_configs={1: {LEADER_RATE: "-1"}, 2: {LEADER_RATE: "20"}, 3: {FOLLOWER_RATE: "9" * 100}},
            topic_configs={"orders": {LEADER_REPLICAS: "none,0:1"}},
        ),
        ClusterView(),
    )

    assert view == ClusterView(leader_rates={2: 20.0}, leader_replicas={"orders": parse("0:1")})
    assert unread == (
        "broker 1: leader.replication.throttled.rate='-1' is not a number of bytes per second",
        f"broker 3: follower.replication.throttled.rate='{'9' * 80}' is not a number of bytes per second",
        "topic orders: leader.replication.throttled.replicas: 'none' is not a replica",
    )


@given(st.text(), st.text())
def test_any_value_gives_a_view(rate: str, replicas: str) -> None:
    configs = {LEADER_RATE: rate, LEADER_REPLICAS: replicas}

    view, _ = view_of(Readings(brokers=(), broker_configs={1: configs}, topic_configs={"t": configs}), ClusterView())

    assert all(0 <= found < 2**63 for found in view.leader_rates.values())


# -- the lease --


def test_a_throttle_holds_while_something_is_being_reassigned() -> None:
    lease = Lease(LEASE_MS)

    for now_ms in (0, LEASE_MS, 100 * LEASE_MS):
        assert lease.apply(MOVING, now_ms=now_ms) == (MOVING, ())


def test_throttle_without_a_reassignment_is_reported_once_and_dropped_after_the_lease() -> None:
    lease = Lease(LEASE_MS)

    assert lease.apply(THROTTLED, now_ms=1_000) == (THROTTLED, ())
    assert lease.apply(THROTTLED, now_ms=10_999) == (THROTTLED, ())
    view, (message,) = lease.apply(THROTTLED, now_ms=11_000)
    assert view == THROTTLED
    assert message == (
        "the cluster throttles replication while nothing is being reassigned: topics orders; brokers 1, 2. "
        "To remove it: kafka-reassign-partitions.sh --verify with the file of the reassignment, or kafka-configs.sh "
        "--alter --entity-type topics --entity-name TOPIC --delete-config leader.replication.throttled.replicas,"
        "follower.replication.throttled.replicas and --alter --entity-type brokers --entity-name BROKER "
        "--delete-config leader.replication.throttled.rate,follower.replication.throttled.rate "
        "(--entity-default for the cluster's default)"
    )
    assert lease.apply(THROTTLED, now_ms=60_999) == (THROTTLED, ())
    view, (message,) = lease.apply(THROTTLED, now_ms=61_000)
    assert view == without_throttle(THROTTLED)
    assert message.startswith("the lease of 60000 ms is over: the throttle is dropped from the proxy; the cluster")
    assert lease.apply(THROTTLED, now_ms=10**9) == (without_throttle(THROTTLED), ())


def test_short_lease_is_reported_when_it_is_over() -> None:
    lease = Lease(1_000)
    lease.apply(THROTTLED, now_ms=0)

    _, messages = lease.apply(THROTTLED, now_ms=1_000)

    assert [message.split(":")[0] for message in messages] == [
        "the cluster throttles replication while nothing is being reassigned",
        "the lease of 1000 ms is over",
    ]


def test_throttle_without_a_lease_is_reported_and_holds() -> None:
    lease = Lease(None)
    lease.apply(THROTTLED, now_ms=0)

    view, messages = lease.apply(THROTTLED, now_ms=10**12)

    assert view == THROTTLED
    assert len(messages) == 1


@pytest.mark.parametrize("at_ms", [LEASE_MS - 1, 2 * LEASE_MS])
def test_new_reassignment_restores_the_throttle_and_its_whole_lease(at_ms: int) -> None:
    lease = Lease(LEASE_MS)
    lease.apply(THROTTLED, now_ms=0)
    was_dropped = not lease.apply(THROTTLED, now_ms=at_ms)[0].has_throttle

    revived, messages = lease.apply(MOVING, now_ms=at_ms + 1)

    assert revived == MOVING
    assert bool(messages) == was_dropped
    assert lease.apply(THROTTLED, now_ms=at_ms + 2)[0] == THROTTLED
    assert lease.apply(THROTTLED, now_ms=at_ms + 1 + LEASE_MS)[0] == THROTTLED
    assert not lease.apply(THROTTLED, now_ms=at_ms + 2 + LEASE_MS)[0].has_throttle


def test_changed_throttle_starts_its_lease_again() -> None:
    lease = Lease(LEASE_MS)
    lease.apply(THROTTLED, now_ms=0)
    changed = replace(THROTTLED, leader_rates={1: 7.0})

    assert lease.apply(changed, now_ms=LEASE_MS) == (changed, ())
    assert not lease.apply(changed, now_ms=2 * LEASE_MS)[0].has_throttle


def test_news_of_topics_are_no_change_of_a_throttle() -> None:
    lease = Lease(LEASE_MS)
    lease.apply(THROTTLED, now_ms=0)

    view, _ = lease.apply(replace(THROTTLED, topic_names={ID: "new"}), now_ms=LEASE_MS)

    assert not view.has_throttle
    assert view.topic_names == {ID: "new"}


def test_a_throttle_that_is_removed_is_forgotten() -> None:
    lease = Lease(LEASE_MS)
    lease.apply(THROTTLED, now_ms=0)
    lease.apply(THROTTLED, now_ms=LEASE_MS)

    assert lease.apply(ClusterView(), now_ms=LEASE_MS + 1) == (ClusterView(), ())
    assert lease.apply(THROTTLED, now_ms=LEASE_MS + 2) == (THROTTLED, ())


def test_a_longer_lease_brings_a_dropped_throttle_back() -> None:
    lease = Lease(LEASE_MS)
    lease.apply(THROTTLED, now_ms=0)
    lease.apply(THROTTLED, now_ms=LEASE_MS)

    lease.lease_ms = 2 * LEASE_MS

    assert lease.apply(THROTTLED, now_ms=LEASE_MS + 1) == (THROTTLED, ())
    assert not lease.apply(THROTTLED, now_ms=2 * LEASE_MS)[0].has_throttle


def test_the_names_of_many_are_cut_short() -> None:
    lease = Lease(1)
    many = ClusterView(leader_replicas={f"t{number:02}": ALL_REPLICAS for number in range(12)})
    lease.apply(many, now_ms=0)

    _, (message, _) = lease.apply(many, now_ms=1)

    assert "topics t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and 2 more; brokers none." in message


def test_any_broker_behind_the_proxy_may_be_asked() -> None:
    config = load_bytes(
        b"listeners:\n"
        b"  - {name: a, bind: 127.0.0.1:9092, upstream: 127.0.0.1:1}\n"
        b"  - {name: b, bind: 127.0.0.1:9093, upstream: 127.0.0.1:1}\n"
        b"  - {name: c, bind: 127.0.0.1:9192, bootstrap_servers: '127.0.0.1:2,127.0.0.1:3'}\n",
        file="c.yaml",
    ).config

    assert [str(address) for address in servers_of(config.listeners)] == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
