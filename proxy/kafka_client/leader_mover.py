"""Moves the leader of a partition to another replica, by the requests of Kafka's own tools.

AlterPartitionReassignments puts the replica first, which makes it the preferred leader, and ElectLeaders elects it.
Import this module only where it is needed, because aiokafka loads slowly.

Source: KIP-455, KIP-460.
"""

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any, Final

from aiokafka.errors import for_code

from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_client import ClusterClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Partition, TableRequest

_TIMEOUT_MS: Final = 5_000
_POLL_S: Final = 0.02
_PREFERRED: Final = 0
_NOT_CONTROLLER: Final = 41
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
        replicas = (leader, *(one for one in found.replicas if one != leader))
        reassignment = (_TIMEOUT_MS, True, [(topic, [(number, replicas)])])
        self._change(TableRequest(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassignment))
        # Version 0 has no election_type, but elects the preferred leader, too.
        self._change(TableRequest(ApiKey.ELECT_LEADERS, (_PREFERRED, [(topic, [number])], _TIMEOUT_MS)))
        deadline_s = monotonic() + _TIMEOUT_MS / 1_000
        while self._partition(topic, number).leader != leader:
            if monotonic() > deadline_s:
                raise LeaderMoveError(f"the cluster has not made broker {leader} the leader of {name} in time")
            sleep(_POLL_S)
        return leader

    def _change(self, request: TableRequest) -> None:
        """Send a request. Raises ``LeaderMoveError`` if the result of the whole or of a partition is an error."""
        results = _results(self.ask(request))
        if any(error_code == _NOT_CONTROLLER for error_code, _ in results):  # without KRaft, brokers do not forward it
            results = _results(self.run(self._from_broker(request, self._controller_id)))
        for error_code, error_message in results:
            if error_code not in (0, None, _ELECTION_NOT_NEEDED):
                api = API_NAMES[request.API_KEY]
                raise LeaderMoveError(f"{api}: {error_message or for_code(error_code).__name__}")

    def _partition(self, topic: str, number: int) -> Partition:
        for found in self.metadata([topic]).topics:
            for partition in found.partitions:
                if partition.number == number:
                    return partition
        raise LeaderMoveError(f"there is no partition {topic}-{number}")


def _results(answer: Sequence[Any]) -> list[tuple[int | None, str | None]]:
    """Return the error codes and messages in an answer to one of both requests: of the whole, and of each partition."""
    _, *front, topics = answer
    error_code, message = front[-2:] if len(front) > 1 else (front[0], None)  # ElectLeaders has no message here
    return [(error_code, message), *(result[1:] for _, partitions in topics for result in partitions)]
