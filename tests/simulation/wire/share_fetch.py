"""ShareFetch (key 78), v1 and v2."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import Leader, NodeEndpoint, RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    ENDPOINT,
    I8,
    I16,
    I32,
    I64,
    LEADER,
    NULLABLE_DATA,
    NULLABLE_STRING,
    UUID,
    Array,
    Field,
    Request,
    Response,
    Struct,
)
from tests.simulation.wire.share import SHARE_TOPIC, ShareTopic

API_KEY: Final = 78
VERSIONS: Final = range(1, 3)

_NO_LEADER: Final = Leader(-1, -1)


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    topic_id: bytes
    partitions: Sequence[int]


class ShareFetchRequest(NamedTuple):
    header: RequestHeader
    group_id: str | None
    member_id: str | None
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    topics: Sequence[ShareTopic]
    forgotten: Sequence[ForgottenTopic]
    acquire_mode: int = 0
    is_renewal: bool = False


class AcquiredRecords(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int = 1


class SharedPartition(NamedTuple):
    """What a partition answers."""

    partition: int
    records: bytes | None = b""
    acquired: Sequence[AcquiredRecords] = ()
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    leader: Leader = _NO_LEADER


class SharedTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[SharedPartition]


class ShareFetchResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    error_code: int
    error_message: str | None
    lock_timeout_ms: int
    topics: Sequence[SharedTopic]
    endpoints: Sequence[NodeEndpoint]


_FORGOTTEN: Final = Struct(ForgottenTopic, Field("topic_id", UUID), Field("partitions", Array(I32)))
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    ShareFetchRequest,
    Field("group_id", NULLABLE_STRING),
    Field("member_id", NULLABLE_STRING),
    Field("session_epoch", I32),
    Field("max_wait_ms", I32),
    Field("min_bytes", I32),
    Field("max_bytes", I32),
    Field("max_records", I32),
    Field("batch_size", I32),
    Field("acquire_mode", I8, first=2),
    Field("is_renewal", BOOLEAN, first=2),
    Field("topics", Array(SHARE_TOPIC)),
    Field("forgotten", Array(_FORGOTTEN)),
)
_ACQUIRED: Final = Struct(
    AcquiredRecords, Field("first_offset", I64), Field("last_offset", I64), Field("delivery_count", I16)
)
_PARTITION: Final = Struct(
    SharedPartition,
    Field("partition", I32),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("acknowledge_error_code", I16),
    Field("acknowledge_error_message", NULLABLE_STRING),
    Field("leader", LEADER),
    Field("records", NULLABLE_DATA),
    Field("acquired", Array(_ACQUIRED)),
)
_TOPIC: Final = Struct(SharedTopic, Field("topic_id", UUID), Field("partitions", Array(_PARTITION)))
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    ShareFetchResponse,
    Field("throttle_ms", I32),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("lock_timeout_ms", I32),
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
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    max_records: int = 500,
    batch_size: int = 500,
    forgotten: Sequence[ForgottenTopic] = (),
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id, version, client_id, group_id=group_id, member_id=member_id, session_epoch=session_epoch,
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, max_records=max_records,
        batch_size=batch_size, acquire_mode=0, is_renewal=False, topics=topics, forgotten=forgotten,
    )  # fmt: skip


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int,
    version: int,
    topics: Sequence[SharedTopic],
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
