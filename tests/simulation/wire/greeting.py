"""How a connection begins: ApiVersions, and the login by SASL."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader, WireError, open_response

# -- ApiVersions (key 18), v0 to v4 --
#
# A broker that does not know the version of the request answers in v0, with error 35.

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


class _ApiVersions(Api[..., ApiVersionsRequest, ..., ApiVersionsResponse]):
    def response(
        self,
        correlation_id: int,
        version: int,
        /,
        apis: Mapping[int, tuple[int, int]],
        *,
        error_code: int = 0,
        throttle_ms: int = 0,
    ) -> bytes:
        offered = [OfferedApi(api_key, *apis[api_key]) for api_key in sorted(apis)]
        return super().response(correlation_id, version, offered, error_code, throttle_ms)

    def parse_response(self, frame: bytes, version: int) -> ApiVersionsResponse:
        """Read a response. One with error 35 is read as v0, as clients do."""
        at = open_response(frame, self.key, version)[1]
        is_unsupported = int.from_bytes(frame[at : at + 2]) == UNSUPPORTED_VERSION
        return super().parse_response(frame, 0 if is_unsupported else version)


api_versions: Final = _ApiVersions(18, range(5), ApiVersionsRequest, ApiVersionsResponse)


# -- SaslHandshake (key 17), v0 and v1 --


class SaslHandshakeRequest(NamedTuple):
    header: RequestHeader
    mechanism: str = "PLAIN"


class SaslHandshakeResponse(NamedTuple):
    correlation_id: int
    mechanisms: Sequence[str] = ("PLAIN",)
    error_code: int = 0


sasl_handshake: Final = Api(17, range(2), SaslHandshakeRequest, SaslHandshakeResponse)


# -- SaslAuthenticate (key 36), v0 to v2, and the token of PLAIN (RFC 4616) --

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


sasl_authenticate: Final = Api(36, range(3), SaslAuthenticateRequest, SaslAuthenticateResponse)
