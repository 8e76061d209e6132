"""OffsetCommit (key 8), v2 to v9."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 8
VERSIONS: Final = range(2, 10)


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


API: Final = Api(API_KEY, VERSIONS, OffsetCommitRequest, OffsetCommitResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
