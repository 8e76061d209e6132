"""SaslAuthenticate (key 36), v0 to v2, and the token of PLAIN (RFC 4616)."""

from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader, WireError

API_KEY: Final = 36
VERSIONS: Final = range(3)
AUTHENTICATION_FAILED: Final = 58


class SaslAuthenticateRequest(NamedTuple):
    header: RequestHeader
    token: bytes


class SaslAuthenticateResponse(NamedTuple):
    correlation_id: int
    error_code: int = 0
    error_message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0


def plain_token(user: str, password: str) -> bytes:
    """Return the token by which a client logs in as itself."""
    return f"\0{user}\0{password}".encode()


def parse_plain_token(token: bytes) -> tuple[str, str]:
    """Return the user and the password."""
    parts = token.split(b"\0")
    if len(parts) != 3 or not parts[1]:
        raise WireError(f"no token of PLAIN: {token!r}")
    return parts[1].decode(), parts[2].decode()


API: Final = Api(API_KEY, VERSIONS, SaslAuthenticateRequest, SaslAuthenticateResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
