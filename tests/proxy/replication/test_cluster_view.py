"""Tests how a ``ClusterView`` is made from the responses of a cluster, and the warning about a forgotten throttle."""

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
    ForgottenThrottle,
    Readings,
    servers_of,
    view_of,
)

ID = bytes(range(16))
THROTTLED = ClusterView(
    leader_rates={1: 5_000_000.0},
    follower_rates={2: 6_000_000.0},
    leader_replicas={"orders": parse("0:1")},
)
MOVING = replace(THROTTLED, moving=frozenset({("orders", 0)}))


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

    assert view == ClusterView(topic_names=THROTTLED.topic_names, node_ids=THROTTLED.node_ids)
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


# -- a throttle that nobody has removed --


def test_a_throttle_is_not_forgotten_while_something_is_being_reassigned() -> None:
    forgotten = ForgottenThrottle()

    assert [forgotten.warning(MOVING, now_ms=now_ms) for now_ms in (0, 60_000)] == [None, None]
    assert not forgotten.is_reported


def test_a_throttle_without_a_reassignment_is_reported_once() -> None:
    forgotten = ForgottenThrottle()

    assert forgotten.warning(THROTTLED, now_ms=1_000) is None
    assert forgotten.warning(THROTTLED, now_ms=10_999) is None
    message = forgotten.warning(THROTTLED, now_ms=11_000)
    assert message == (
        "the cluster throttles replication while nothing is being reassigned: topics orders; brokers 1, 2. "
        "To remove it: kafka-reassign-partitions.sh --verify with the file of the reassignment, or kafka-configs.sh "
        "--alter --entity-type topics --entity-name TOPIC --delete-config leader.replication.throttled.replicas,"
        "follower.replication.throttled.replicas and --alter --entity-type brokers --entity-name BROKER "
        "--delete-config leader.replication.throttled.rate,follower.replication.throttled.rate "
        "(--entity-default for the cluster's default)"
    )
    assert forgotten.warning(THROTTLED, now_ms=10**9) is None
    assert forgotten.is_reported


@pytest.mark.parametrize("other", [MOVING, ClusterView(), replace(THROTTLED, leader_rates={1: 7.0})])
def test_another_view_begins_anew(other: ClusterView) -> None:
    forgotten = ForgottenThrottle()
    forgotten.warning(THROTTLED, now_ms=0)
    assert forgotten.warning(THROTTLED, now_ms=10_000)

    assert forgotten.warning(other, now_ms=20_000) is None
    assert not forgotten.is_reported
    assert forgotten.warning(THROTTLED, now_ms=20_001) is None
    assert forgotten.warning(THROTTLED, now_ms=30_001)


def test_news_of_topics_are_no_change_of_a_throttle() -> None:
    forgotten = ForgottenThrottle()
    forgotten.warning(THROTTLED, now_ms=0)

    assert forgotten.warning(replace(THROTTLED, topic_names={ID: "new"}), now_ms=10_000)


def test_the_names_of_many_are_cut_short() -> None:
    forgotten = ForgottenThrottle()
    many = ClusterView(leader_replicas={f"t{number:02}": ALL_REPLICAS for number in range(12)})
    forgotten.warning(many, now_ms=0)

    message = forgotten.warning(many, now_ms=10_000)

    assert message
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
