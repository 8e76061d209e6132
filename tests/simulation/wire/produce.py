"""Produce (key 0), v3 to v13.

A topic is named up to v12. v13 has the 16 bytes of its id instead (KIP-516).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_LEADER, Leader, NodeEndpoint, RequestHeader, Topic

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)


class PartitionData(NamedTuple):
    """The records for a partition."""

    partition: int
    records: bytes | None


class TopicData(NamedTuple):
    """The records for a topic."""

    topic: Topic
    partitions: Sequence[PartitionData]


class ProduceRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[TopicData]
    acks: int = -1
    timeout_ms: int = 30_000
    transactional_id: str | None = None


class PartitionAnswer(NamedTuple):
    """What became of the records for a partition. The leader is told from v10 on (KIP-951)."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: Leader = NO_LEADER


class TopicAnswer(NamedTuple):
    topic: Topic
    partitions: Sequence[PartitionAnswer]


class ProduceResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[TopicAnswer]
    throttle_ms: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


API: Final = Api(API_KEY, VERSIONS, ProduceRequest, ProduceResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
