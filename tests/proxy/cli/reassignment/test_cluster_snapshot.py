"""Tests snapshots of a cluster's reassignments, from responses as ``admin_client.ClusterClient`` returns them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.background.admin_client import LogSizes
from kafka_quota_proxy.proxy.background.admin_requests import (
    Broker,
    ConfigKind,
    ConfigQuery,
    Configs,
    Metadata,
    Partition,
    Topic,
)
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ReadingError, SnapshotReader
from kafka_quota_proxy.proxy.cli.reassignment.model import Move, Side, Sizes, Source, Waiting

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.background.admin_client import ClusterClient

MB = 1_000_000
_A = Move("orders", 0, 4)
_B = Move("orders", 1, 4)
_UNLIMITED = "9223372036854775807"


@dataclass
class Cluster:
    """A simulated cluster that answers from its fields, and counts how often configs were read."""

    moving: dict[tuple[str, int], list[int]]  # the adding_replicas of each partition
    partitions: dict[tuple[str, int], tuple[int, list[int]]]  # leader and replicas in sync of each partition
    sizes: dict[tuple[int, str, int], int]
    brokers: dict[int, dict[str, str]] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    racks: dict[int, str | None] = field(default_factory=dict)
    error_code: int = 0
    configs_read: int = 0
    asked_brokers: list[int] = field(default_factory=list)
    away: dict[int, Exception] = field(default_factory=dict)  # the brokers that do not answer
    gone: set[int] = field(default_factory=set)  # brokers that went away after they were asked for sizes

    def reassignments(self) -> Mapping[tuple[str, int], Sequence[int]]:
        return self.moving

    def metadata(self, topics: Sequence[str]) -> Metadata:
        return Metadata(
            brokers=tuple(Broker(node_id, "k", 9092, rack) for node_id, rack in self.racks.items()),
            controller_id=1,
            topics=tuple(
                Topic(
                    self.error_code,
                    topic,
                    None,
                    tuple(
                        Partition(number, leader, tuple(in_sync), tuple(in_sync))
                        for (name, number), (leader, in_sync) in self.partitions.items()
                        if name == topic
                    ),
                )
                for topic in topics
            ),
        )

    def log_sizes(self, partitions: Mapping[str, Sequence[int]], node_ids: Sequence[int]) -> LogSizes:
        self.asked_brokers = list(node_ids)
        sizes = {
            (node_id, topic, number): size
            for (node_id, topic, number), size in self.sizes.items()
            if node_id in node_ids and node_id not in self.away and number in partitions.get(topic, ())
        }
        return LogSizes(sizes, {node_id: error for node_id, error in self.away.items() if node_id in node_ids})

    def configs(self, queries: Sequence[ConfigQuery]) -> Sequence[Sequence[Configs] | Exception]:
        self.configs_read += 1
        given: dict[ConfigKind, Mapping[str, Mapping[str, str]]] = {
            ConfigKind.BROKER: {str(node_id): values for node_id, values in self.brokers.items()},
            ConfigKind.TOPIC: self.topics,
        }
        return [
            TimeoutError("no answer within 10000 ms")
            if query.node_id in self.gone | self.away.keys()
            else [
                Configs(name, 0, None, {key: given[query.kind].get(name, {}).get(key) for key in query.keys})
                for name in query.names
            ]
            for query in queries
        ]


class Time:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def _cluster() -> Cluster:
    """Return a cluster that moves two partitions to broker 4. The second partition has two followers in sync."""
    rates = {"leader.replication.throttled.rate": "8000000", "follower.replication.throttled.rate": "5000000"}
    return Cluster(
        moving={("orders", 0): [4], ("orders", 1): [4]},
        partitions={("orders", 0): (1, [1]), ("orders", 1): (2, [2, 3, 1])},
        sizes={(1, "orders", 0): 100 * MB, (2, "orders", 1): 200 * MB, (4, "orders", 0): 10 * MB},
        brokers={
            1: rates,
            2: {"leader.replication.throttled.rate": _UNLIMITED},
            4: rates | {"replication.quota.window.num": "5"},
        },
        topics={
            "orders": {
                "leader.replication.throttled.replicas": "0:1,1:2",
                "follower.replication.throttled.replicas": "0:4,1:4",
            }
        },
    )


def _reader(cluster: Cluster, config: ProxyConfig, *, clock_ms: Callable[[], int] = lambda: 0) -> SnapshotReader:
    return SnapshotReader(cast("ClusterClient", cluster), config, clock_ms=clock_ms)


def _config(replication: str = "", listener: str = "upstream: 127.0.0.1:19092") -> ProxyConfig:
    text = f"listeners:\n  - {{name: replication, bind: 127.0.0.1:9092, {listener}}}\n{replication}"
    return load_bytes(text.encode(), file="c.yaml").config


def test_a_move_has_the_log_sizes_of_leader_and_follower_and_the_count_of_other_in_sync_followers() -> None:
    cluster = _cluster()

    seen = _reader(cluster, _config(), clock_ms=lambda: 7).read()

    assert seen.sample.time_ms == 7
    assert seen.sample.moves == {
        _A: Sizes(leader=1, leader_bytes=100 * MB, follower_bytes=10 * MB, in_sync_followers=0),
        _B: Sizes(leader=2, leader_bytes=200 * MB, follower_bytes=0, in_sync_followers=2),  # no bytes yet
    }
    assert cluster.asked_brokers == [1, 2, 4]


def test_a_new_replica_in_sync_is_not_counted_among_the_old_followers() -> None:
    """The partition moves to two brokers, and the replica at one of them is in sync already."""
    cluster = _cluster()
    cluster.moving = {("orders", 1): [4, 5]}
    cluster.partitions["orders", 1] = (2, [2, 3, 4])

    moves = _reader(cluster, _config()).read().sample.moves

    assert {move.follower: sizes.in_sync_followers for move, sizes in moves.items()} == {4: 1, 5: 1}


def test_a_rate_of_long_max_value_is_no_throttle() -> None:
    seen = _reader(_cluster(), _config()).read()

    assert {(*limit.holder[:3], limit.rate, limit.moves) for limit in seen.limits} == {
        (Side.LEADER, 1, None, 8 * MB, frozenset({_A})),
        (Side.FOLLOWER, None, 4, 5 * MB, frozenset({_A, _B})),
    }
    assert seen.notes == ()


def test_throttles_of_the_file_are_added_to_those_of_the_cluster() -> None:
    config = _config(
        "replication: {leader.replication.throttled.rate: 3MB, paths: [{follower_rack: b, rate: 1MB}]}",
        "upstream: 127.0.0.1:19092, inter_broker: true, node_id: 1",
    )
    cluster = _cluster()
    cluster.racks = {1: "a", 2: "a", 4: "b"}

    seen = _reader(cluster, config).read()

    assert {(*limit.holder[:3], limit.rate, limit.moves) for limit in seen.limits if limit.source is Source.FILE} == {
        (Side.LEADER, 1, None, 3 * MB, frozenset({_A})),
        (Side.PATH, None, None, 1 * MB, frozenset({_A})),
    }


def test_an_ended_move_has_arrived_if_its_replica_is_in_sync_and_else_was_cancelled_after_five_seconds() -> None:
    cluster, time = _cluster(), Time()
    reader = _reader(cluster, _config(), clock_ms=time)
    first = reader.read()
    cluster.moving = {}
    cluster.partitions["orders", 0] = (4, [4])

    then = reader.read()

    assert (first.arrived, first.cancelled) == ((), ())
    assert (dict(then.sample.moves), then.arrived, then.cancelled, then.unsettled) == ({}, (_A,), (), (_B,))
    time.ms = 4_999
    assert reader.read().unsettled == (_B,)
    time.ms = 5_000
    then = reader.read()
    assert (then.arrived, then.cancelled, then.unsettled) == ((), (_B,), ())
    then = reader.read()
    assert (then.arrived, then.cancelled, then.unsettled) == ((), (), ())


def test_a_broker_with_late_metadata_does_not_make_a_move_cancelled() -> None:
    cluster, time = _cluster(), Time()
    reader = _reader(cluster, _config(), clock_ms=time)
    reader.read()
    cluster.moving = {}
    in_sync = dict(cluster.partitions)
    cluster.partitions["orders", 0] = cluster.partitions["orders", 1] = (4, [])

    assert reader.read().unsettled == (_A, _B)
    time.ms = 1_000
    cluster.partitions = {at: (leader, [4]) for at, (leader, _) in in_sync.items()}
    then = reader.read()

    assert (then.arrived, then.cancelled, then.unsettled) == ((_A, _B), (), ())


def test_a_deleted_topic_has_no_moves() -> None:
    cluster = _cluster()
    del cluster.partitions["orders", 1]

    assert set(_reader(cluster, _config()).read().sample.moves) == {_A}


def test_configs_are_read_every_two_seconds_and_when_a_move_is_new() -> None:
    cluster, time = _cluster(), Time()
    later = cluster.moving.pop(("orders", 1))
    reader = _reader(cluster, _config(), clock_ms=time)
    for time.ms in (0, 500, 1_999):
        reader.read()
    assert cluster.configs_read == 1

    cluster.moving["orders", 1] = later
    assert _B in {move for limit in reader.read().limits for move in limit.moves}
    assert cluster.configs_read == 2

    cluster.brokers[4] = {"follower.replication.throttled.rate": "9000000"}
    time.ms = 3_999
    assert 9 * MB in {limit.rate for limit in reader.read().limits}


def test_without_reassignments_no_sizes_and_configs_are_read() -> None:
    cluster = _cluster()
    cluster.moving = {}

    seen = _reader(cluster, _config()).read()

    assert (dict(seen.sample.moves), seen.limits, cluster.configs_read, cluster.asked_brokers) == ({}, (), 0, [])


def test_a_rate_without_a_list_of_replicas_is_reported() -> None:
    cluster = _cluster()
    cluster.topics = {}

    seen = _reader(cluster, _config()).read()

    assert seen.limits == ()
    assert [note.split(":")[0] for note in seen.notes] == [
        "orders is not throttled at its leader 1",
        "orders is not throttled at its follower 4",
    ]


def test_a_broker_that_refuses_its_configs_is_reported() -> None:
    cluster = _cluster()
    del cluster.brokers[2]

    assert _reader(cluster, _config()).read().notes == (
        "the throttle of broker 2 is unknown: reading its configs needs DESCRIBE_CONFIGS",
    )


def test_moves_whose_brokers_are_away_wait_and_the_others_are_measured() -> None:
    """As when a target broker is down: the brokers that answer know the rest."""
    refused = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9095)")
    cluster = _cluster()
    cluster.moving |= {("dead", 0): [5], ("old", 0): [4], ("led", 0): [4]}
    cluster.partitions |= {("dead", 0): (1, [1]), ("old", 0): (6, [6]), ("led", 0): (-1, [7, 8])}
    cluster.sizes |= {(1, "dead", 0): 5}
    cluster.away = {5: refused, 6: TimeoutError()}

    seen = _reader(cluster, _config()).read()

    assert set(seen.sample.moves) == {_A, _B}
    assert [limit.holder.follower for limit in seen.limits if limit.holder.side is Side.FOLLOWER] == [4]
    assert seen.notes == ()
    assert seen.waiting == (
        Waiting(Move("led", 0, 4), (7, 8), "the partition has no leader"),
        Waiting(Move("dead", 0, 5), (5,), str(refused)),
        Waiting(Move("old", 0, 4), (6,), "TimeoutError()"),
    )
    assert cluster.asked_brokers == [1, 2, 4, 5, 6]


def test_a_move_that_waited_has_arrived_or_was_cancelled_like_others() -> None:
    time, cluster = Time(), _cluster()
    cluster.away = {4: OSError("away")}
    reader = _reader(cluster, _config(), clock_ms=time)
    assert [one.move for one in reader.read().waiting] == [_A, _B]

    cluster.moving = {}
    cluster.partitions["orders", 0] = (1, [1, 4])
    assert (reader.read().arrived, time.ms) == ((_A,), 0)
    time.ms = 6_000

    assert reader.read().cancelled == (_B,)


def test_a_broker_that_goes_away_between_two_questions_is_no_error() -> None:
    cluster = _cluster()
    cluster.gone = {4}

    seen = _reader(cluster, _config()).read()

    assert set(seen.sample.moves) == {_A, _B}
    assert seen.notes == ()


def test_a_missing_size_or_topic_is_an_error() -> None:
    no_size, no_topic = _cluster(), _cluster()
    del no_size.sizes[1, "orders", 0]
    no_topic.error_code = 29

    for cluster, what in ((no_size, "the size of orders-0"), (no_topic, "error 29")):
        with pytest.raises(ReadingError, match=what):
            _reader(cluster, _config()).read()
