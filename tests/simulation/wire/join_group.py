"""JoinGroup (key 11), v0 to v9."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 11
VERSIONS: Final = range(10)


class GroupProtocol(NamedTuple):
    """A way to assign partitions that the member knows."""

    name: str
    metadata: bytes = b""


class JoinGroupRequest(NamedTuple):
    header: RequestHeader
    group_id: str
    member_id: str = ""
    protocols: Sequence[GroupProtocol] = (GroupProtocol("range"),)
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"


class Member(NamedTuple):
    member_id: str
    metadata: bytes = b""


class JoinGroupResponse(NamedTuple):
    correlation_id: int
    error_code: int = 0
    generation: int = 1
    protocol_type: str | None = "consumer"
    protocol_name: str | None = "range"
    leader: str = ""
    member_id: str = ""
    members: Sequence[Member] = ()
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, JoinGroupRequest, JoinGroupResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
