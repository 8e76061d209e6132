"""What can be wrong with bytes from a peer.

A peer's bytes give values, "more bytes are needed", or one of these; nothing else may arise from them::

    ProtocolError
    ├── Truncated             the bytes end inside a field
    ├── FrameSizeError
    │   ├── NegativeFrameSize
    │   ├── FrameTooLarge
    │   ├── FrameTooSmall     the frame ends before the fields it must have
    │   └── LoginTooLarge     a frame of a login of unreasonable length
    ├── NotKafka
    │   ├── TlsOnPlaintext
    │   ├── HttpOnKafka
    │   ├── UnexpectedProxyProtocol
    │   └── MalformedProxyHeader
    ├── MalformedHeader       impossible api key, version or client_id length
    ├── HeadTooLong           a request header of unreasonable length
    ├── MalformedVarint
    ├── MalformedLength       a length or count below -1, or above what Kafka or the frame allows
    ├── TooManyElements       more of them than anyone needs in one frame
    ├── TrailingBytes         fields end before their frame does
    ├── UnexpectedResponse    a response that answers no request, or another one
    ├── TokenAfterRefusal     something else than another handshake behind one that was refused
    ├── PrincipalChanged      a login as somebody else than before
    ├── LoginExpired          a request that is answered here, behind the end of a login
    ├── MalformedCertificate  a TLS client's certificate whose subject cannot be read
    ├── NoMatchingRule        a TLS client whose name no mapping rule applies to
    └── UnknownVersion        a version that no client was told of, of an API that is limited by what its requests say
"""

# The names say the cause, as Kafka's own do; only the root says Error.
# ruff: noqa: N818

from typing import ClassVar


class ProtocolError(Exception):
    """A peer sent what is not Kafka's protocol.

    Attributes:
        reason: A short constant in snake_case, one per leaf; fit to be a metric's label.
    """

    reason: ClassVar[str] = "protocol_error"


class Truncated(ProtocolError):
    """The bytes end inside a field: more are needed or, if the frame is whole, it is broken."""

    reason = "truncated"


class FrameSizeError(ProtocolError):
    """The size in front of a frame cannot be right."""

    reason = "frame_size"


class NegativeFrameSize(FrameSizeError):
    """The size is below 0."""

    reason = "negative_frame_size"


class FrameTooLarge(FrameSizeError):
    """The size is above the listener's limit (a broker's ``socket.request.max.bytes``)."""

    reason = "frame_too_large"


class FrameTooSmall(FrameSizeError):
    """The frame ends before the fields that it must have."""

    reason = "frame_too_small"


class LoginTooLarge(FrameSizeError):
    """A frame or a token of a login is longer than a broker's ``sasl.server.max.receive.size``."""

    reason = "login_too_large"


class NotKafka(ProtocolError):
    """The first bytes are known, and of another protocol."""

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
    """No PROXY protocol header where one is required, or one that cannot be right."""

    reason = "proxy_header"


class MalformedHeader(ProtocolError):
    """A request header with an impossible field."""

    reason = "malformed_header"


class HeadTooLong(ProtocolError):
    """A request header longer than anyone needs; waiting for its end would cost memory."""

    reason = "head_too_long"


class MalformedVarint(ProtocolError):
    """A varint of more than five bytes or 32 bits."""

    reason = "malformed_varint"


class MalformedLength(ProtocolError):
    """A length or count below -1, or above what Kafka allows or the frame can hold."""

    reason = "malformed_length"


class TooManyElements(ProtocolError):
    """A frame has more elements than anyone needs; looking at each of them would take too long."""

    reason = "too_many_elements"


class TrailingBytes(ProtocolError):
    """The fields end before their frame does: it is not the message that it should be."""

    reason = "trailing_bytes"


class UnexpectedResponse(ProtocolError):
    """A broker's response answers no request, or not the oldest one."""

    reason = "unexpected_response"


class TokenAfterRefusal(ProtocolError):
    """Behind a refused SaslHandshake v0 a client sent on: a bare token, most likely, which must not be read as else."""

    reason = "token_after_refusal"


class PrincipalChanged(ProtocolError):
    """A client that is logged in logged in again, as somebody else (KIP-368 forbids it)."""

    reason = "principal_changed"


class LoginExpired(ProtocolError):
    """A client asked behind the end of its login (KIP-368): a broker would close the connection as well."""

    reason = "login_expired"


class MalformedCertificate(ProtocolError):
    """A client certificate whose subject cannot be read."""

    reason = "malformed_certificate"


class NoMatchingRule(ProtocolError):
    """No mapping rule applies to the name in a client's certificate (Kafka's exception of this name)."""

    reason = "no_matching_rule"


class UnknownVersion(ProtocolError):
    """A client sent a version that it was not told of, of an API that is limited by what its requests say."""

    reason = "unknown_version"
