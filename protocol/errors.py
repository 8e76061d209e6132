"""The errors in a peer's bytes.

A peer's bytes give values, "more bytes are needed", or one of these errors; they never cause another exception.
"""

# The names are causes, as in Kafka; only the roots end in Error.
# ruff: noqa: N818

from typing import ClassVar


class ProtocolError(Exception):
    """A peer's bytes are not Kafka's protocol. ``reason`` is the label of a metric."""

    reason: ClassVar[str] = "protocol_error"

    def __init_subclass__(cls, *, reason: str) -> None:
        cls.reason = reason


class Truncated(ProtocolError, reason="truncated"):
    """The bytes end inside a field: more are needed, or the whole frame is malformed."""


class FrameSizeError(ProtocolError, reason="frame_size"):
    """The size of a frame is impossible."""


class NegativeFrameSize(FrameSizeError, reason="negative_frame_size"):
    """The size is below 0."""


class FrameTooLarge(FrameSizeError, reason="frame_too_large"):
    """The size is above the listener's limit (a broker's ``socket.request.max.bytes``)."""


class FrameTooSmall(FrameSizeError, reason="frame_too_small"):
    """The frame ends before its required fields."""


class LoginTooLarge(FrameSizeError, reason="login_too_large"):
    """A login frame or token is longer than a broker's ``sasl.server.max.receive.size``."""


class NotKafka(ProtocolError, reason="not_kafka"):
    """The first bytes belong to another protocol."""


class TlsOnPlaintext(NotKafka, reason="tls_on_plaintext"):
    """A TLS record where plaintext was expected."""


class HttpOnKafka(NotKafka, reason="http_on_kafka"):
    """An HTTP request or response."""


class UnexpectedProxyProtocol(NotKafka, reason="unexpected_proxy_protocol"):
    """A PROXY protocol header where none was expected."""


class MalformedProxyHeader(NotKafka, reason="proxy_header"):
    """A PROXY protocol header is missing or malformed."""


class MalformedHeader(ProtocolError, reason="malformed_header"):
    """A request header with an impossible field."""


class HeadTooLong(ProtocolError, reason="head_too_long"):
    """A header is longer than the limit; waiting for its end would cost memory."""


class MalformedVarint(ProtocolError, reason="malformed_varint"):
    """A varint of more than five bytes or 32 bits."""


class MalformedLength(ProtocolError, reason="malformed_length"):
    """A length or count below -1, or above what Kafka allows or the frame can hold."""


class TooManyElements(ProtocolError, reason="too_many_elements"):
    """A frame has more elements than the limit; reading each of them would take too long."""


class TrailingBytes(ProtocolError, reason="trailing_bytes"):
    """Bytes follow the last field of a frame: it is another message."""


class UnexpectedResponse(ProtocolError, reason="unexpected_response"):
    """A broker's response belongs to no request, or not to the oldest one."""


class TokenAfterRefusal(ProtocolError, reason="token_after_refusal"):
    """No new handshake after a refused SaslHandshake v0: probably a raw token, not to be parsed as a request."""


class PrincipalChanged(ProtocolError, reason="principal_changed"):
    """A client logged in again under another name (KIP-368 forbids it)."""


class LoginExpired(ProtocolError, reason="login_expired"):
    """A client sent a request after its login ended (KIP-368); a broker closes the connection as well."""


class MalformedCertificate(ProtocolError, reason="malformed_certificate"):
    """The subject of a client certificate cannot be read."""


class NoMatchingRule(ProtocolError, reason="no_matching_rule"):
    """No mapping rule applies to the name in a client certificate (as Kafka's exception of this name)."""


class UnknownVersion(ProtocolError, reason="unknown_version"):
    """A client sent a version that is not advertised, of an API that is charged by its requests' fields."""
