"""The frames that a client and a broker of Kafka exchange in a SASL login."""

import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from struct import pack

from kafka_quota_proxy.protocol.primitives import write_uvarint
from tests.support.frames import framed, request_header

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
SASL_AUTHENTICATION_FAILED = 58
UNSUPPORTED_SASL_MECHANISM = 33

# The example of RFC 7677, section 3: user "user", password "pencil".
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

EMPTY = b""


def web_token(claims: object) -> str:
    """Return an unsigned JSON web token, as Kafka's own client makes it for tests."""
    parts = (json.dumps({"alg": "none"}), json.dumps(claims))
    return ".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts) + "."


def bearer(token: str, *, authzid: str = "") -> bytes:
    """Return the client's first message of OAUTHBEARER."""
    return f"n,{authzid},\x01auth=Bearer {token}\x01\x01".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """A login by a SASL mechanism.

    Attributes:
        mechanism: The name of the SASL mechanism.
        tokens: For each round, the token of the client and the token of the broker.
        user: The user that the proxy finds in the login.
    """

    mechanism: str
    tokens: tuple[tuple[bytes, bytes], ...]
    user: str


def plain(user: str, password: str = "secret") -> Dialogue:  # noqa: S107 - nobody's
    """Return a login by name and password."""
    return Dialogue(mechanism="PLAIN", tokens=((f"\0{user}\0{password}".encode(), EMPTY),), user=user)


def scram(user: str = "user", *, mechanism: str = "SCRAM-SHA-256", extensions: str = "") -> Dialogue:
    """Return a login by SCRAM.

    The proofs are those of the RFC's example, and are not valid for another user. The tests do not check them.
    """
    first = CLIENT_FIRST.replace(b"n=user", f"n={user}".encode()) + extensions.encode()
    return Dialogue(mechanism=mechanism, tokens=((first, SERVER_FIRST), (CLIENT_FINAL, SERVER_FINAL)), user=user)


def oauthbearer(user: str) -> Dialogue:
    """Return a login by a web token."""
    return Dialogue(mechanism="OAUTHBEARER", tokens=((bearer(web_token({"sub": user})), EMPTY),), user=user)


# A login that the proxy cannot read. It has as many rounds as Kerberos.
GSSAPI = Dialogue(
    mechanism="GSSAPI",
    tokens=((b"\x60\x82ticket", b"\x60\x81reply"), (EMPTY, b"\x05\x04layers"), (b"\x05\x04choice", EMPTY)),
    user="UNKNOWN",
)

READABLE = [
    plain("alice"),
    scram(),
    scram(mechanism="SCRAM-SHA-512"),
    oauthbearer("alice"),
]


def handshake_request(mechanism: str, *, version: int = 1, correlation_id: int = 1) -> bytes:
    """Return a SaslHandshake request."""
    name = mechanism.encode()
    header = request_header(SASL_HANDSHAKE, version, correlation_id, "etl", is_flexible=False)
    return framed(header + pack(">h", len(name)) + name)


def handshake_response(*, error_code: int = 0, correlation_id: int = 1) -> bytes:
    """Return the response to SaslHandshake."""
    return framed(pack(">ihi", correlation_id, error_code, 2) + b"\0\x05PLAIN\0\x0bOAUTHBEARER")


def authenticate_request(token: bytes, *, version: int = 1, correlation_id: int = 2) -> bytes:
    """Return a SaslAuthenticate request."""
    header = request_header(SASL_AUTHENTICATE, version, correlation_id, "etl", is_flexible=version >= 2)
    body = write_uvarint(len(token) + 1) + token + b"\0" if version >= 2 else pack(">i", len(token)) + token
    return framed(header + body)


def authenticate_response(
    token: bytes = EMPTY,
    *,
    error_code: int = 0,
    version: int = 1,
    correlation_id: int = 2,
    lifetime_ms: int = 3_600_000,
) -> bytes:
    """Return the response to SaslAuthenticate."""
    message = b"refused" if error_code else None
    lifetime = pack(">q", lifetime_ms) if version >= 1 else b""
    if version >= 2:
        text = b"\0" if message is None else write_uvarint(len(message) + 1) + message
        body = b"\0" + pack(">h", error_code) + text + write_uvarint(len(token) + 1) + token + lifetime + b"\0"
    else:
        text = pack(">h", -1) if message is None else pack(">h", len(message)) + message
        body = pack(">h", error_code) + text + pack(">i", len(token)) + token + lifetime
    return framed(pack(">i", correlation_id) + body)


def rounds(dialogue: Dialogue, *, handshake: int = 1, version: int = 1) -> list[tuple[bytes, bytes]]:
    """Return what the client and the broker send in each round of a login that succeeds."""
    found = [(handshake_request(dialogue.mechanism, version=handshake), handshake_response())]
    for asked, told in dialogue.tokens:
        if handshake == 0:
            found.append((framed(asked), framed(told)))
        else:
            found.append((authenticate_request(asked, version=version), authenticate_response(told, version=version)))
    return found
