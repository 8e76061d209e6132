"""JoinGroup (key 11), v0 to v9."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    DATA,
    I16,
    I32,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Request,
    Response,
    Struct,
)

API_KEY: Final = 11
VERSIONS: Final = range(10)

_FIRST_NULLABLE_PROTOCOL: Final = 7


class GroupProtocol(NamedTuple):
    """A way to assign partitions that the member knows."""

    name: str
    metadata: bytes = b""


class JoinGroupRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    session_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: Sequence[GroupProtocol]
    rebalance_timeout_ms: int = -1
    instance_id: str | None = None
    reason: str | None = None


class Member(NamedTuple):
    member_id: str
    metadata: bytes = b""
    instance_id: str | None = None


class JoinGroupResponse(NamedTuple):
    correlation_id: int
    error_code: int
    generation: int
    protocol_name: str | None
    leader: str
    member_id: str
    members: Sequence[Member]
    throttle_ms: int = 0
    protocol_type: str | None = None
    skip_assignment: bool = False


_PROTOCOL: Final = Struct(GroupProtocol, Field("name", STRING), Field("metadata", DATA))
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    JoinGroupRequest,
    Field("group_id", STRING),
    Field("session_timeout_ms", I32),
    Field("rebalance_timeout_ms", I32, first=1),
    Field("member_id", STRING),
    Field("instance_id", NULLABLE_STRING, first=5),
    Field("protocol_type", STRING),
    Field("protocols", Array(_PROTOCOL)),
    Field("reason", NULLABLE_STRING, first=8),
)
_MEMBER: Final = Struct(
    Member, Field("member_id", STRING), Field("instance_id", NULLABLE_STRING, first=5), Field("metadata", DATA)
)
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    JoinGroupResponse,
    Field("throttle_ms", I32, first=2),
    Field("error_code", I16),
    Field("generation", I32),
    Field("protocol_type", NULLABLE_STRING, first=7),
    Field("protocol_name", STRING, last=_FIRST_NULLABLE_PROTOCOL - 1),
    Field("protocol_name", NULLABLE_STRING, first=_FIRST_NULLABLE_PROTOCOL),
    Field("leader", STRING),
    Field("skip_assignment", BOOLEAN, first=9),
    Field("member_id", STRING),
    Field("members", Array(_MEMBER)),
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    group_id: str,
    *,
    member_id: str = "",
    protocols: Sequence[GroupProtocol] = (GroupProtocol("range"),),
    session_timeout_ms: int = 45_000,
    rebalance_timeout_ms: int = 300_000,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id,
        version,
        client_id,
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        instance_id=None,
        protocol_type="consumer",
        protocols=protocols,
        reason=None,
    )


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int,
    version: int,
    *,
    error_code: int = 0,
    generation: int = 1,
    protocol_name: str = "range",
    leader: str = "",
    member_id: str = "",
    members: Sequence[Member] = (),
    throttle_ms: int = 0,
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(
        correlation_id,
        version,
        throttle_ms=throttle_ms,
        error_code=error_code,
        generation=generation,
        protocol_type="consumer",
        protocol_name=protocol_name,
        leader=leader,
        skip_assignment=False,
        member_id=member_id,
        members=members,
    )


parse_response: Final = _RESPONSE.read
