"""ShareAcknowledge (key 79), v1 and v2."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import Leader, NodeEndpoint, RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    ENDPOINT,
    I16,
    I32,
    LEADER,
    NULLABLE_STRING,
    UUID,
    Array,
    Field,
    Request,
    Response,
    Struct,
)
from tests.simulation.wire.share import SHARE_TOPIC, ShareTopic

API_KEY: Final = 79
VERSIONS: Final = range(1, 3)

_NO_LEADER: Final = Leader(-1, -1)


class ShareAcknowledgeRequest(NamedTuple):
    header: RequestHeader
    group_id: str | None
    member_id: str | None
    session_epoch: int
    topics: Sequence[ShareTopic]
    is_renewal: bool = False


class AcknowledgedPartition(NamedTuple):
    """What a partition answers."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    leader: Leader = _NO_LEADER


class AcknowledgedTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[AcknowledgedPartition]


class ShareAcknowledgeResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[AcknowledgedTopic]
    endpoints: Sequence[NodeEndpoint]
    lock_timeout_ms: int = 0


_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    ShareAcknowledgeRequest,
    Field("group_id", NULLABLE_STRING),
    Field("member_id", NULLABLE_STRING),
    Field("session_epoch", I32),
    Field("is_renewal", BOOLEAN, first=2),
    Field("topics", Array(SHARE_TOPIC)),
)
_PARTITION: Final = Struct(
    AcknowledgedPartition,
    Field("partition", I32),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("leader", LEADER),
)
_TOPIC: Final = Struct(AcknowledgedTopic, Field("topic_id", UUID), Field("partitions", Array(_PARTITION)))
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    ShareAcknowledgeResponse,
    Field("throttle_ms", I32),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("lock_timeout_ms", I32, first=2),
    Field("topics", Array(_TOPIC)),
    Field("endpoints", Array(ENDPOINT)),
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Sequence[ShareTopic],
    *,
    group_id: str = "share",
    member_id: str = "member",
    session_epoch: int = 0,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id,
        version,
        client_id,
        group_id=group_id,
        member_id=member_id,
        session_epoch=session_epoch,
        is_renewal=False,
        topics=topics,
    )


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int,
    version: int,
    topics: Sequence[AcknowledgedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    lock_timeout_ms: int = 30_000,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(
        correlation_id,
        version,
        topics=topics,
        throttle_ms=throttle_ms,
        error_code=error_code,
        error_message=error_message,
        lock_timeout_ms=lock_timeout_ms,
        endpoints=endpoints,
    )


parse_response: Final = _RESPONSE.read
