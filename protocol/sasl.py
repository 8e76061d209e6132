"""Reads Kafka's two requests for SASL logins, and the user name in the tokens of each mechanism.

After a SaslHandshake v0 (key 17) both sides send raw tokens, each an int32 length and that many bytes, until the login
is complete. After later versions the tokens are in SaslAuthenticate messages (key 36).

The functions that return a user name parse a token as Kafka's servers do. They return None if the user cannot be
determined. A malformed token raises no error, because the broker refuses it anyway. Messages may contain a password, so
this module never stores or quotes their bytes.

Source: SaslHandshakeRequest.json, SaslHandshakeResponse.json, ``PlainSaslServer``, ``ScramMessages``,
``ScramSaslServer``, ``OAuthBearerClientInitialResponse`` in Apache Kafka; RFC 4616, 5802, 7628.
"""

import json
import re
from base64 import b64decode
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey, is_flexible
from kafka_quota_proxy.protocol.codec import read_fields
from kafka_quota_proxy.protocol.errors import FrameSizeError, LoginTooLarge, NotKafka
from kafka_quota_proxy.protocol.header import read_frame_size
from kafka_quota_proxy.protocol.primitives import Buffer, read_int16, read_string, skip_tags

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

# After a SaslHandshake of this version both sides send raw tokens, without a Kafka header.
RAW_HANDSHAKE: Final = 0

# A broker answers a login that it does not expect with this error. Other requests may follow on the connection.
ILLEGAL_SASL_STATE: Final = 34

# The default of Kafka's sasl.server.max.receive.size.
MAX_LOGIN_BYTES: Final = 524_288

_SIZE_BYTES: Final = 4
_CORRELATION_ID_BYTES: Final = 4
# The end of error_code in a response, after its size: correlation_id, one byte for no tags, error_code.
_ERROR_CODE_END: Final = 4 + 1 + 2
_SASLNAME: Final = re.compile(r"(?:[^=]|=2C|=3D)+")
_SEPARATOR: Final = "\x01"  # between OAUTHBEARER's key-value pairs


class AuthenticateResponse(NamedTuple):
    """A broker's response to a login token. If ``session_lifetime_ms`` is 0, the login does not expire."""

    error_code: int
    token: bytes  # the token that the broker sends
    session_lifetime_ms: int

    def __repr__(self) -> str:
        return f"AuthenticateResponse(error_code={self.error_code})"


# -- frames


def check_login_size(size_bytes: int) -> None:
    """Raise LoginTooLarge if the size of a SASL login frame is above ``MAX_LOGIN_BYTES``."""
    if size_bytes > MAX_LOGIN_BYTES:
        raise LoginTooLarge(f"a login frame has {size_bytes} bytes, above the limit of {MAX_LOGIN_BYTES}")


def read_token_size(data: bytes, offset: int) -> int | None:
    """Return the length of the raw SASL token at ``offset``, or None if more bytes are needed.

    Raises LoginTooLarge if the length is below 0 or above ``MAX_LOGIN_BYTES``.
    """
    try:
        return read_frame_size(data, offset, MAX_LOGIN_BYTES)
    except (FrameSizeError, NotKafka):
        # These bytes may be part of a password, and the original error quotes them.
        raise LoginTooLarge(f"a login token has a length below 0 or above {MAX_LOGIN_BYTES}") from None


def is_request(data: bytes, offset: int) -> bool | None:
    """Return True if a Kafka request begins at ``offset``, and False if a raw GSSAPI token begins at it.

    Returns None if more bytes are needed. The api_key of a request begins with a zero byte. A GSSAPI token is empty, or
    begins with 0x60 (RFC 2743), 0x05 or another non-zero byte (RFC 4121).
    """
    if offset + _SIZE_BYTES > len(data):
        return None
    if data.startswith(bytes(_SIZE_BYTES), offset):
        return False
    return data[offset + _SIZE_BYTES] == 0 if offset + _SIZE_BYTES < len(data) else None


def is_handshake(data: bytes, offset: int) -> bool | None:
    """Return whether a SaslHandshake request begins at ``offset``, or None if more bytes are needed."""
    api_key = data[offset + _SIZE_BYTES : offset + _SIZE_BYTES + 2]
    return int.from_bytes(api_key, "big") == ApiKey.SASL_HANDSHAKE if len(api_key) == 2 else None


def read_handshake(body: Buffer) -> str:
    """Return the name of the mechanism in a SaslHandshake request, or "" if the name is not UTF-8."""
    mechanism, _ = read_string(body, 0, is_compact=False)
    return _text(mechanism) or ""


def read_handshake_error(body: Buffer) -> int:
    """Return the error code of a SaslHandshake response."""
    return read_int16(body, 0)[0]


def has_error_code(data: Buffer, position: int) -> bool:
    """Whether the error code of a SASL response has arrived. Also True for a whole response that lacks one."""
    size_bytes = int.from_bytes(data[position : position + _SIZE_BYTES], signed=True)
    return len(data) - position >= _SIZE_BYTES + min(size_bytes, _ERROR_CODE_END)


def is_illegal_sasl_state(data: Buffer, position: int, api_key: int, api_version: int) -> bool:
    """Whether a SASL response has the error ``ILLEGAL_SASL_STATE``. Call this only after ``has_error_code`` is True.

    Source: ``KafkaApis.handleSaslHandshakeRequest`` and ``handleSaslAuthenticateRequest`` in Apache Kafka.
    """
    offset = position + _SIZE_BYTES + _CORRELATION_ID_BYTES
    offset += is_flexible(api_key, api_version)  # no broker sends tags in the header
    return int.from_bytes(data[offset : offset + 2]) == ILLEGAL_SASL_STATE


def read_authenticate(body: Buffer, api_version: int) -> bytes:
    """Return the client's token from the body of a SaslAuthenticate request."""
    (token,), _ = read_fields(body, 0, ApiKey.SASL_AUTHENTICATE, api_version, "request")
    return bytes(token)


def read_authenticate_response(body: Buffer, api_version: int) -> AuthenticateResponse:
    """Read a SaslAuthenticate response. ``body`` contains the bytes that follow the correlation_id."""
    at = skip_tags(body, 0) if is_flexible(ApiKey.SASL_AUTHENTICATE, api_version) else 0
    (error_code, _, token, lifetime_ms), _ = read_fields(body, at, ApiKey.SASL_AUTHENTICATE, api_version, "response")
    return AuthenticateResponse(error_code, token, lifetime_ms or 0)


# -- users


def plain_user(token: bytes) -> str | None:
    r"""Return the user name in a PLAIN token, ``authzid \0 authcid \0 passwd`` (RFC 4616).

    Unlike RFC 4616, Kafka accepts an authzid only if it is empty or equal to the authcid.
    """
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        return None
    authzid, authcid, _ = parts
    return _text(authcid) if authzid in (b"", authcid) else None


def scram_user(token: bytes) -> str | None:
    """Return the user name in SCRAM's client-first-message, ``n,,n=user,r=nonce`` (RFC 5802).

    Returns None if the message is malformed, or has the extension ``tokenauth=true``, which means that the client logs
    in with a delegation token. Only the broker knows the owner of that token.
    """
    fields = (_text(token) or "").split(",", 5)
    if len(fields) > 2 and fields[2].startswith("m="):
        del fields[2]
    if len(fields) < 4 or not fields[2].startswith("n=") or not fields[3].startswith("r="):
        return None
    if _last_value(",".join(fields[3:]), "tokenauth", between=",").lower() == "true":
        return None
    return _user_without_other_authzid(fields[1], _unescaped(fields[2][2:]))


def is_scram_success(token: bytes) -> bool:
    """Whether ``token`` is SCRAM's server-final-message after a successful login."""
    return token.startswith(b"v=")


def is_scram_failure(token: bytes) -> bool:
    """Whether ``token`` is SCRAM's server-final-message with an error."""
    return token.startswith(b"e=")


def oauthbearer_user(token: bytes, *, claim: str) -> str | None:
    r"""Return the user of an OAUTHBEARER token, ``n,,\1auth=Bearer TOKEN\1\1`` (RFC 7628).

    TOKEN is a JSON web token (RFC 7519). Its claim with the name ``claim`` contains the user's name (Kafka's
    ``sasl.oauthbearer.sub.claim.name``). The broker checks the signature, so this function does not. Returns None if
    the token is malformed, or if TOKEN is opaque or encrypted.
    """
    text = _text(token) or ""
    gs2 = text.partition(_SEPARATOR)[0].split(",", 3)
    scheme, _, web_token = _last_value(text, "auth", between=_SEPARATOR).partition(" ")
    parts = web_token.strip(" ").split(".", 3)
    if len(gs2) != 3 or scheme.lower() != "bearer" or len(parts) != 3:
        return None
    user = _claim(parts[1], claim)
    # Kafka's validator strips white space around a name. The validator that Kafka has for tests does not.
    return _user_without_other_authzid(gs2[1], user) if user is not None and user == user.strip() else None


def _claim(payload: str, claim: str) -> str | None:
    """Return a claim from the payload of a JSON web token, or None if the claim is missing or not a string."""
    try:
        found = json.loads(b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True).decode())
    except (ValueError, RecursionError):
        return None
    value = found.get(claim) if isinstance(found, dict) else None
    # JSON can contain a lone surrogate, which cannot be encoded.
    return _text(value.encode(errors="surrogatepass")) if isinstance(value, str) else None


def _last_value(text: str, key: str, *, between: str) -> str:
    """Return the last value of ``key`` in key=value pairs that ``between`` separates, or "" if there is none."""
    return text.rpartition(f"{between}{key}=")[2].partition(between)[0] if f"{between}{key}=" in text else ""


def _user_without_other_authzid(authzid: str, user: str | None) -> str | None:
    """Return ``user``, or None if ``authzid`` (``a=NAME`` or empty) names another user."""
    if not user or not authzid:
        return user or None
    named = authzid.removeprefix("a=")
    return user if user in (named, _unescaped(named)) else None


def _unescaped(name: str) -> str | None:
    """Decode ``=2C`` (comma) and ``=3D`` (equals sign) in a saslname (RFC 5802). Returns None if it is malformed."""
    return name.replace("=2C", ",").replace("=3D", "=") if _SASLNAME.fullmatch(name) else None


def _text(data: bytes) -> str | None:
    try:
        return data.decode() or None
    except UnicodeDecodeError:
        return None
