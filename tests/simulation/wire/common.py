"""What all messages of Kafka's wire protocol share: frames, headers, primitive types, tagged fields.

A frame is a message with its size in front. Each parser takes a whole frame and refuses a byte too many or too few.
"""

from functools import cache, lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - the name is in lower case in the standard library
from typing import Final, NamedTuple

from kio.index import KioIndexError, load_request_schema


class WireError(ValueError):
    """The bytes are not a message of this API and version."""


# What the reading of a damaged frame may raise, before it becomes a WireError.
DAMAGES: Final = (StructError, IndexError, UnicodeDecodeError)

NO_TOPIC_ID: Final = bytes(16)

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_SIZE_AND_HEADER: Final = Struct(">ihhih")
_HEADER: Final = Struct(">hhi")
pack_i16: Final = _I16.pack
pack_i32: Final = _I32.pack
get_i16: Final = _I16.unpack_from
get_i32: Final = _I32.unpack_from


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a version of an API has compact types and tagged fields. One that nobody knows has."""
    try:
        return bool(load_request_schema(api_key, version).__flexible__)
    except KioIndexError:
        return version > 0


# -- primitive types, written --


def _long_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_VARINTS: Final = tuple(_long_varint(value) for value in range(1 << 14))


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    return _VARINTS[value] if value < 1 << 14 else _long_varint(value)


@lru_cache(4_096)
def string(value: str) -> bytes:
    """Return a STRING."""
    encoded = value.encode()
    return pack_i16(len(encoded)) + encoded


@lru_cache(4_096)
def compact_string(value: str) -> bytes:
    """Return a COMPACT_STRING."""
    encoded = value.encode()
    return varint(len(encoded) + 1) + encoded


def nullable_string(value: str | None) -> bytes:
    """Return a NULLABLE_STRING."""
    return b"\xff\xff" if value is None else string(value)


def compact_nullable_string(value: str | None) -> bytes:
    """Return a COMPACT_NULLABLE_STRING."""
    return b"\0" if value is None else compact_string(value)


def tagged_fields(fields: dict[int, bytes]) -> bytes:
    """Return a tag section: the number of fields, then each with its tag and size, in the order of the tags."""
    if not fields:
        return b"\0"
    parts = [varint(len(fields))]
    for tag in sorted(fields):
        parts += varint(tag), varint(len(fields[tag])), fields[tag]
    return b"".join(parts)


def count(length: int, *, flexible: bool) -> bytes:
    """Return the number of elements in front of an array, or of bytes."""
    return varint(length + 1) if flexible else pack_i32(length)


# -- primitive types, read: each returns the value and where the next field begins --


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in range(7, 35, 7):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise WireError("a varint of more than five bytes")
    return value, at + 1


def _text(data: bytes, at: int, end: int) -> tuple[str, int]:
    if end > len(data):
        raise WireError(f"a string ends at {end}, the frame at {len(data)}")
    return data[at:end].decode(), end


def read_tagged_fields(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Read a tag section. Tags have to be in order."""
    if not data[at]:
        return {}, at + 1
    count, at = read_varint(data, at)
    fields: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        if tag <= last or at + size > len(data):
            raise WireError(f"tag {tag} of {size} bytes after tag {last}")
        fields[tag] = data[at : at + size]
        at += size
        last = tag
    return fields, at


# -- what many messages have --

# By name, or from the versions of KIP-516 on by the 16 bytes of its id.
Topic = str | bytes


class NodeEndpoint(NamedTuple):
    """The address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """The leader of a partition, in an answer that refuses because it is another broker (KIP-951)."""

    node_id: int
    epoch: int


NO_LEADER: Final = Leader(-1, -1)


# -- frames and headers --


class RequestHeader(NamedTuple):
    """The header of a request. The body begins at ``body_at`` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def framed(parts: list[bytes]) -> bytes:
    """Join the parts of a message with its size in front. This is the one copy that is made of them."""
    parts.insert(0, pack_i32(sum(map(len, parts))))
    return b"".join(parts)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the header of a request, without the size before it."""
    header = _HEADER.pack(api_key, version, correlation_id) + nullable_string(client_id)
    return header + b"\0" if is_flexible(api_key, version) else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return the header of a response, without the size before it. That of ApiVersions never has tagged fields."""
    if is_flexible(api_key, version) and api_key != 18:
        return pack_i32(correlation_id) + b"\0"
    return pack_i32(correlation_id)


def parse_header(frame: bytes) -> RequestHeader:
    """Read the header of a request, of any API."""
    try:
        size, api_key, version, correlation_id, length = _SIZE_AND_HEADER.unpack_from(frame)
        if size != len(frame) - 4:
            raise WireError(f"a frame of {len(frame)} bytes says that {size} follow its size")
        if length > 0:
            client_id: str | None
            client_id, at = _text(frame, 14, 14 + length)
        elif length >= -1:
            client_id, at = None if length else "", 14
        else:
            raise WireError(f"a client-id of {length} bytes")
        if is_flexible(api_key, version):
            at = at + 1 if not frame[at] else read_tagged_fields(frame, at)[1]
    except DAMAGES as error:
        raise WireError(f"no header of a request: {frame[:40]!r}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of a response."""
    correlation_id: int = get_i32(frame, 4)[0]
    return correlation_id


def open_response(frame: bytes, api_key: int, version: int) -> tuple[int, int]:
    """Return the correlation id of a response, and where its body begins."""
    try:
        (size,) = get_i32(frame)
        (correlation_id,) = get_i32(frame, 4)
        if size != len(frame) - 4:
            raise WireError(f"a frame of {len(frame)} bytes says that {size} follow its size")
        if is_flexible(api_key, version) and api_key != 18:
            return correlation_id, 9 if not frame[8] else read_tagged_fields(frame, 8)[1]
    except DAMAGES as error:
        raise WireError(f"no header of a response: {frame[:40]!r}") from error
    return correlation_id, 8
