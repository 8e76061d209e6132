"""OffsetFetch (key 9), v1 to v7: of one group."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    I16,
    I32,
    I64,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Request,
    Response,
    Struct,
)

API_KEY: Final = 9
VERSIONS: Final = range(1, 8)


class AskedTopic(NamedTuple):
    name: str
    partitions: Sequence[int]


class OffsetFetchRequest(NamedTuple):
    """A request. ``topics`` None asks for all, from v2 on."""

    header: RequestHeader
    group_id: str
    topics: Sequence[AskedTopic] | None
    require_stable: bool = False


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


_ASKED: Final = Struct(AskedTopic, Field("name", STRING), Field("partitions", Array(I32)))
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    OffsetFetchRequest,
    Field("group_id", STRING),
    Field("topics", Array(_ASKED), last=1),
    Field("topics", Array(_ASKED, nullable=True), first=2),
    Field("require_stable", BOOLEAN, first=7),
)
_PARTITION: Final = Struct(
    FoundPartition,
    Field("partition", I32),
    Field("offset", I64),
    Field("leader_epoch", I32, first=5),
    Field("metadata", NULLABLE_STRING),
    Field("error_code", I16),
)
_TOPIC: Final = Struct(FoundTopic, Field("name", STRING), Field("partitions", Array(_PARTITION)))
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    OffsetFetchResponse,
    Field("throttle_ms", I32, first=3),
    Field("topics", Array(_TOPIC)),
    Field("error_code", I16, first=2),
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    group_id: str,
    topics: Sequence[AskedTopic] | None,
    *,
    require_stable: bool = False,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id, version, client_id, group_id=group_id, topics=topics, require_stable=require_stable
    )


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int, version: int, topics: Sequence[FoundTopic], *, throttle_ms: int = 0, error_code: int = 0
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, topics=topics, throttle_ms=throttle_ms, error_code=error_code)


parse_response: Final = _RESPONSE.read
