"""Reads a whole frame field by field, in the old encoding or in the flexible one (KIP-482).

The number of array elements and tags in a frame is limited, and with it the time that it takes to read the frame.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.api import is_flexible, response_header_version
from kafka_quota_proxy.protocol.errors import MalformedLength, TooManyElements, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.protocol.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_int32,
    read_uvarint,
    skip,
    skip_bytes,
    skip_compact_bytes,
    skip_tags,
)

# The most array elements and tags in a request. Reading that many takes 0.1 to 0.2 s. Kafka's controller creates at
# most 10,000 partitions in one request.
MAX_ELEMENTS: Final = 50_000
# The most array elements and tags in a broker's response, which may list some 30 configs for each created topic.
MAX_RESPONSE_ELEMENTS: Final = 500_000

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_FLOAT64: Final = Struct(">d").unpack_from


class FieldReader:
    """Reads one field after another from ``data``. ``at`` is the offset of the next field.

    All methods raise Truncated at the end of the data, and MalformedVarint or MalformedLength for malformed bytes. They
    raise TooManyElements if the frame has more than ``most_elements`` array elements and tags in all.
    """

    __slots__ = ("_elements_left", "_most_elements", "at", "data", "is_flexible")

    def __init__(self, data: Buffer, at: int, *, is_flexible: bool, most_elements: int = MAX_ELEMENTS) -> None:
        self.data = data
        self.at = at
        self.is_flexible = is_flexible
        self._most_elements = self._elements_left = most_elements

    def skip(self, size_bytes: int) -> None:
        """Step over a field of ``size_bytes`` bytes."""
        self._step(size_bytes)

    def _step(self, size_bytes: int) -> int:
        """Step over a field, and return where it begins."""
        begin = self.at
        end = begin + size_bytes
        if end > len(self.data):
            raise Truncated(f"the data ends at byte {len(self.data)}, before the end of a field at byte {end}")
        self.at = end
        return begin

    def raw(self, size_bytes: int) -> bytes:
        """Read a field of ``size_bytes`` bytes, and return these bytes."""
        begin = self._step(size_bytes)
        return bytes(self.data[begin : self.at])

    def boolean(self) -> bool:
        """Read one byte as a boolean. Any value but 0 is true."""
        return self.data[self._step(1)] != 0

    def int8(self) -> int:
        """Read a signed byte."""
        return int.from_bytes(self.raw(1), signed=True)

    def int16(self) -> int:
        """Read a signed integer of two bytes."""
        value: int = _INT16(self.data, self._step(2))[0]
        return value

    def int32(self) -> int:
        """Read a signed integer of four bytes."""
        value: int = _INT32(self.data, self._step(4))[0]
        return value

    def float64(self) -> float:
        """Read an IEEE 754 double."""
        value: float = _FLOAT64(self.data, self._step(8))[0]
        return value

    def string(self) -> bytes:
        """Read a string that must not be null, and return its UTF-8 bytes."""
        value = self.nullable_string()
        if value is None:
            raise MalformedLength("a string that cannot be null has length -1")
        return value

    def nullable_string(self) -> bytes | None:
        """Read a string, and return its UTF-8 bytes, or None if it is null."""
        if self.is_flexible:
            length, self.at = read_uvarint(self.data, self.at)
            length -= 1
        else:
            length = _INT16(self.data, self._step(2))[0]
        if not -1 <= length <= MAX_STRING_BYTES:
            raise MalformedLength(f"a string has length {length}")
        return None if length < 0 else self.raw(length)

    def bytes_field(self) -> bytes:
        """Read a field of bytes that must not be null."""
        length, self.at = (read_uvarint if self.is_flexible else read_int32)(self.data, self.at)
        length -= self.is_flexible
        if length < 0:
            raise MalformedLength(f"bytes that cannot be null have length {length}")
        return self.raw(length)

    def skip_bytes(self) -> None:
        """Step over a field of bytes, which may be null."""
        self.at = (skip_compact_bytes if self.is_flexible else skip_bytes)(self.data, self.at)

    def count(self) -> int:
        """Read the number of elements of an array, which is 0 for a null array."""
        if self.is_flexible:
            count, self.at = read_compact_array_count(self.data, self.at)
        else:
            count = _INT32(self.data, self._step(4))[0]
            if not 0 <= count <= len(self.data) - self.at:
                count, _ = read_array_count(self.data, self.at - 4)  # 0 for a null array, or an error
        self._elements_left -= count
        if self._elements_left < 0:
            self._use_up(0)  # raises
        return count

    def is_null_array(self) -> bool:
        """Whether the next field is a null array. The reader stays in front of the field."""
        read_null = read_uvarint if self.is_flexible else read_int32
        return read_null(self.data, self.at)[0] == (0 if self.is_flexible else -1)

    def skip_fixed_elements(self, element_bytes: int) -> None:
        """Step over an array whose elements have a fixed size. They do not count towards ``most_elements``."""
        read_count = read_compact_array_count if self.is_flexible else read_array_count
        count, self.at = read_count(self.data, self.at)
        self.skip(count * element_bytes)

    def skip_tags(self) -> None:
        """Step over the tags at the end of a structure. The old encoding has no tags, so nothing is skipped."""
        if not self.is_flexible:
            return
        at = self.at
        if at < len(self.data) and self.data[at] == 0:
            self.at = at + 1
            return
        count, _ = read_uvarint(self.data, at)
        self._use_up(count)
        self.at = skip_tags(self.data, at)

    def expect_end(self) -> None:
        """Step over the tags at the end of the message. Raises TrailingBytes if more bytes follow."""
        self.skip_tags()
        if self.at != len(self.data):
            raise TrailingBytes(f"a frame has {len(self.data) - self.at} bytes after its last field")

    def _use_up(self, count: int) -> None:
        self._elements_left -= count
        if self._elements_left < 0:
            raise TooManyElements(f"a frame has more than {self._most_elements} elements in all")


def read_whole_head(frame: bytes) -> RequestHead:
    """Read the header of the request in ``frame``. Raises Truncated or TrailingBytes if this is not one whole frame."""
    head = read_request_head(frame, 0, max(len(frame), 4))
    if head is None or len(frame) < 4 + head.size_bytes:
        raise Truncated(f"a request is cut off after {len(frame)} bytes")
    if len(frame) > 4 + head.size_bytes:
        raise TrailingBytes(f"a request of {4 + head.size_bytes} bytes is followed by more bytes")
    return head


def request_reader(frame: bytes, head: RequestHead, *, most_elements: int = MAX_ELEMENTS) -> FieldReader:
    """Return a reader that starts at the body of a request."""
    flexible = is_flexible(head.api_key, head.api_version)
    return FieldReader(frame, head.body, is_flexible=flexible, most_elements=most_elements)


def response_reader(
    frame: bytes, api_key: int, api_version: int, *, most_elements: int = MAX_RESPONSE_ELEMENTS
) -> FieldReader:
    """Return a reader that starts at the body of a whole response."""
    size_bytes, _ = read_int32(frame, 0)
    if len(frame) != 4 + size_bytes:
        raise Truncated(f"a response of {len(frame)} bytes is not one whole frame")
    skip(frame, 4, 4)  # correlation_id
    at = skip_tags(frame, 8) if response_header_version(api_key, api_version) else 8
    return FieldReader(frame, at, is_flexible=is_flexible(api_key, api_version), most_elements=most_elements)
