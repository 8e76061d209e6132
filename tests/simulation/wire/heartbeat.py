"""Heartbeat (key 12), v0 to v4."""

from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import I16, I32, NULLABLE_STRING, STRING, Field, Request, Response

API_KEY: Final = 12
VERSIONS: Final = range(5)


class HeartbeatRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class HeartbeatResponse(NamedTuple):
    correlation_id: int
    error_code: int
    throttle_ms: int = 0


_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    HeartbeatRequest,
    Field("group_id", STRING),
    Field("generation", I32),
    Field("member_id", STRING),
    Field("instance_id", NULLABLE_STRING, first=3),
)
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, HeartbeatResponse, Field("throttle_ms", I32, first=1), Field("error_code", I16)
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    group_id: str,
    *,
    generation: int = 1,
    member_id: str = "member",
    instance_id: str | None = None,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id,
        version,
        client_id,
        group_id=group_id,
        generation=generation,
        member_id=member_id,
        instance_id=instance_id,
    )


parse_request: Final = _REQUEST.read


def response(correlation_id: int, version: int, *, error_code: int = 0, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, error_code=error_code, throttle_ms=throttle_ms)


parse_response: Final = _RESPONSE.read
