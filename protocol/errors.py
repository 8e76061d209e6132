"""The errors in a peer's bytes.

A peer's bytes give values, "more bytes are needed", or one of these errors; they never cause another exception::

    ProtocolError
    ├── Truncated             the bytes end inside a field
    ├── FrameSizeError
    │   ├── NegativeFrameSize
    │   ├── FrameTooLarge
    │   ├── FrameTooSmall     the frame ends before its required fields
    │   └── LoginTooLarge     a login frame above the limit
    ├── NotKafka
    │   ├── TlsOnPlaintext
    │   ├── HttpOnKafka
    │   ├── UnexpectedProxyProtocol
    │   └── MalformedProxyHeader
    ├── MalformedHeader       impossible api key, version or client_id length
    ├── HeadTooLong           a header above the limit
    ├── MalformedVarint
    ├── MalformedLength       a length or count below -1, or above what Kafka or the frame allows
    ├── TooManyElements       more array elements in one frame than the limit
    ├── TrailingBytes         bytes after the last field of a frame
    ├── UnexpectedResponse    a response to no request, or not to the oldest one
    ├── TokenAfterRefusal     no new handshake after a refused one
    ├── PrincipalChanged      a second login under another name
    ├── LoginExpired          a request that is answered here, after the login ended
    ├── MalformedCertificate  a TLS client certificate with an unreadable subject
    ├── NoMatchingRule        a TLS client name without a mapping rule
    └── UnknownVersion        a version that is not advertised, of an API that is charged by its requests' fields
"""

# The names are causes, as in Kafka; only the roots end in Error.
# ruff: noqa: N818

from typing import ClassVar


class ProtocolError(Exception):
    """A peer's bytes are not Kafka's protocol.

    Attributes:
        reason: A constant in snake_case, one per leaf; the label of a metric.
    """

    reason: ClassVar[str] = "protocol_error"


class Truncated(ProtocolError):
    """The bytes end inside a field: more are needed, or the whole frame is malformed."""

    reason = "truncated"


class FrameSizeError(ProtocolError):
    """The size of a frame is impossible."""

    reason = "frame_size"


class NegativeFrameSize(FrameSizeError):
    """The size is below 0."""

    reason = "negative_frame_size"


class FrameTooLarge(FrameSizeError):
    """The size is above the listener's limit (a broker's ``socket.request.max.bytes``)."""

    reason = "frame_too_large"


class FrameTooSmall(FrameSizeError):
    """The frame ends before its required fields."""

    reason = "frame_too_small"


class LoginTooLarge(FrameSizeError):
    """A login frame or token is longer than a broker's ``sasl.server.max.receive.size``."""

    reason = "login_too_large"


class NotKafka(ProtocolError):
    """The first bytes belong to another protocol."""

    reason = "not_kafka"


class TlsOnPlaintext(NotKafka):
    """A TLS record where plaintext was expected."""

    reason = "tls_on_plaintext"


class HttpOnKafka(NotKafka):
    """An HTTP request or response."""

    reason = "http_on_kafka"


class UnexpectedProxyProtocol(NotKafka):
    """A PROXY protocol header where none was expected."""

    reason = "unexpected_proxy_protocol"


class MalformedProxyHeader(NotKafka):
    """A PROXY protocol header is missing or malformed."""

    reason = "proxy_header"


class MalformedHeader(ProtocolError):
    """A request header with an impossible field."""

    reason = "malformed_header"


class HeadTooLong(ProtocolError):
    """A header is longer than the limit; waiting for its end would cost memory."""

    reason = "head_too_long"


class MalformedVarint(ProtocolError):
    """A varint of more than five bytes or 32 bits."""

    reason = "malformed_varint"


class MalformedLength(ProtocolError):
    """A length or count below -1, or above what Kafka allows or the frame can hold."""

    reason = "malformed_length"


class TooManyElements(ProtocolError):
    """A frame has more elements than the limit; reading each of them would take too long."""

    reason = "too_many_elements"


class TrailingBytes(ProtocolError):
    """Bytes follow the last field of a frame: it is another message."""

    reason = "trailing_bytes"


class UnexpectedResponse(ProtocolError):
    """A broker's response belongs to no request, or not to the oldest one."""

    reason = "unexpected_response"


class TokenAfterRefusal(ProtocolError):
    """No new handshake after a refused SaslHandshake v0: probably a raw token, not to be parsed as a request."""

    reason = "token_after_refusal"


class PrincipalChanged(ProtocolError):
    """A client logged in again under another name (KIP-368 forbids it)."""

    reason = "principal_changed"


class LoginExpired(ProtocolError):
    """A client sent a request after its login ended (KIP-368); a broker closes the connection as well."""

    reason = "login_expired"


class MalformedCertificate(ProtocolError):
    """The subject of a client certificate cannot be read."""

    reason = "malformed_certificate"


class NoMatchingRule(ProtocolError):
    """No mapping rule applies to the name in a client certificate (as Kafka's exception of this name)."""

    reason = "no_matching_rule"


class UnknownVersion(ProtocolError):
    """A client sent a version that is not advertised, of an API that is charged by its requests' fields."""

    reason = "unknown_version"
