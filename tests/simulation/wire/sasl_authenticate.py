"""SaslAuthenticate (key 36), v0 to v2, and the token of PLAIN (RFC 4616)."""

from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader, WireError
from tests.simulation.wire.layout import DATA, I16, I64, NULLABLE_STRING, Field, Request, Response

API_KEY: Final = 36
VERSIONS: Final = range(3)
AUTHENTICATION_FAILED: Final = 58


class SaslAuthenticateRequest(NamedTuple):
    header: RequestHeader
    token: bytes


class SaslAuthenticateResponse(NamedTuple):
    correlation_id: int
    error_code: int
    error_message: str | None
    token: bytes
    session_lifetime_ms: int = 0


_REQUEST: Final = Request(API_KEY, VERSIONS, SaslAuthenticateRequest, Field("token", DATA))
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    SaslAuthenticateResponse,
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("token", DATA),
    Field("session_lifetime_ms", I64, first=1),
)


def plain_token(user: str, password: str) -> bytes:
    """Return the token by which a client logs in as itself."""
    return f"\0{user}\0{password}".encode()


def parse_plain_token(token: bytes) -> tuple[str, str]:
    """Return the user and the password."""
    parts = token.split(b"\0")
    if len(parts) != 3 or not parts[1]:
        raise WireError(f"no token of PLAIN: {token!r}")
    return parts[1].decode(), parts[2].decode()


def request(correlation_id: int, version: int, client_id: str | None, token: bytes) -> bytes:
    """Return a request."""
    return _REQUEST.write(correlation_id, version, client_id, token=token)


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int,
    version: int,
    *,
    error_code: int = 0,
    error_message: str | None = None,
    token: bytes = b"",
    session_lifetime_ms: int = 0,
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(
        correlation_id,
        version,
        error_code=error_code,
        error_message=error_message,
        token=token,
        session_lifetime_ms=session_lifetime_ms,
    )


parse_response: Final = _RESPONSE.read
