"""Moves the leader of a partition to another replica, by the requests of Kafka's own tools.

AlterPartitionReassignments puts the replica first, which makes it the preferred leader, and ElectLeaders elects it.
Import this module only where it is needed, because aiokafka loads slowly.

Source: KIP-455, KIP-460; ElectLeadersRequest.json in Apache Kafka.
"""

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final

from aiokafka.errors import for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String

from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_client import ClusterClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Partition

_TIMEOUT_MS: Final = 5_000
_POLL_S: Final = 0.02
_PREFERRED: Final = 0
_NOT_CONTROLLER: Final = 41
# The replica leads already.
_ELECTION_NOT_NEEDED: Final = 84

_Result = tuple[int, str | None]  # an error code, which is 0 without an error, and its message


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
        self._change(AlterPartitionReassignmentsRequest(_TIMEOUT_MS, topics, no_tags), _reassigned)
        self._change(_ElectLeadersRequest(topic, number), _elected)
        deadline_s = monotonic() + _TIMEOUT_MS / 1_000
        while self._partition(topic, number).leader != leader:
            if monotonic() > deadline_s:
                raise LeaderMoveError(f"the cluster has not made broker {leader} the leader of {name} in time")
            sleep(_POLL_S)
        return leader

    def _change(self, request: Request, read: Callable[[Any], list[_Result]]) -> None:
        """Send a request that ``read`` reads the answer to. Raises ``LeaderMoveError`` if a result is an error."""
        results = read(self.ask(request))
        if any(error_code == _NOT_CONTROLLER for error_code, _ in results):  # without KRaft, brokers do not forward it
            results = read(self.run(self._from_broker(request, self._controller_id)))
        for error_code, error_message in results:
            if error_code not in (0, _ELECTION_NOT_NEEDED):
                api = API_NAMES[request.API_KEY]
                raise LeaderMoveError(f"{api}: {error_message or for_code(error_code).__name__}")

    def _partition(self, topic: str, number: int) -> Partition:
        for found in self.metadata([topic]).topics:
            for partition in found.partitions:
                if partition.number == number:
                    return partition
        raise LeaderMoveError(f"there is no partition {topic}-{number}")


def _reassigned(answer: Any) -> list[_Result]:  # noqa: ANN401 - aiokafka has no types
    """Return the results in a response to AlterPartitionReassignments: that of the whole, and of each partition."""
    return [(answer.error_code, answer.error_message), *_results(answer.responses)]


def _elected(answer: Any) -> list[_Result]:  # noqa: ANN401
    """Return the results in a response to ElectLeaders: that of the whole, and of each partition."""
    return [(answer.error_code, None), *_results(answer.results)]


def _results(topics: Any) -> list[_Result]:  # noqa: ANN401
    return [(error_code, message) for _, partitions, *_ in topics for _, error_code, message, *_ in partitions]


class _ElectLeadersResponse(Response):  # type: ignore[misc]  # of a library without types, here and below
    API_KEY = int(ApiKey.ELECT_LEADERS)
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("results", Array(
            ("topic", String()),
            ("partitions", Array(("partition", Int32), ("error_code", Int16), ("error_message", String()))),
        )),
    )  # fmt: skip


class _ElectLeaders(RequestStruct):  # type: ignore[misc]
    API_KEY = int(ApiKey.ELECT_LEADERS)
    API_VERSION = 1
    RESPONSE_TYPE = _ElectLeadersResponse
    SCHEMA = Schema(
        ("election_type", Int8),
        ("topics", Array(("topic", String()), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )  # fmt: skip


class _ElectLeadersRequest(Request[_ElectLeaders]):  # type: ignore[misc]
    """A request to elect the preferred leader of one partition."""

    API_KEY = int(ApiKey.ELECT_LEADERS)

    def __init__(self, topic: str, number: int) -> None:
        self._topics = [(topic, [number])]

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return the request as a struct of the protocol version that aiokafka has chosen."""
        return request_struct_class(_PREFERRED, self._topics, _TIMEOUT_MS)
