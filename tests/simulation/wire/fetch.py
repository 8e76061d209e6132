"""Fetch (key 1), v4 to v16.

A topic is named up to v12. v13 and later have the 16 bytes of its id instead (KIP-516). A follower says who it is by
``replica_id`` up to v14, and in ``replica_state`` from v15 on (KIP-903).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_LEADER, Leader, NodeEndpoint, RequestHeader, Topic

API_KEY: Final = 1
VERSIONS: Final = range(4, 17)


class FetchPartition(NamedTuple):
    """What is asked of a partition."""

    partition: int
    offset: int
    max_bytes: int = 1_048_576
    leader_epoch: int = -1
    log_start_offset: int = -1
    last_fetched_epoch: int = -1


class FetchTopic(NamedTuple):
    topic: Topic
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    topic: Topic
    partitions: Sequence[int]


class ReplicaState(NamedTuple):
    replica_id: int = -1
    replica_epoch: int = -1


class FetchRequest(NamedTuple):
    """A request. ``session_id`` 0 with ``session_epoch`` -1 is a full fetch without a session (KIP-227)."""

    header: RequestHeader
    topics: Sequence[FetchTopic]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[ForgottenTopic] = ()
    rack: str = ""
    replica_id: int = -1
    replica_state: ReplicaState = ReplicaState()
    cluster_id: str | None = None

    @property
    def follower(self) -> int:
        """The broker that copies, or -1 if the request is a consumer's."""
        return max(self.replica_id, self.replica_state.replica_id)


class FetchedPartition(NamedTuple):
    """What a partition answers. The leader is told from v12 on (KIP-951)."""

    partition: int
    records: bytes | None = b""
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_replica: int = -1
    leader: Leader = NO_LEADER


class FetchedTopic(NamedTuple):
    topic: Topic
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    """A response. The endpoints are told from v16 on (KIP-951)."""

    correlation_id: int
    topics: Sequence[FetchedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


API: Final = Api(API_KEY, VERSIONS, FetchRequest, FetchResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
