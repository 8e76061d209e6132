"""Reads the size and the header of a frame, even before the rest of the frame has arrived.

    request   int32 size | int16 api_key, int16 api_version, int32 correlation_id,
              string client_id (header v1+; never compact), tags (header v2) | body
    response  int32 size | int32 correlation_id, tags (header v1) | body

``size`` is the number of bytes that follow: header and body. For a Produce request, Kafka counts exactly this number
towards the client's quota.

Source: RequestHeader.json, ResponseHeader.json and ``NetworkReceive`` in Apache Kafka.
"""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import FIRST_FLEXIBLE_VERSION, NEVER, ApiKey
from kafka_quota_proxy.protocol.errors import (
    FrameTooLarge,
    FrameTooSmall,
    HeadTooLong,
    HttpOnKafka,
    MalformedHeader,
    NegativeFrameSize,
    ProtocolError,
    TlsOnPlaintext,
    Truncated,
    UnexpectedProxyProtocol,
)
from kafka_quota_proxy.protocol.primitives import read_uvarint, skip_tags

# The longest header that is accepted. A header is kept in memory before the client's quota is known, so its size must
# be limited. A client_id has at most 32 KiB, and no Kafka up to 4.1 writes tags into a request header.
MAX_HEAD_BYTES: Final = 128 * 1024
# Incomplete tags are parsed again when more bytes arrive. This limits the work for a client that sends byte by byte.
MAX_HEAD_TAGS: Final = 256

# size, api_key, api_version, correlation_id, and the length of client_id.
_HEAD: Final = Struct(">ihhih").unpack_from
_HEAD_BYTES: Final = 14
_HEAD_V0: Final = Struct(">ihhi").unpack_from
_HEAD_V0_BYTES: Final = 12
_SIZE: Final = Struct(">i").unpack_from

# These names save time for each frame. RequestHead(...) would call a Python function and take 0.15 us longer.
_new: Final = tuple.__new__
_first_flexible_version: Final = FIRST_FLEXIBLE_VERSION.get
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)

_HTTP: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ", b"HTTP")


class RequestHead(NamedTuple):
    """The size and the header of a request.

    ``size_bytes`` does not include the size field itself. ``client_id`` contains the bytes that the client sent, which
    may be invalid UTF-8. A null client_id becomes an empty one. ``body`` is the offset at which the body begins.
    """

    size_bytes: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: bytes
    body: int


def read_request_head(data: bytes, offset: int, max_frame_size_bytes: int) -> RequestHead | None:
    """Read the size and the header of the request at ``offset``, or return None if more bytes are needed.

    If the API is unknown, ``body`` is the end of client_id, because it is not known whether tags follow. If the bytes
    are not Kafka's, the error says which protocol the peer probably speaks.
    """
    available = len(data)
    if offset + _HEAD_BYTES <= available:
        size_bytes, api_key, api_version, correlation_id, client_id_bytes = _HEAD(data, offset)
        client_id = offset + _HEAD_BYTES
        body = client_id + client_id_bytes if client_id_bytes > 0 else client_id
        if api_version >= _first_flexible_version(api_key, NEVER):
            # An empty tag section is one zero byte.
            is_plain = body < available and data[body] == 0
            body += 1
        else:
            is_plain = body <= available
        if (
            is_plain
            and body - offset - 4 <= size_bytes <= max_frame_size_bytes
            and client_id_bytes >= -1
            and api_key >= 0 <= api_version
            and (api_key != _CONTROLLED_SHUTDOWN or api_version)
        ):
            name = data[client_id : client_id + client_id_bytes]
            return _new(RequestHead, (size_bytes, api_key, api_version, correlation_id, name, body))
    return _read_rare_request_head(data, offset, max_frame_size_bytes)


def read_frame_size(data: bytes, offset: int, max_frame_size_bytes: int) -> int | None:
    """Read the size of the frame at ``offset``, or return None if more bytes are needed."""
    if offset + 4 > len(data):
        return None
    size_bytes: int = _SIZE(data, offset)[0]
    if not 0 <= size_bytes <= max_frame_size_bytes:
        raise _frame_size_error(size_bytes, bytes(data[offset : offset + 4]), max_frame_size_bytes)
    return size_bytes


def _frame_size_error(size_bytes: int, first: bytes, max_frame_size_bytes: int) -> ProtocolError:
    # These bytes begin a TLS record of type alert (0x15) or handshake (0x16), of SSL 3 or any TLS version.
    if first[0] in (0x15, 0x16) and first[1] == 3:
        return TlsOnPlaintext(f"the peer speaks TLS (it began with {first.hex(' ')}), this side plaintext")
    if first in _HTTP:
        return HttpOnKafka(f"the peer speaks HTTP (it began with {first!r}); this is a Kafka port")
    if first in (b"PROX", b"\r\n\r\n"):
        return UnexpectedProxyProtocol(
            f"the peer sends a PROXY protocol header (it began with {first!r}), unexpectedly"
        )
    if size_bytes < 0:
        return NegativeFrameSize(f"a frame has size {size_bytes} (bytes {first.hex(' ')}); is this Kafka's protocol?")
    return FrameTooLarge(
        f"a frame has {size_bytes} bytes, above the limit of {max_frame_size_bytes}; "
        f"if its first bytes ({first.hex(' ')}) are Kafka's, raise the limit"
    )


def _read_rare_request_head(data: bytes, offset: int, max_frame_size_bytes: int) -> RequestHead | None:
    """Read a header that is incomplete, malformed or has tags, with the same result as ``read_request_head``."""
    size_bytes = read_frame_size(data, offset, max_frame_size_bytes)
    if size_bytes is None:
        return None
    if size_bytes < _HEAD_V0_BYTES - 4:
        raise FrameTooSmall(f"a request of {size_bytes} bytes cannot hold a header")
    if offset + _HEAD_V0_BYTES > len(data):
        return None
    _, api_key, api_version, correlation_id = _HEAD_V0(data, offset)
    if api_key < 0 or api_version < 0:
        raise MalformedHeader(f"a request has api_key {api_key} and api_version {api_version}")
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return RequestHead(size_bytes, api_key, api_version, correlation_id, b"", offset + _HEAD_V0_BYTES)
    if size_bytes < _HEAD_BYTES - 4:
        raise FrameTooSmall(f"a request of {size_bytes} bytes cannot hold a header with client_id")
    if offset + _HEAD_BYTES > len(data):
        return None

    client_id_bytes = _HEAD(data, offset)[4]
    if client_id_bytes < -1:
        raise MalformedHeader(f"a request has a client_id of length {client_id_bytes}")
    client_id = offset + _HEAD_BYTES
    id_end = client_id + max(client_id_bytes, 0)
    frame_end = offset + 4 + size_bytes
    if id_end > frame_end:
        raise FrameTooSmall(f"a request of {size_bytes} bytes cannot hold a client_id of {client_id_bytes}")
    body: int | None = id_end
    if api_version >= _first_flexible_version(api_key, NEVER):
        body = _skip_head_tags(data, id_end, limit=offset + MAX_HEAD_BYTES, frame_end=frame_end)
    if body is None or body > len(data):
        return None
    return RequestHead(size_bytes, api_key, api_version, correlation_id, data[client_id:id_end], body)


def _skip_head_tags(data: bytes, offset: int, *, limit: int, frame_end: int) -> int | None:
    head = memoryview(data)[: min(limit, frame_end)]
    try:
        count, _ = read_uvarint(head, offset)
        if count > MAX_HEAD_TAGS:
            raise HeadTooLong(f"a request header has {count} tags, above {MAX_HEAD_TAGS}")
        return skip_tags(head, offset)
    except Truncated:
        if len(data) >= frame_end:
            raise FrameTooSmall("a request header has tags that do not fit in its frame") from None
        if len(data) >= limit:
            raise HeadTooLong(f"a request header has more than {MAX_HEAD_BYTES} bytes") from None
        return None
