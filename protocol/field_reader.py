"""From field to field through a whole frame, in the old and in the flexible encoding (KIP-482); and the same written.

Where every topic of a frame is to be looked at, the time that takes is bounded by how many elements all of its arrays
may have together, not by the frame's size.
"""

from collections.abc import Iterable
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
    read_int16,
    read_int32,
    read_string,
    read_uvarint,
    skip,
    skip_bytes,
    skip_compact_bytes,
    skip_tags,
    write_string,
    write_uvarint,
)

# Of all arrays and tags of a request. To walk over so many takes 0.1 to 0.2 s. Kafka's controller makes no more than
# 10,000 partitions for a request.
MAX_ELEMENTS: Final = 50_000
# Of a response, which is a broker's: some 30 configs of each topic that was made.
MAX_RESPONSE_ELEMENTS: Final = 500_000

NO_TAGS: Final = b"\0"
NULL_UUID: Final = bytes(16)
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_CORRELATION_ID_AT: Final = 4


class FieldReader:
    """Steps through ``data``; ``at`` is where it has come to.

    Raises (all methods): Truncated at the end of the data, MalformedVarint, MalformedLength; TooManyElements where the
    arrays and tags that were met so far have more than ``most_elements`` in all.
    """

    __slots__ = ("_elements_left", "_most_elements", "at", "data", "is_flexible")

    def __init__(self, data: Buffer, at: int, *, is_flexible: bool, most_elements: int = MAX_ELEMENTS) -> None:
        self.data = data
        self.at = at
        self.is_flexible = is_flexible
        self._most_elements = self._elements_left = most_elements

    def skip(self, size_bytes: int) -> None:
        """Step over a field of fixed size."""
        self.at = skip(self.data, self.at, size_bytes)

    def take(self, size_bytes: int) -> bytes:
        """Read a field of fixed size as it is."""
        begin = self.at
        self.skip(size_bytes)
        return bytes(self.data[begin : self.at])

    def boolean(self) -> bool:
        """Read a byte; any but 0 is true."""
        return self.take(1) != b"\0"

    def int16(self) -> int:
        """Read two bytes, signed."""
        value, self.at = read_int16(self.data, self.at)
        return value

    def int32(self) -> int:
        """Read four bytes, signed."""
        value, self.at = read_int32(self.data, self.at)
        return value

    def string(self) -> bytes:
        """Read a string that is not null, as its UTF-8 bytes."""
        value, self.at = read_string(self.data, self.at, is_compact=self.is_flexible)
        return value

    def nullable_string(self) -> bytes | None:
        """Read a string, as its UTF-8 bytes."""
        if self.is_flexible:
            length, at = read_uvarint(self.data, self.at)
            length -= 1
        else:
            length, at = read_int16(self.data, self.at)
        if not -1 <= length <= MAX_STRING_BYTES:
            raise MalformedLength(f"a string has length {length}")
        self.at = skip(self.data, at, max(length, 0))
        return None if length < 0 else bytes(self.data[at : self.at])

    def skip_bytes(self) -> None:
        """Step over bytes, null or not."""
        self.at = (skip_compact_bytes if self.is_flexible else skip_bytes)(self.data, self.at)

    def count(self) -> int:
        """Read how many elements follow; null counts as none."""
        read_count = read_compact_array_count if self.is_flexible else read_array_count
        count, self.at = read_count(self.data, self.at)
        self._spend(count)
        return count

    def is_null_array(self) -> bool:
        """Whether an array that follows is null, and not one without elements; does not move."""
        read_null = read_uvarint if self.is_flexible else read_int32
        return read_null(self.data, self.at)[0] == (0 if self.is_flexible else -1)

    def skip_fixed(self, element_bytes: int) -> None:
        """Step over an array whose elements are of a fixed size, and not walked through one by one."""
        read_count = read_compact_array_count if self.is_flexible else read_array_count
        count, self.at = read_count(self.data, self.at)
        self.skip(count * element_bytes)

    def tags(self) -> None:
        """Step over a tag section, where the encoding has them."""
        if not self.is_flexible:
            return
        at = self.at
        if at < len(self.data) and self.data[at] == 0:
            self.at = at + 1
            return
        count, _ = read_uvarint(self.data, at)
        self._spend(count)
        self.at = skip_tags(self.data, at)

    def end(self) -> None:
        """Take it that nothing follows but the tags of the message.

        Raises:
            TrailingBytes: Something does.
        """
        self.tags()
        if self.at != len(self.data):
            raise TrailingBytes(f"a frame ends {len(self.data) - self.at} bytes behind its fields")

    def _spend(self, count: int) -> None:
        self._elements_left -= count
        if self._elements_left < 0:
            raise TooManyElements(f"a frame has more than {self._most_elements} elements in all")


def read_whole_head(frame: bytes) -> RequestHead:
    """Read the head of a request that is there as a whole, and alone.

    Raises:
        ProtocolError: It is none, or it ends elsewhere than its size says.
    """
    head = read_request_head(frame, 0, max(len(frame), 4))
    if head is None or len(frame) < 4 + head.size_bytes:
        raise Truncated(f"a request of {len(frame)} bytes is not whole")
    if len(frame) > 4 + head.size_bytes:
        raise TrailingBytes(f"a request of {4 + head.size_bytes} bytes is followed by others")
    return head


def response_reader(
    frame: bytes, api_key: int, api_version: int, *, most_elements: int = MAX_RESPONSE_ELEMENTS
) -> FieldReader:
    """Return a walk through the body of a whole response.

    Raises:
        ProtocolError: It ends elsewhere than its size says, or in its header.
    """
    size_bytes, _ = read_int32(frame, 0)
    if len(frame) != 4 + size_bytes:
        raise Truncated(f"a response of {len(frame)} bytes is not one whole frame")
    skip(frame, _CORRELATION_ID_AT, 4)
    at = skip_tags(frame, 8) if response_header_version(api_key, api_version) else 8
    flexible = is_flexible(api_key, api_version)
    return FieldReader(frame, at, is_flexible=flexible, most_elements=most_elements)


def written_count(count: int, *, is_flexible: bool) -> bytes:
    """Encode how many elements an array has that is not null."""
    return write_uvarint(count + 1) if is_flexible else _INT32.pack(count)


def written_nullable(value: bytes | None, *, is_flexible: bool) -> bytes:
    """Encode a string, null or not."""
    if value is None:
        return b"\0" if is_flexible else _INT16.pack(-1)
    return write_string(value, is_compact=is_flexible)


def response_header(correlation_id: int, api_key: int, api_version: int) -> bytes:
    """Return the header of a response, without the size in front of it."""
    tags = NO_TAGS if response_header_version(api_key, api_version) else b""
    return _INT32.pack(correlation_id) + tags


def framed(parts: Iterable[Buffer]) -> bytes:
    """Return a frame of these parts, with its size in front."""
    payload = b"".join(parts)
    return _INT32.pack(len(payload)) + payload
