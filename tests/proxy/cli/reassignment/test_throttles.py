"""Tests which throttles apply to which moves: by side, source, list, path and rack."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kafka_quota_proxy.config.model import Replication, ReplicationPath
from kafka_quota_proxy.config.throttled_replicas import ALL_REPLICAS, parse
from kafka_quota_proxy.proxy.cli.reassignment.model import Holder, Limit, Move, Side, Sizes, Source
from kafka_quota_proxy.proxy.cli.reassignment.throttles import (
    BrokerConfigs,
    ClusterThrottles,
    bursts,
    cluster_limits,
    file_limits,
    first_responses_ms,
    split_throttles,
    unknown_throttles,
    unlisted_moves,
)

MB = 1_000_000
_A = Move("orders", 0, 4)
_B = Move("orders", 1, 4)
_C = Move("payments", 0, 5)
_MOVES = {
    _A: Sizes(leader=1, leader_bytes=100, follower_bytes=0),
    _B: Sizes(leader=2, leader_bytes=100, follower_bytes=0),
    _C: Sizes(leader=2, leader_bytes=100, follower_bytes=0),
}
_RATES = BrokerConfigs(leader_rate=8 * MB, follower_rate=5 * MB)


def _facts(limits: Iterable[Limit]) -> set[tuple[Side, int | None, int | None, float, frozenset[Move]]]:
    return {(*limit.holder[:3], limit.rate, limit.moves) for limit in limits}


def test_cluster_throttles_need_a_list_and_a_rate() -> None:
    cluster = ClusterThrottles(
        brokers={1: _RATES, 2: BrokerConfigs(), 4: _RATES, 5: _RATES},
        leader_replicas={"orders": parse("0:1,1:2")},
        follower_replicas={"orders": parse("0:4,1:4"), "payments": ALL_REPLICAS},
    )

    limits = list(cluster_limits(_MOVES, cluster))

    assert _facts(limits) == {
        (Side.LEADER, 1, None, 8 * MB, frozenset({_A})),
        (Side.FOLLOWER, None, 4, 5 * MB, frozenset({_A, _B})),
        (Side.FOLLOWER, None, 5, 5 * MB, frozenset({_C})),
    }
    assert {limit.source for limit in limits} == {Source.CLUSTER}
    assert {limit.holder.side for limit in limits if limit.charges_in_sync} == {Side.LEADER}


def test_only_the_current_leader_is_throttled() -> None:
    cluster = ClusterThrottles(brokers={1: _RATES, 2: _RATES}, leader_replicas={"orders": parse("1:1")})

    assert not list(cluster_limits(_MOVES, cluster))


def test_a_file_without_lists_throttles_all_moves_through_the_proxy() -> None:
    section = Replication(leader_rate=8 * MB, follower_rate=5 * MB)

    everything = file_limits(_MOVES, section, leaders=None, racks={})
    behind = file_limits(_MOVES, section, leaders={1}, racks={})

    assert _facts(everything) == {
        (Side.LEADER, 1, None, 8 * MB, frozenset({_A})),
        (Side.LEADER, 2, None, 8 * MB, frozenset({_B, _C})),
        (Side.FOLLOWER, None, 4, 5 * MB, frozenset({_A, _B})),
        (Side.FOLLOWER, None, 5, 5 * MB, frozenset({_C})),
    }
    assert not any(limit.charges_in_sync for limit in everything)  # all replicas that lag, and no others
    assert _facts(behind) == {
        (Side.LEADER, 1, None, 8 * MB, frozenset({_A})),
        (Side.FOLLOWER, None, 4, 5 * MB, frozenset({_A})),
    }


def test_a_file_with_lists_throttles_the_listed_moves() -> None:
    section = Replication(
        leader_rate=8 * MB,
        follower_rate=5 * MB,
        leader_replicas={"orders": parse("0:1")},
        follower_replicas={"payments": ALL_REPLICAS},
    )

    limits = list(file_limits(_MOVES, section, leaders=None, racks={}))

    assert _facts(limits) == {
        (Side.LEADER, 1, None, 8 * MB, frozenset({_A})),
        (Side.FOLLOWER, None, 5, 5 * MB, frozenset({_C})),
    }
    assert [limit.charges_in_sync for limit in limits] == [True, False]


def test_moves_of_a_path_share_its_rate_and_all_matching_paths_apply() -> None:
    section = Replication(
        paths=(
            ReplicationPath(leader_rack="a", follower_rack="b", rate=9 * MB),
            ReplicationPath(follower=4, rate=7 * MB),
            ReplicationPath(leader=2, leader_rack="a", rate=5 * MB),
            ReplicationPath(leader=3, rate=1 * MB),
            ReplicationPath(leader_rack="b", rate=2 * MB),
        )
    )

    limits = list(file_limits(_MOVES, section, leaders=None, racks={1: "a", 2: "a", 4: "c", 5: "b"}))

    assert {(limit.holder.path, limit.rate, limit.moves) for limit in limits} == {
        ("from rack a to rack b", 9 * MB, frozenset({_C})),
        ("from anywhere to broker 4", 7 * MB, frozenset({_A, _B})),
        ("from broker 2 of rack a to anywhere", 5 * MB, frozenset({_B, _C})),
    }


@pytest.mark.parametrize("from_cluster", [False, True])
def test_a_path_applies_to_moves_listed_on_either_side(from_cluster: bool) -> None:
    section = Replication(
        paths=(ReplicationPath(follower=4, rate=7 * MB),),
        leader_replicas=None if from_cluster else {"orders": parse("0:1")},
        follower_replicas=None if from_cluster else {},
        from_cluster=from_cluster,
    )

    (limit,) = file_limits(_MOVES, section, leaders=None, racks={})

    assert limit.moves == ({_A, _B} if from_cluster else {_A})


def test_a_rate_without_a_list_is_reported_and_is_no_throttle() -> None:
    """A topic operator may remove the list when it rewrites a topic's configs. The move is then not throttled."""
    cluster = ClusterThrottles(
        brokers={1: _RATES, 4: _RATES},
        leader_replicas={"orders": parse("0:1"), "payments": ALL_REPLICAS},
    )

    assert list(unlisted_moves(_MOVES, cluster)) == [
        "orders is not throttled at its follower 4: that broker has a rate, but the topic's "
        "follower.replication.throttled.replicas does not list all moving partitions"
    ]


@pytest.mark.parametrize(
    ("rate", "partitions", "said"),
    [
        (MB, 10, []),  # its first 10 MiB take 10.5 s, which is within the window of 11 s
        (
            MB // 2,
            20,
            [
                "broker 4 fetches in bursts: its first responses, 1 of up to 10.5 MB, take 21 s at its throttle, and "
                "its window is 11 s; set at least 953 kB/s, or a lower replica.fetch.response.max.bytes"
            ],
        ),
        (MB // 2, 1, []),  # a response has at most a mebibyte of one partition
    ],
)
def test_first_responses_beyond_the_window_are_reported(rate: int, partitions: int, said: list[str]) -> None:
    moves = {Move("t", index, 4): Sizes(leader=1, leader_bytes=1, follower_bytes=0) for index in range(partitions)}
    configs = BrokerConfigs(leader_rate=rate, follower_rate=rate)
    cluster = ClusterThrottles(
        brokers={1: configs, 4: configs},
        leader_replicas={"t": ALL_REPLICAS},
        follower_replicas={"t": ALL_REPLICAS},
    )

    assert list(bursts(moves, cluster_limits(moves, cluster), cluster)) == said


def test_a_broker_with_unreadable_configs_is_named() -> None:
    assert [note[:37] for note in unknown_throttles(ClusterThrottles(unknown=(1, 4)))] == [
        "the throttle of broker 1 is unknown: ",
        "the throttle of broker 4 is unknown: ",
    ]


@pytest.mark.parametrize(
    ("leaders", "proxied", "is_said"),
    [
        (None, 1, True),
        (None, 2, False),
        (frozenset({1}), 1, True),
        (frozenset({2, 3}), 2, True),
        (frozenset({1, 2}), 2, False),
    ],
)
def test_a_follower_throttle_at_several_proxies_is_reported(
    leaders: frozenset[int] | None, proxied: int, is_said: bool
) -> None:
    """Broker 4 fetches from leaders 1 and 2, and broker 5 fetches from leader 2 alone."""
    notes = list(split_throttles(_MOVES, Replication(follower_rate=5 * MB), leaders=leaders, proxied=proxied))

    assert len(notes) == is_said
    assert all("broker 4 fetches from 2 leaders" in note and "up to 2 times" in note for note in notes)
    assert list(split_throttles(_MOVES, Replication(leader_rate=5 * MB), leaders=leaders, proxied=proxied)) == []


def test_the_files_throttle_causes_no_bursts() -> None:
    moves = {Move("t", index, 4): Sizes(leader=1, leader_bytes=1, follower_bytes=0) for index in range(20)}
    limits = list(file_limits(moves, Replication(leader_rate=1_000), leaders=None, racks={}))

    assert limits == [
        Limit(source=Source.FILE, holder=Holder(Side.LEADER, 1, None), rate=1_000, moves=frozenset(moves))
    ]
    assert list(bursts(moves, limits, ClusterThrottles())) == []


@pytest.mark.parametrize(
    ("leaders", "response_bytes", "leader_rate", "follower_rate", "seconds"),
    [
        (5, 10 * MB, MB, None, 10),  # KIP-73's example: the time does not depend on the number of brokers
        (500, 2 * MB, MB, 100 * MB, 10),  # KIP-73's other example, where the follower's side is the bottleneck
        (1, 10 * MB, 10 * MB, 5 * MB, 2),
        (1, 10 * MB, None, None, None),
        (1, 10 * MB, 0, MB, float("inf")),  # Kafka accepts a rate of 0
    ],
)
def test_the_first_responses_take_the_time_of_kip_73(
    leaders: int, response_bytes: int, leader_rate: float | None, follower_rate: float | None, seconds: float | None
) -> None:
    found = first_responses_ms(
        leaders=leaders, response_bytes=response_bytes, leader_rate=leader_rate, follower_rate=follower_rate
    )

    assert found == (None if seconds is None else seconds * 1_000)
