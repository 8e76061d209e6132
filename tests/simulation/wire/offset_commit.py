"""OffsetCommit (key 8), v2 to v9."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import I16, I32, I64, NULLABLE_STRING, STRING, Array, Field, Request, Response, Struct

API_KEY: Final = 8
VERSIONS: Final = range(2, 10)


class CommittedPartition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class CommittedTopic(NamedTuple):
    name: str
    partitions: Sequence[CommittedPartition]


class OffsetCommitRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    generation: int
    member_id: str
    topics: Sequence[CommittedTopic]
    instance_id: str | None = None
    retention_ms: int = -1


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


_PARTITION: Final = Struct(
    CommittedPartition,
    Field("partition", I32),
    Field("offset", I64),
    Field("leader_epoch", I32, first=6),
    Field("metadata", NULLABLE_STRING),
)
_TOPIC: Final = Struct(CommittedTopic, Field("name", STRING), Field("partitions", Array(_PARTITION)))
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    OffsetCommitRequest,
    Field("group_id", STRING),
    Field("generation", I32),
    Field("member_id", STRING),
    Field("instance_id", NULLABLE_STRING, first=7),
    Field("retention_ms", I64, last=4),
    Field("topics", Array(_TOPIC)),
)
_PARTITION_RESULT: Final = Struct(PartitionResult, Field("partition", I32), Field("error_code", I16))
_TOPIC_RESULT: Final = Struct(TopicResult, Field("name", STRING), Field("partitions", Array(_PARTITION_RESULT)))
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, OffsetCommitResponse, Field("throttle_ms", I32, first=3), Field("topics", Array(_TOPIC_RESULT))
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    group_id: str,
    topics: Sequence[CommittedTopic],
    *,
    generation: int = 1,
    member_id: str = "member",
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id,
        version,
        client_id,
        group_id=group_id,
        generation=generation,
        member_id=member_id,
        instance_id=None,
        retention_ms=-1,
        topics=topics,
    )


parse_request: Final = _REQUEST.read


def response(correlation_id: int, version: int, topics: Sequence[TopicResult], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, topics=topics, throttle_ms=throttle_ms)


parse_response: Final = _RESPONSE.read
