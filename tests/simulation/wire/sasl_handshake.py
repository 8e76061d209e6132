"""SaslHandshake (key 17), v0 and v1."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 17
VERSIONS: Final = range(2)


class SaslHandshakeRequest(NamedTuple):
    header: RequestHeader
    mechanism: str = "PLAIN"


class SaslHandshakeResponse(NamedTuple):
    correlation_id: int
    mechanisms: Sequence[str] = ("PLAIN",)
    error_code: int = 0


API: Final = Api(API_KEY, VERSIONS, SaslHandshakeRequest, SaslHandshakeResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
