"""The messages of a login: Kafka's two requests around it, and inside them what each mechanism says of its user.

    SaslHandshake (key 17)      request   string mechanism
                                response  int16 error_code, array of strings
    SaslAuthenticate (key 36)   request   bytes auth_bytes
                                response  int16 error_code, string error_message, bytes auth_bytes,
                                          [v1+ int64 session_lifetime_ms]

From SaslAuthenticate v2 on, strings and bytes are compact and tags stand at the end. Behind a SaslHandshake v0 there is
no SaslAuthenticate: both sides send tokens, an int32 length each and so many bytes, until the mechanism is done.

The readers of users read as Kafka's own servers do and give None where they cannot tell: it is for the broker to refuse
what is wrong. Nothing here keeps a byte of a message, and no error quotes one.

Source: SaslHandshakeRequest.json, SaslAuthenticateRequest.json and their responses; ``PlainSaslServer``,
``ScramMessages``, ``ScramSaslServer``, ``OAuthBearerClientInitialResponse`` in Apache Kafka; RFC 4616, 5802, 7628.
"""

import json
import re
from base64 import b64decode
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey, is_flexible
from kafka_quota_proxy.protocol.errors import FrameSizeError, LoginTooLarge, MalformedLength, NotKafka
from kafka_quota_proxy.protocol.header import read_frame_size
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_int16,
    read_int32,
    read_string,
    read_uvarint,
    skip,
    skip_bytes,
    skip_compact_bytes,
    skip_compact_string,
    skip_string,
    skip_tags,
)

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

# The version of SaslHandshake behind which tokens have no header.
RAW_HANDSHAKE: Final = 0

# What a broker says that wants no login at all; other requests may follow.
ILLEGAL_SASL_STATE: Final = 34

# Kafka's sasl.server.max.receive.size: nobody needs more to say who he is.
MAX_LOGIN_BYTES: Final = 524_288

# Of SaslAuthenticate.
_FIRST_WITH_LIFETIME: Final = 1
_SIZE_BYTES: Final = 4
_CORRELATION_ID_BYTES: Final = 4
# Of a response, behind its size: correlation_id, one byte for no tags, error_code.
_ERROR_CODE_END: Final = 4 + 1 + 2
_SASLNAME: Final = re.compile(r"(?:[^=]|=2C|=3D)+")
_SEPARATOR: Final = "\x01"  # of OAUTHBEARER's key-value pairs


class AuthenticateResponse(NamedTuple):
    """What a broker says to a token; ``token`` is its own."""

    error_code: int
    token: bytes

    def __repr__(self) -> str:
        return f"AuthenticateResponse(error_code={self.error_code})"


# -- frames


def check_login_size(size_bytes: int) -> None:
    """Bound a frame that is read whole before anybody is known.

    Raises:
        LoginTooLarge: It has more than ``MAX_LOGIN_BYTES``.
    """
    if size_bytes > MAX_LOGIN_BYTES:
        raise LoginTooLarge(f"a frame of a login has {size_bytes} bytes, above the limit of {MAX_LOGIN_BYTES}")


def read_token_size(data: bytes, offset: int) -> int | None:
    """Read the length in front of a raw token; 0 is one. None if more bytes are needed.

    Raises:
        FrameSizeError: No side sends this length.
    """
    try:
        return read_frame_size(data, offset, MAX_LOGIN_BYTES)
    except (FrameSizeError, NotKafka):
        # What stands in its place may be part of a password, and those errors quote it.
        raise LoginTooLarge(f"a token of a login has a length below 0 or above {MAX_LOGIN_BYTES}") from None


def is_request(data: bytes, offset: int) -> bool | None:
    """Tell a Kafka request from a raw token of a mechanism that is not read here; None if more bytes are needed.

    An api_key begins with a zero byte. Of GSSAPI, the one mechanism that clients of that age have beside those read
    here, a token is empty or begins with 0x60 (RFC 2743), 0x05 or another non-zero byte (RFC 4121).
    """
    if offset + _SIZE_BYTES > len(data):
        return None
    if data.startswith(bytes(_SIZE_BYTES), offset):
        return False
    return data[offset + _SIZE_BYTES] == 0 if offset + _SIZE_BYTES < len(data) else None


def is_handshake(data: bytes, offset: int) -> bool | None:
    """Tell a SaslHandshake request from anything else; None if more bytes are needed."""
    api_key = data[offset + _SIZE_BYTES : offset + _SIZE_BYTES + 2]
    return int.from_bytes(api_key, "big") == ApiKey.SASL_HANDSHAKE if len(api_key) == 2 else None


def read_handshake(body: Buffer) -> str:
    """Read the mechanism that a SaslHandshake asks for; one that is no UTF-8 is nobody's, and "".

    Raises:
        ProtocolError: The body is none.
    """
    mechanism, _ = read_string(body, 0, is_compact=False)
    return _text(mechanism) or ""


def read_handshake_error(body: Buffer) -> int:
    """Read the error code of a SaslHandshake's response.

    Raises:
        Truncated: The body is none.
    """
    return read_int16(body, 0)[0]


def has_error_code(data: Buffer, position: int) -> bool:
    """Whether what has come of a response to one of the two, its size first, has all that it has of an error code."""
    size_bytes = int.from_bytes(data[position : position + _SIZE_BYTES], signed=True)
    return len(data) - position >= _SIZE_BYTES + min(size_bytes, _ERROR_CODE_END)


def is_illegal_sasl_state(data: Buffer, position: int, api_key: int, api_version: int) -> bool:
    """Whether a broker has taken a request of one of the two for no part of a login: ``ILLEGAL_SASL_STATE``.

    Args:
        data: Bytes from the broker, of which ``has_error_code`` holds.
        position: Where the response's size is.
        api_key: Of the request.
        api_version: Of the request.

    Source: ``KafkaApis.handleSaslHandshakeRequest`` and ``handleSaslAuthenticateRequest`` in Apache Kafka.
    """
    offset = position + _SIZE_BYTES + _CORRELATION_ID_BYTES
    offset += is_flexible(api_key, api_version)  # no broker sends tags in the header
    return int.from_bytes(data[offset : offset + 2]) == ILLEGAL_SASL_STATE


def read_authenticate(body: Buffer, api_version: int) -> bytes:
    """Read the client's token; a version newer than 2 is read like 2.

    Raises:
        ProtocolError: The body is none.
    """
    return _read_bytes(body, 0, is_compact=is_flexible(ApiKey.SASL_AUTHENTICATE, api_version))


def read_authenticate_response(body: Buffer, api_version: int) -> AuthenticateResponse:
    """Read the broker's error code and its token; a version newer than 2 is read like 2.

    Args:
        body: Behind the correlation_id.
        api_version: Of the request.

    Raises:
        ProtocolError: The body is none.
    """
    is_compact = is_flexible(ApiKey.SASL_AUTHENTICATE, api_version)
    offset = skip_tags(body, 0) if is_compact else 0
    error_code, offset = read_int16(body, offset)
    offset = skip_compact_string(body, offset) if is_compact else skip_string(body, offset)
    return AuthenticateResponse(error_code, _read_bytes(body, offset, is_compact=is_compact))


def read_session_lifetime_ms(body: Buffer, api_version: int) -> int:
    """Read for how long the broker lets a client go on as who it is; 0: as long as it likes, or v0, which says nothing.

    Args:
        body: As for ``read_authenticate_response``.
        api_version: Of the request.

    Raises:
        ProtocolError: The body is none.
    """
    if api_version < _FIRST_WITH_LIFETIME:
        return 0
    is_compact = is_flexible(ApiKey.SASL_AUTHENTICATE, api_version)
    offset = skip(body, skip_tags(body, 0) if is_compact else 0, 2)
    offset = skip_compact_string(body, offset) if is_compact else skip_string(body, offset)
    offset = skip_compact_bytes(body, offset) if is_compact else skip_bytes(body, offset)
    return int.from_bytes(body[offset : skip(body, offset, 8)], signed=True)


def _read_bytes(body: Buffer, offset: int, *, is_compact: bool) -> bytes:
    if is_compact:
        length, offset = read_uvarint(body, offset)
        length -= 1
    else:
        length, offset = read_int32(body, offset)
    if length < 0:
        raise MalformedLength(f"bytes that cannot be null have length {length}")
    return bytes(body[offset : skip(body, offset, length)])


# -- users


def plain_user(token: bytes) -> str | None:
    r"""Return who logs in with ``authzid \0 authcid \0 passwd`` (RFC 4616).

    Unlike RFC 4616, Kafka lets nobody act for another: an authzid is empty, or the same name.
    """
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        return None
    authzid, authcid, _ = parts
    return _text(authcid) if authzid in (b"", authcid) else None


def scram_user(token: bytes) -> str | None:
    """Return who logs in with a client-first-message, ``n,,n=user,r=nonce`` (RFC 5802).

    With the extension ``tokenauth=true`` the name is that of a delegation token, and its owner the broker's secret.
    """
    fields = (_text(token) or "").split(",", 5)
    if len(fields) > 2 and fields[2].startswith("m="):
        del fields[2]
    if len(fields) < 4 or not fields[2].startswith("n=") or not fields[3].startswith("r="):
        return None
    if _last_value(",".join(fields[3:]), "tokenauth", between=",").lower() == "true":
        return None
    return _user_beside(fields[1], _unescaped(fields[2][2:]))


def is_scram_success(token: bytes) -> bool:
    """Whether this is a server-final-message with the verifier: the broker knows the client by its password."""
    return token.startswith(b"v=")


def is_scram_failure(token: bytes) -> bool:
    """Whether this is a server-final-message with an error."""
    return token.startswith(b"e=")


def oauthbearer_user(token: bytes, *, claim: str) -> str | None:
    r"""Return whom the JSON web token in ``n,,\1auth=Bearer TOKEN\1\1`` names (RFC 7628, 7519).

    The signature is the broker's to check. A token that is opaque or encrypted names nobody here.

    Args:
        token: The client's first message.
        claim: The claim that holds the name, Kafka's ``sasl.oauthbearer.sub.claim.name``.
    """
    text = _text(token) or ""
    gs2 = text.partition(_SEPARATOR)[0].split(",", 3)
    scheme, _, web_token = _last_value(text, "auth", between=_SEPARATOR).partition(" ")
    parts = web_token.strip(" ").split(".", 3)
    if len(gs2) != 3 or scheme.lower() != "bearer" or len(parts) != 3:
        return None
    user = _claim(parts[1], claim)
    # Kafka's validator cuts white space around a name off, its validator for tests does not.
    return _user_beside(gs2[1], user) if user is not None and user == user.strip() else None


def _claim(payload: str, claim: str) -> str | None:
    """Return a claim of a web token's middle part, base64url without padding."""
    try:
        found = json.loads(b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True).decode())
    except (ValueError, RecursionError):
        return None
    value = found.get(claim) if isinstance(found, dict) else None
    # JSON can spell a lone surrogate, which is no text and cannot be written anywhere.
    return _text(value.encode(errors="surrogatepass")) if isinstance(value, str) else None


def _last_value(text: str, key: str, *, between: str) -> str:
    """Return the value of a key that stands behind a separator; Kafka takes the last where it is given twice."""
    return text.rpartition(f"{between}{key}=")[2].partition(between)[0] if f"{between}{key}=" in text else ""


def _user_beside(authzid: str, user: str | None) -> str | None:
    """Return the user of ``a=authzid``, or of an empty one: nobody acts for another."""
    if not user or not authzid:
        return user or None
    named = authzid.removeprefix("a=")
    return user if user in (named, _unescaped(named)) else None


def _unescaped(name: str) -> str | None:
    """Return a saslname with ``=2C`` and ``=3D`` as the comma and the equals sign that they stand for."""
    return name.replace("=2C", ",").replace("=3D", "=") if _SASLNAME.fullmatch(name) else None


def _text(data: bytes) -> str | None:
    try:
        return data.decode() or None
    except UnicodeDecodeError:
        return None
