"""Moves the leader of a partition to another replica, by the requests of Kafka's own tools.

AlterPartitionReassignments puts the replica first, which makes it the preferred leader, and ElectLeaders elects it.
Import this module only where it is needed, because aiokafka loads slowly.

Source: KIP-455, KIP-460; ElectLeadersRequest.json in Apache Kafka.
"""

from collections.abc import Iterable
from time import monotonic, sleep
from typing import Any, Final

from aiokafka.errors import for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.background.admin_client import ClusterClient
from kafka_quota_proxy.proxy.background.admin_requests import Partition

_TIMEOUT_MS: Final = 5_000
_POLL_S: Final = 0.02
# The replica leads already.
_ELECTION_NOT_NEEDED: Final = 84


class LeaderMoveError(Exception):
    """Raised if the leader cannot be moved. The message says why."""


class LeaderMover(ClusterClient):
    """A client that moves leaders. Use it as a context manager. Its methods may raise one of ``ADMIN_ERRORS``."""

    def move(self, topic: str, number: int, leader: int | None) -> int:
        """Let ``leader`` lead a partition, or any other in-sync replica if it is None. Return the new leader.

        The call blocks until the cluster names the new leader.

        Raises:
            LeaderMoveError: If there is no such partition or replica, or the cluster refuses.
        """
        name = f"{topic}-{number}"
        found = self._partition(topic, number)
        if leader is None:
            others = [one for one in found.in_sync if one != found.leader]
            if not others:
                raise LeaderMoveError(f"{name} has no other replica that is in sync; broker {found.leader} leads it")
            leader = others[0]
        elif leader not in found.in_sync:
            raise LeaderMoveError(f"broker {leader} has no replica of {name} that is in sync; {found.in_sync} have one")
        if found.leader == leader:
            return leader
        no_tags: dict[int, bytes] = {}
        replicas = [leader, *(one for one in found.replicas if one != leader)]
        topics = [(topic, [(number, replicas, no_tags)], no_tags)]
        changed = self._ask_controller(AlterPartitionReassignmentsRequest(_TIMEOUT_MS, topics, no_tags))
        _check("AlterPartitionReassignments", [(0, changed.error_code, changed.error_message)])
        _check("AlterPartitionReassignments", _results(changed.responses))
        elected = self._ask_controller(_ElectLeadersRequest(topic, number))
        _check("ElectLeaders", _results(elected.results), besides=_ELECTION_NOT_NEEDED)
        deadline_s = monotonic() + _TIMEOUT_MS / 1_000
        while self._partition(topic, number).leader != leader:
            if monotonic() > deadline_s:
                raise LeaderMoveError(f"the cluster has not made broker {leader} the leader of {name} in time")
            sleep(_POLL_S)
        return leader

    def _ask_controller(self, request: Request) -> Any:  # noqa: ANN401 - aiokafka has no types
        return self.run(self._from_broker(request, self._controller_id))

    def _partition(self, topic: str, number: int) -> Partition:
        for found in self.metadata([topic]).topics:
            for partition in found.partitions:
                if partition.number == number:
                    return partition
        raise LeaderMoveError(f"there is no partition {topic}-{number}")


def _results(topics: Any) -> list[tuple[int, int, str | None]]:  # noqa: ANN401 - as above
    """Return the number, the error code and the error message of each partition in a response."""
    return [tuple(result[:3]) for _, partitions, *_ in topics for result in partitions]


def _check(api: str, results: Iterable[tuple[int, int, str | None]], *, besides: int = 0) -> None:
    for _, error_code, error_message in results:
        if error_code not in (0, besides):
            raise LeaderMoveError(f"{api}: {error_message or for_code(error_code).__name__}")


class _ElectLeadersResponse(Response):  # type: ignore[misc]  # of a library without types, here and below
    API_KEY = int(ApiKey.ELECT_LEADERS)
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("results", Array(
            ("topic", String()),
            ("partitions", Array(("partition", Int32), ("error_code", Int16), ("error_message", String()))),
        )),
    )  # fmt: skip


class _ElectLeaders(RequestStruct):  # type: ignore[misc]
    API_KEY = int(ApiKey.ELECT_LEADERS)
    API_VERSION = 0
    RESPONSE_TYPE = _ElectLeadersResponse
    SCHEMA = Schema(
        ("topics", Array(("topic", String()), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )  # fmt: skip


class _ElectLeadersRequest(Request[_ElectLeaders]):  # type: ignore[misc]
    """A request to elect the preferred leader of one partition (version 0 knows no other election)."""

    API_KEY = int(ApiKey.ELECT_LEADERS)

    def __init__(self, topic: str, number: int) -> None:
        self._topics = [(topic, [number])]

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return the request as a struct of the protocol version that aiokafka has chosen."""
        return request_struct_class(self._topics, _TIMEOUT_MS)
