"""Heartbeat (key 12), v0 to v4."""

from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 12
VERSIONS: Final = range(5)


class HeartbeatRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    generation: int = 1
    member_id: str = "member"


class HeartbeatResponse(NamedTuple):
    correlation_id: int
    error_code: int = 0
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, HeartbeatRequest, HeartbeatResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
