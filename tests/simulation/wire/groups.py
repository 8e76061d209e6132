"""What the members of a group and idempotent producers ask of their coordinator."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

# -- FindCoordinator (key 10), v0 to v6. Before v4, a request has one key --

GROUP: Final = 0
TRANSACTION: Final = 1
_FIRST_BATCH: Final = 4


class FindCoordinatorRequest(NamedTuple):
    """A request: ``key`` before v4, ``keys`` from then on."""

    header: RequestHeader
    key: str = ""
    keys: Sequence[str] = ()
    key_type: int = GROUP


class Coordinator(NamedTuple):
    """The broker that coordinates a group, or a transactional id."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int = 0
    error_message: str | None = None


class FindCoordinatorResponse(NamedTuple):
    """A response: ``coordinators`` from v4 on, the fields of the one coordinator before."""

    correlation_id: int
    coordinators: Sequence[Coordinator] = ()
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: int = 0
    error_message: str | None = None
    throttle_ms: int = 0


class _FindCoordinator(Api[..., FindCoordinatorRequest, ..., FindCoordinatorResponse]):
    def request(
        self, correlation_id: int, version: int, client_id: str | None, /, keys: Sequence[str], *, key_type: int = GROUP
    ) -> bytes:
        return super().request(correlation_id, version, client_id, keys[0], keys, key_type)

    def parse_request(self, frame: bytes) -> FindCoordinatorRequest:
        """Read a request, with its key among its keys."""
        found = super().parse_request(frame)
        return found if found.header.api_version >= _FIRST_BATCH else found._replace(keys=[found.key])

    def response(
        self, correlation_id: int, version: int, /, coordinators: Sequence[Coordinator], *, throttle_ms: int = 0
    ) -> bytes:
        return super().response(correlation_id, version, coordinators, *coordinators[0][1:], throttle_ms)

    def parse_response(self, frame: bytes, version: int) -> FindCoordinatorResponse:
        """Read a response, with its coordinator among its coordinators, whose key is empty before v4."""
        found = super().parse_response(frame, version)
        return found if version >= _FIRST_BATCH else found._replace(coordinators=[Coordinator("", *found[2:7])])


find_coordinator: Final = _FindCoordinator(10, range(7), FindCoordinatorRequest, FindCoordinatorResponse)


# -- JoinGroup (key 11), v0 to v9 --


class GroupProtocol(NamedTuple):
    """A way to assign partitions that the member knows."""

    name: str
    metadata: bytes = b""


class JoinGroupRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    member_id: str = ""
    protocols: Sequence[GroupProtocol] = (GroupProtocol("range"),)
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"


class Member(NamedTuple):
    member_id: str
    metadata: bytes = b""


class JoinGroupResponse(NamedTuple):
    correlation_id: int
    error_code: int = 0
    generation: int = 1
    protocol_type: str | None = "consumer"
    protocol_name: str | None = "range"
    leader: str = ""
    member_id: str = ""
    members: Sequence[Member] = ()
    throttle_ms: int = 0


join_group: Final = Api(11, range(10), JoinGroupRequest, JoinGroupResponse)


# -- Heartbeat (key 12), v0 to v4 --


class HeartbeatRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    generation: int = 1
    member_id: str = "member"


class HeartbeatResponse(NamedTuple):
    correlation_id: int
    error_code: int = 0
    throttle_ms: int = 0


heartbeat: Final = Api(12, range(5), HeartbeatRequest, HeartbeatResponse)


# -- OffsetCommit (key 8), v2 to v9 --


class CommittedPartition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int = -1
    committed_metadata: str | None = ""


class CommittedTopic(NamedTuple):
    name: str
    partitions: Sequence[CommittedPartition]


class OffsetCommitRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    topics: Sequence[CommittedTopic]
    generation: int = 1
    member_id: str = "member"


class PartitionResult(NamedTuple):
    partition: int
    error_code: int = 0


class TopicResult(NamedTuple):
    name: str
    partitions: Sequence[PartitionResult]


class OffsetCommitResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[TopicResult]
    throttle_ms: int = 0


offset_commit: Final = Api(8, range(2, 10), OffsetCommitRequest, OffsetCommitResponse)


# -- OffsetFetch (key 9), v1 to v7: of one group --


class AskedOffsets(NamedTuple):
    name: str
    partitions: Sequence[int]


class OffsetFetchRequest(NamedTuple):
    """A request. ``topics`` None asks for all, from v2 on."""

    header: RequestHeader
    group_id: str
    topics: Sequence[AskedOffsets] | None


class FoundPartition(NamedTuple):
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class FoundTopic(NamedTuple):
    name: str
    partitions: Sequence[FoundPartition]


class OffsetFetchResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[FoundTopic]
    throttle_ms: int = 0
    error_code: int = 0


offset_fetch: Final = Api(9, range(1, 8), OffsetFetchRequest, OffsetFetchResponse)


# -- InitProducerId (key 22), v0 to v5 --


class InitProducerIdRequest(NamedTuple):
    header: RequestHeader
    transactional_id: str | None = None
    timeout_ms: int = 60_000


class InitProducerIdResponse(NamedTuple):
    correlation_id: int
    producer_id: int
    epoch: int = 0
    error_code: int = 0
    throttle_ms: int = 0


init_producer_id: Final = Api(22, range(6), InitProducerIdRequest, InitProducerIdResponse)
