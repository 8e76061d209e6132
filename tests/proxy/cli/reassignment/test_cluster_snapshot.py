"""Tests snapshots of a cluster's reassignments, from responses as ``admin_client.ClusterClient`` returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ReadingError, read_snapshot
from kafka_quota_proxy.proxy.cli.reassignment.progress import Move, Sample, Sizes, Waiting
from kafka_quota_proxy.proxy.kafka_client.admin_client import LogSizes
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Metadata, Partition, Topic

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.kafka_client.admin_client import ClusterClient

MB = 1_000_000
_A = Move("orders", 0, 4)
_B = Move("orders", 1, 4)


@dataclass
class Cluster:
    """A simulated cluster that answers from its fields."""

    moving: dict[tuple[str, int], list[int]]  # the adding_replicas of each partition
    partitions: dict[tuple[str, int], tuple[int, list[int]]]  # leader and replicas in sync of each partition
    sizes: dict[tuple[int, str, int], int]
    error_code: int = 0
    asked_brokers: list[int] = field(default_factory=list)
    away: dict[int, Exception] = field(default_factory=dict)  # the brokers that do not answer

    def reassignments(self) -> Mapping[tuple[str, int], Sequence[int]]:
        return self.moving

    def metadata(self, topics: Sequence[str]) -> Metadata:
        return Metadata(
            brokers=(),
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


def _cluster() -> Cluster:
    """Return a cluster that moves two partitions to broker 4. The second partition has two followers in sync."""
    return Cluster(
        moving={("orders", 0): [4], ("orders", 1): [4]},
        partitions={("orders", 0): (1, [1]), ("orders", 1): (2, [2, 3, 1])},
        sizes={(1, "orders", 0): 100 * MB, (2, "orders", 1): 200 * MB, (4, "orders", 0): 10 * MB},
    )


def _read(cluster: Cluster) -> Sample:
    return read_snapshot(cast("ClusterClient", cluster), clock_ms=lambda: 7)


def test_a_move_has_the_log_sizes_of_leader_and_follower_and_the_count_of_other_in_sync_followers() -> None:
    cluster = _cluster()

    seen = _read(cluster)

    assert seen.time_ms == 7
    assert seen.moves == {
        _A: Sizes(leader=1, leader_bytes=100 * MB, follower_bytes=10 * MB, in_sync_followers=0),
        _B: Sizes(leader=2, leader_bytes=200 * MB, follower_bytes=0, in_sync_followers=2),  # no bytes yet
    }
    assert cluster.asked_brokers == [1, 2, 4]


def test_a_deleted_topic_has_no_moves_and_without_reassignments_no_sizes_are_read() -> None:
    cluster = _cluster()
    del cluster.partitions["orders", 1]
    assert set(_read(cluster).moves) == {_A}

    cluster.moving, cluster.asked_brokers = {}, []
    assert (_read(cluster), cluster.asked_brokers) == (Sample(time_ms=7, moves={}), [])


def test_moves_whose_brokers_are_away_wait_and_the_others_are_measured() -> None:
    """As when a target broker is down: the brokers that answer know the rest."""
    refused = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9095)")
    cluster = _cluster()
    cluster.moving |= {("dead", 0): [5], ("old", 0): [4], ("led", 0): [4]}
    cluster.partitions |= {("dead", 0): (1, [1]), ("old", 0): (6, [6]), ("led", 0): (-1, [7, 8])}
    cluster.sizes |= {(1, "dead", 0): 5}
    cluster.away = {5: refused, 6: TimeoutError()}

    seen = _read(cluster)

    assert set(seen.moves) == {_A, _B}
    assert seen.waiting == (
        Waiting(Move("led", 0, 4), (7, 8), "the partition has no leader"),
        Waiting(Move("dead", 0, 5), (5,), str(refused)),
        Waiting(Move("old", 0, 4), (6,), "TimeoutError()"),
    )
    assert cluster.asked_brokers == [1, 2, 4, 5, 6]


def test_a_missing_size_or_topic_is_an_error() -> None:
    no_size, no_topic = _cluster(), _cluster()
    del no_size.sizes[1, "orders", 0]
    no_topic.error_code = 29

    for cluster, what in ((no_size, "the size of orders-0"), (no_topic, "error 29")):
        with pytest.raises(ReadingError, match=what):
            _read(cluster)
