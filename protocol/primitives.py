"""Reads Kafka's primitive types, and steps over fields without copying them.

A ``read_`` function returns the value and the offset of the next field. A ``skip`` function returns only that offset.
All numbers are big-endian::

    string          int16 length (-1: null), then UTF-8
    compact string  uvarint length + 1 (0: null), then UTF-8
    bytes           int32 length (-1: null), then bytes
    compact bytes   uvarint length + 1 (0: null), then bytes
    array           int32 count (-1: null), then elements
    compact array   uvarint count + 1 (0: null), then elements
    tags            uvarint count, then for each: uvarint tag, uvarint size, bytes

All functions raise Truncated at the end of the data, and MalformedVarint or MalformedLength for malformed bytes.

Source: ``ByteUtils``, ``MessageGenerator`` and docs/protocol.html of Apache Kafka; KIP-482 for compact types and tags.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.errors import MalformedLength, MalformedVarint, Truncated

Buffer = bytes | memoryview

# The code that MessageGenerator generates for Kafka refuses longer strings in both encodings (Short.MAX_VALUE).
MAX_STRING_BYTES: Final = 0x7FFF

NO_TAGS: Final = b"\0"
NULL_UUID: Final = bytes(16)
NULL_ARRAY: Final = -1

_LENGTH: Final = Struct(">h")
_COUNT: Final = Struct(">i")
_INT16: Final = _LENGTH.unpack_from
_INT32: Final = _COUNT.unpack_from


def read_int16(data: Buffer, offset: int) -> tuple[int, int]:
    """Read a signed integer of two bytes. Return the integer and the offset of the next field."""
    end = skip(data, offset, 2)
    return _INT16(data, offset)[0], end


def read_int32(data: Buffer, offset: int) -> tuple[int, int]:
    """Read a signed integer of four bytes. Return the integer and the offset of the next field."""
    end = skip(data, offset, 4)
    return _INT32(data, offset)[0], end


def read_uvarint(data: Buffer, offset: int) -> tuple[int, int]:
    """Read an unsigned varint. Return its value and the offset of the next field.

    Each byte contains seven bits of the value, the lowest bits first. The high bit is set in all bytes but the last.
    """
    try:
        byte = data[offset]
        if byte < 0x80:
            return byte, offset + 1
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            offset += 1
            byte = data[offset]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise MalformedVarint("a varint has more than five bytes")
    except IndexError:
        raise Truncated(f"the data ends at byte {len(data)}, inside a varint") from None
    if value > 0xFFFF_FFFF:
        raise MalformedVarint(f"a varint has more than 32 bits: {value}")
    return value, offset + 1


def write_uvarint(value: int) -> bytes:
    """Encode ``value`` (0 to 2**32 - 1) as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip(data: Buffer, offset: int, size_bytes: int) -> int:
    """Step over a field of ``size_bytes`` bytes, and return the offset of the next field."""
    end = offset + size_bytes
    if end > len(data):
        raise Truncated(f"the data ends at byte {len(data)}, before the end of a field at byte {end}")
    return end


def skip_tags(data: Buffer, offset: int) -> int:
    """Step over the tags at the end of a structure, and return the offset of the next field."""
    count, offset = read_uvarint(data, offset)
    for _ in range(count):
        _tag, offset = read_uvarint(data, offset)
        size_bytes, offset = read_uvarint(data, offset)
        offset = skip(data, offset, size_bytes)
    return offset


def read_string(data: Buffer, offset: int, *, is_compact: bool) -> tuple[bytes, int]:
    """Read a string that must not be null. Return its UTF-8 bytes and the offset of the next field."""
    if is_compact:
        length, offset = read_uvarint(data, offset)
        length -= 1
    else:
        length, offset = read_int16(data, offset)
    if not 0 <= length <= MAX_STRING_BYTES:
        raise MalformedLength(f"a string that cannot be null has length {length}")
    end = skip(data, offset, length)
    return bytes(data[offset:end]), end


def write_string(value: bytes, *, is_compact: bool) -> bytes:
    """Encode a string, which must not be null, from its UTF-8 bytes."""
    return (write_uvarint(len(value) + 1) if is_compact else _LENGTH.pack(len(value))) + value


def skip_string(data: Buffer, offset: int) -> int:
    """Step over a string, which may be null, and return the offset of the next field."""
    length, offset = read_int16(data, offset)
    if length < -1:
        raise MalformedLength(f"a string has length {length}")
    return skip(data, offset, max(length, 0))


def skip_compact_string(data: Buffer, offset: int) -> int:
    """Step over a compact string, which may be null, and return the offset of the next field."""
    length, offset = read_uvarint(data, offset)
    if length - 1 > MAX_STRING_BYTES:
        raise MalformedLength(f"a string has length {length - 1}, above {MAX_STRING_BYTES}")
    return skip(data, offset, max(length - 1, 0))


def skip_bytes(data: Buffer, offset: int) -> int:
    """Step over a field of bytes, which may be null, and return the offset of the next field."""
    length, offset = read_int32(data, offset)
    if length < -1:
        raise MalformedLength(f"a field of bytes has length {length}")
    return skip(data, offset, max(length, 0))


def read_array_count(data: Buffer, offset: int) -> tuple[int, int]:
    """Read the number of elements of an array. It is 0 for a null array."""
    count, offset = read_int32(data, offset)
    if count < -1:
        raise MalformedLength(f"an array has {count} elements")
    return _bounded(data, offset, count)


def read_compact_array_count(data: Buffer, offset: int) -> tuple[int, int]:
    """Read the number of elements of a compact array. It is 0 for a null array."""
    count, offset = read_uvarint(data, offset)
    return _bounded(data, offset, count - 1)


def _bounded(data: Buffer, offset: int, count: int) -> tuple[int, int]:
    # Each element has at least one byte, so a count above the number of bytes left is wrong. Kafka also checks this.
    if count > len(data) - offset:
        raise MalformedLength(f"an array has {count} elements in {len(data) - offset} bytes")
    return max(count, 0), offset


def written_count(count: int, *, is_flexible: bool) -> bytes:
    """Encode the number of elements of an array. If ``count`` is ``NULL_ARRAY``, encode a null array."""
    return write_uvarint(count + 1) if is_flexible else _COUNT.pack(count)
