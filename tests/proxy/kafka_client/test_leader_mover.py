"""Tests how leaders move, with a cluster of two lists: replicas and in-sync replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Metadata, Partition, Topic
from kafka_quota_proxy.proxy.kafka_client.leader_mover import LeaderMoveError, LeaderMover, _ElectLeadersRequest
from tests.protocol.support import kio_messages

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
        self.asked.append(type(request).__name__)
        error = next(self.errors)
        results: list[Any] = [("orders", [(0, error, None, {})], {})]
        if isinstance(request, _ElectLeadersRequest):
            self.leader = self.leader if error else self.replicas[0]
            return SimpleNamespace(error_code=0, results=results)
        ((_, ((_, replicas, _),), _),) = request._topics
        self.replicas = tuple(replicas)
        return SimpleNamespace(error_code=0, error_message=None, responses=results)


@pytest.mark.parametrize("leader", [None, 3])
def test_replica_is_put_first_and_elected(leader: int | None) -> None:
    cluster = Cluster(leader=1, replicas=(1, 2, 3), in_sync=(3, 1))

    assert cluster.move("orders", 0, leader) == 3
    assert (cluster.leader, cluster.replicas) == (3, (3, 1, 2))
    assert cluster.move("orders", 0, 3) == 3
    assert cluster.asked == ["AlterPartitionReassignmentsRequest", "_ElectLeadersRequest"], "once"


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
    alter, elect = "AlterPartitionReassignmentsRequest", "_ElectLeadersRequest"
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


def test_request_and_answer_are_those_of_kafka() -> None:
    request = _ElectLeadersRequest("orders", 7).prepare({int(ApiKey.ELECT_LEADERS): (0, 2)})
    kind = kio_messages.request_class(ApiKey.ELECT_LEADERS, 1)
    (partitions,) = kio_messages.example(kind, array_length=1).topic_partitions
    wanted = kio_messages.example(type(partitions), {"topic": "orders", "partitions": (7,)})
    assert request.encode() == kio_messages.encode(
        kio_messages.example(
            kind,
            {"election_type": 0, "topic_partitions": (wanted,), "timeout": timedelta(milliseconds=request.timeout_ms)},
        )
    )

    message = kio_messages.example(kio_messages.response_class(ApiKey.ELECT_LEADERS, 1))
    answer = request.RESPONSE_TYPE.decode(BytesIO(kio_messages.encode(message)))
    assert [(topic, [tuple(one[:2]) for one in partitions]) for topic, partitions in answer.results] == [
        (topic.topic, [(one.partition_id, one.error_code.value) for one in topic.partition_result])
        for topic in message.replica_election_results
    ]
