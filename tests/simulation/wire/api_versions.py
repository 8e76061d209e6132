"""ApiVersions (key 18), v0 to v4.

A broker that does not know the version of the request answers in v0, with error 35.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader, open_response

API_KEY: Final = 18
VERSIONS: Final = range(5)
UNSUPPORTED_VERSION: Final = 35


class ApiVersionsRequest(NamedTuple):
    header: RequestHeader
    software_name: str = "simulated"
    software_version: str = "1.0"


class OfferedApi(NamedTuple):
    """The first and the last version of an API that the broker knows."""

    api_key: int
    first: int
    last: int


class ApiVersionsResponse(NamedTuple):
    correlation_id: int
    apis: Sequence[OfferedApi]
    error_code: int = 0
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, ApiVersionsRequest, ApiVersionsResponse)
request, parse_request = API.request, API.parse_request


def response(
    correlation_id: int,
    version: int,
    apis: Mapping[int, tuple[int, int]],
    *,
    error_code: int = 0,
    throttle_ms: int = 0,
) -> bytes:
    """Return a response."""
    offered = [OfferedApi(api_key, *apis[api_key]) for api_key in sorted(apis)]
    return API.response(correlation_id, version, offered, error_code, throttle_ms)


def parse_response(frame: bytes, version: int) -> ApiVersionsResponse:
    """Read a response. One with error 35 is read as v0, as clients do."""
    at = open_response(frame, API_KEY, version)[1]
    is_unsupported = int.from_bytes(frame[at : at + 2]) == UNSUPPORTED_VERSION
    return API.parse_response(frame, 0 if is_unsupported else version)
