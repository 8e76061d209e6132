"""Exceptions for bytes from a client or a broker that violate Kafka's protocol. Such bytes raise no other exception."""

# As in Kafka, a class is named after the cause, and only base classes end in Error.
# ruff: noqa: N818

from typing import ClassVar


class ProtocolError(Exception):
    """A peer's bytes violate Kafka's protocol. ``reason`` is the label under which the error is counted in a metric."""

    reason: ClassVar[str] = "protocol_error"

    def __init_subclass__(cls, *, reason: str) -> None:
        cls.reason = reason


class Truncated(ProtocolError, reason="truncated"):
    """The bytes end inside a field, because the frame is malformed or has not arrived completely."""


class FrameSizeError(ProtocolError, reason="frame_size"):
    """The size of a frame is not acceptable. The subclasses say why."""


class NegativeFrameSize(FrameSizeError, reason="negative_frame_size"):
    """The size of a frame is below 0."""


class FrameTooLarge(FrameSizeError, reason="frame_too_large"):
    """The size of a frame is above the listener's limit, which corresponds to Kafka's ``socket.request.max.bytes``."""


class FrameTooSmall(FrameSizeError, reason="frame_too_small"):
    """A frame is too small for its required fields."""


class LoginTooLarge(FrameSizeError, reason="login_too_large"):
    """A login frame or token is longer than the default of Kafka's ``sasl.server.max.receive.size``."""


class NotKafka(ProtocolError, reason="not_kafka"):
    """The first bytes of a connection belong to a protocol other than Kafka's."""


class TlsOnPlaintext(NotKafka, reason="tls_on_plaintext"):
    """The peer sent a TLS record where plaintext was expected."""


class HttpOnKafka(NotKafka, reason="http_on_kafka"):
    """The peer sent an HTTP request or response."""


class UnexpectedProxyProtocol(NotKafka, reason="unexpected_proxy_protocol"):
    """The peer sent a PROXY protocol header where none was expected."""


class MalformedProxyHeader(NotKafka, reason="proxy_header"):
    """The required PROXY protocol header is missing or malformed."""


class MalformedHeader(ProtocolError, reason="malformed_header"):
    """A field of a request header has an impossible value."""


class HeadTooLong(ProtocolError, reason="head_too_long"):
    """A header or field is too long for the proxy to keep in memory until the rest arrives."""


class MalformedVarint(ProtocolError, reason="malformed_varint"):
    """A varint has more than five bytes, or a value of more than 32 bits."""


class MalformedLength(ProtocolError, reason="malformed_length"):
    """A length or count is impossible: below the minimum, above Kafka's limit, or too large for the frame."""


class TooManyElements(ProtocolError, reason="too_many_elements"):
    """A frame has so many array elements and tags that reading the whole frame would take too long."""


class TrailingBytes(ProtocolError, reason="trailing_bytes"):
    """Bytes follow the last field of a frame, so the frame is not the expected message."""


class UnexpectedResponse(ProtocolError, reason="unexpected_response"):
    """A broker's response does not match the oldest unanswered request, or there is no such request."""


class TokenAfterRefusal(ProtocolError, reason="token_after_refusal"):
    """After the broker refused its SaslHandshake v0, a client sent something other than a new handshake.

    The bytes may be a raw login token.
    """


class PrincipalChanged(ProtocolError, reason="principal_changed"):
    """A client logged in again under another name, which KIP-368 forbids."""


class LoginExpired(ProtocolError, reason="login_expired"):
    """A client sent a request after its login had expired (KIP-368)."""


class MalformedCertificate(ProtocolError, reason="malformed_certificate"):
    """The subject of a client certificate cannot be read."""


class NoMatchingRule(ProtocolError, reason="no_matching_rule"):
    """No mapping rule of the listener matches the name in a client certificate. Kafka has an exception of this name."""


class UnknownVersion(ProtocolError, reason="unknown_version"):
    """A client sent a request in a version that the proxy cannot read, and so cannot count towards a quota."""
