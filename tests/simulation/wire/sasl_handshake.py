"""SaslHandshake (key 17), v0 and v1."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import I16, STRING, Array, Field, Request, Response

API_KEY: Final = 17
VERSIONS: Final = range(2)


class SaslHandshakeRequest(NamedTuple):
    header: RequestHeader
    mechanism: str


class SaslHandshakeResponse(NamedTuple):
    correlation_id: int
    error_code: int
    mechanisms: Sequence[str]


_REQUEST: Final = Request(API_KEY, VERSIONS, SaslHandshakeRequest, Field("mechanism", STRING))
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, SaslHandshakeResponse, Field("error_code", I16), Field("mechanisms", Array(STRING))
)


def request(correlation_id: int, version: int, client_id: str | None, mechanism: str = "PLAIN") -> bytes:
    """Return a request."""
    return _REQUEST.write(correlation_id, version, client_id, mechanism=mechanism)


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int, version: int, mechanisms: Sequence[str] = ("PLAIN",), *, error_code: int = 0
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, mechanisms=mechanisms, error_code=error_code)


parse_response: Final = _RESPONSE.read
