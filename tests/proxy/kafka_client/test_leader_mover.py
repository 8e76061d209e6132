"""Tests how leaders move, with a cluster of two lists: replicas and in-sync replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Metadata, Partition, Topic
from kafka_quota_proxy.proxy.kafka_client.leader_mover import LeaderMoveError, LeaderMover

DENIED, NOT_CONTROLLER, ELECTION_NOT_NEEDED = 31, 41, 84


class Cluster(LeaderMover):
    """A cluster with the partition orders-0. ``errors`` are its answers to the two requests, 0 if left out."""

    def __init__(
        self, *, leader: int, replicas: Sequence[int], in_sync: Sequence[int], errors: Sequence[int] = ()
    ) -> None:
        self.leader = leader
        self.replicas, self.in_sync = tuple(replicas), tuple(in_sync)
        self.errors = iter((*errors, 0, 0))
        self.asked: list[str] = []
        self._controller_id = 9

    def metadata(self, topics: Sequence[str] | None = ()) -> Metadata:
        partition = Partition(0, self.leader, self.replicas, self.in_sync)
        return Metadata((), 1, (Topic(0, "orders", None, (partition,) if topics == ["orders"] else ()),))

    async def _from_broker(self, request: Any, node_id: int) -> Any:  # noqa: ANN401
        self.asked.append(str(node_id))
        return self.ask(request)

    def run(self, work: Any) -> Any:  # noqa: ANN401
        return asyncio.run(work)

    def ask(self, request: Any) -> Any:  # noqa: ANN401
        self.asked.append(API_NAMES[request.API_KEY])
        error = next(self.errors)
        results = [("orders", [(0, error, None)])]
        if request.API_KEY == ApiKey.ELECT_LEADERS:
            self.leader = self.leader if error else self.replicas[0]
            return 0, 0, results
        _, _, ((_, ((_, self.replicas),)),) = request.values
        return 0, None, 0, None, results


@pytest.mark.parametrize("leader", [None, 3])
def test_replica_is_put_first_and_elected(leader: int | None) -> None:
    cluster = Cluster(leader=1, replicas=(1, 2, 3), in_sync=(3, 1))

    assert cluster.move("orders", 0, leader) == 3
    assert (cluster.leader, cluster.replicas) == (3, (3, 1, 2))
    assert cluster.move("orders", 0, 3) == 3
    assert cluster.asked == ["AlterPartitionReassignments", "ElectLeaders"], "once"


def test_cluster_may_have_elected_the_leader_by_itself() -> None:
    cluster = Cluster(leader=1, replicas=(1, 2), in_sync=(1, 2), errors=(0, ELECTION_NOT_NEEDED))
    elected = iter((1, 2))
    cluster.metadata = lambda topics=(): Metadata(  # type: ignore[method-assign]
        (), 1, (Topic(0, "orders", None, (Partition(0, next(elected), (1, 2), (1, 2)),)),)
    )

    assert cluster.move("orders", 0, 2) == 2


def test_controller_is_asked_where_brokers_do_not_forward() -> None:
    cluster = Cluster(leader=1, replicas=(1, 2), in_sync=(1, 2), errors=(NOT_CONTROLLER, 0, NOT_CONTROLLER, 0))

    assert cluster.move("orders", 0, 2) == 2
    alter, elect = "AlterPartitionReassignments", "ElectLeaders"
    assert cluster.asked == [alter, "9", alter, elect, "9", elect]


@pytest.mark.parametrize(
    ("topic", "leader", "in_sync", "errors", "message"),
    [
        ("other", None, (1, 2), (), "there is no partition other-0"),
        ("orders", None, (1,), (), "orders-0 has no other replica that is in sync; broker 1 leads it"),
        ("orders", 2, (1,), (), r"broker 2 has no replica of orders-0 that is in sync; \(1,\) have one"),
        ("orders", 2, (1, 2), (DENIED,), "AlterPartitionReassignments: ClusterAuthorizationFailedError"),
        ("orders", 2, (1, 2), (0, DENIED), "ElectLeaders: ClusterAuthorizationFailedError"),
    ],
)
def test_refusals_say_why(
    topic: str, leader: int | None, in_sync: Sequence[int], errors: Sequence[int], message: str
) -> None:
    cluster = Cluster(leader=1, replicas=(1, 2), in_sync=in_sync, errors=errors)

    with pytest.raises(LeaderMoveError, match=message):
        cluster.move(topic, 0, leader)
