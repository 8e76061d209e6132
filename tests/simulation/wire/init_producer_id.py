"""InitProducerId (key 22), v0 to v5."""

from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 22
VERSIONS: Final = range(6)


class InitProducerIdRequest(NamedTuple):
    header: RequestHeader
    transactional_id: str | None = None
    timeout_ms: int = 60_000


class InitProducerIdResponse(NamedTuple):
    correlation_id: int
    producer_id: int
    epoch: int = 0
    error_code: int = 0
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, InitProducerIdRequest, InitProducerIdResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
