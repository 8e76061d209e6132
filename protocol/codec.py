"""Reads and writes whole messages by the table in ``protocol.messages``, in both encodings of Kafka (KIP-482).

A structure is a tuple with a value for each of its fields in the table, in that order. A field that the version lacks,
and what is null, is None. Arrays are tuples. A null array in a field that cannot be null is read as an empty one.

The number of array elements and tags in a frame is limited, and with it the time that it takes to read the frame.
"""

from collections.abc import Iterable
from functools import cache
from struct import Struct, calcsize, pack, unpack_from
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, NamedTuple, cast

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, is_flexible, response_header_version
from kafka_quota_proxy.protocol.errors import MalformedLength, TooManyElements, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.protocol.messages import FIXED, MESSAGES, Field
from kafka_quota_proxy.protocol.primitives import (
    MAX_STRING_BYTES,
    NO_TAGS,
    Buffer,
    read_uvarint,
    skip_tags,
    write_string,
    write_uvarint,
)

Values = tuple[Any, ...]

# The most array elements and tags in a request. Reading that many takes 0.1 to 0.2 s. Kafka's controller creates at
# most 10,000 partitions in one request.
MAX_ELEMENTS: Final = 50_000
# The most array elements and tags in a broker's response, which may list some 30 configs for each created topic.
MAX_RESPONSE_ELEMENTS: Final = 500_000
# This many numbers of an array count as one element, because they are read faster.
_NUMBERS_PER_ELEMENT: Final = 16

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_REQUEST_HEAD: Final = Struct(">hhi")

# What a step of a layout reads. Those from _TEXT on begin with a length.
_FIXED: Final = 0
_ABSENT: Final = 1
_OFFSET: Final = 2
_TAGS: Final = 3
_TEXT: Final = 4
_MESSAGE: Final = 5
_UTF8: Final = 6
_BYTES: Final = 7
_RECORDS: Final = 8
_NUMBERS: Final = 9
_ARRAY: Final = 10
_KINDS: Final = {
    "offset": _OFFSET,
    "tags": _TAGS,
    "string": _TEXT,
    "message": _MESSAGE,
    "utf8": _UTF8,
    "bytes": _BYTES,
    "records": _RECORDS,
    "[]": _NUMBERS,
    "[": _ARRAY,
    "(": _ARRAY,
}


class _Step(NamedTuple):
    """What to read and write of a structure: its values from ``begin`` to ``end``."""

    kind: int
    detail: Any  # the Struct of fixed fields, the Layout of an array's elements, or the format of its numbers
    size: int  # of fixed fields, or of a length in the old encoding
    is_nullable: bool
    begin: int
    end: int


class Layout:
    """The fields of a structure in one version of its message.

    Attributes:
        is_flexible: Whether strings and arrays are compact.
        has_tags: Whether tags end the structure.
        steps: What to read and write, one after another. Neighbours of fixed size are one step.
    """

    __slots__ = ("has_tags", "is_flexible", "steps")

    def __init__(self, fields: tuple[Field, ...], version: int, is_flexible: bool, has_tags: bool) -> None:
        self.is_flexible = is_flexible
        self.has_tags = has_tags
        self.steps: list[_Step] = []
        run = ""  # the format of the fields of fixed size before this one
        for index, field in enumerate(fields):
            kind = _KINDS.get(field.kind, _FIXED) if field.first <= version <= field.last else _ABSENT
            begin, detail = index, cast(Any, None)
            if kind == _FIXED:
                if run:
                    begin = self.steps.pop().begin
                run += FIXED[field.kind]
                detail = Struct(f">{run}")
            else:
                run = ""
            if kind == _ARRAY:
                detail = Layout(field.fields, version, is_flexible, is_flexible and field.kind == "[")
            elif kind == _NUMBERS:
                detail = FIXED[field.of]
            size = detail.size if isinstance(detail, Struct) else 2 if kind in (_TEXT, _MESSAGE, _UTF8) else 4
            self.steps.append(_Step(kind, detail, size, field.is_nullable, begin, index + 1))


@cache
def _layout(api_key: int, kind: str, version: int) -> Layout:
    """Return the layout of a message in a known version."""
    flexible = is_flexible(api_key, version)
    return Layout(MESSAGES[api_key, kind], version, flexible, flexible and kind != "front")


# -- reading


class _Reader:
    """Reads structures from ``data``. ``at`` is the offset of the next one."""

    __slots__ = ("_elements_left", "_is_whole", "_most_elements", "at", "data")

    def __init__(self, data: bytes, at: int, most_elements: int, *, is_whole: bool) -> None:
        self.data = data
        self.at = at
        self._is_whole = is_whole
        self._most_elements = most_elements
        self._elements_left = most_elements + 1  # the message itself counts as the only element of an array

    def structures(self, layout: Layout, count: int) -> tuple[Values, ...]:  # noqa: C901 - calls would take the most time
        """Read an array of ``count`` structures. At the end of the data, this may raise IndexError or struct.error."""
        data, at, end = self.data, self.at, len(self.data)
        steps, is_flexible, has_tags = layout.steps, layout.is_flexible, layout.has_tags
        self._elements_left -= count
        if self._elements_left < 0:
            self._use_up(0)  # raises
        found: list[Values] = []
        for _ in range(count):
            values: list[Any] = []
            for kind, detail, size, is_nullable, _, _ in steps:
                if kind == _FIXED:
                    values += detail.unpack_from(data, at)
                    at += size
                    continue
                if kind <= _TAGS:
                    values.append(at if kind == _OFFSET else None)
                    if kind == _TAGS:
                        at = self._skip_tags(at)
                    continue
                if not is_flexible:
                    length: int = (_INT16 if size == 2 else _INT32).unpack_from(data, at)[0]
                    at += size
                elif data[at] < 0x80:
                    length = data[at] - 1
                    at += 1
                else:
                    length, at = read_uvarint(data, at)
                    length -= 1
                if length < 0:
                    values.append(_null(length, kind, is_nullable))
                elif kind >= _NUMBERS:
                    # Each element has at least one byte. Kafka also checks this.
                    if length > end - at and self._is_whole:
                        raise MalformedLength(f"an array has {length} elements in {end - at} bytes")
                    self.at = at
                    read = self.structures if kind == _ARRAY else self._numbers
                    values.append(read(detail, length))
                    at = self.at
                elif size == 2 and length > MAX_STRING_BYTES:
                    raise MalformedLength(f"a string has length {length}")
                elif at + length > end:
                    raise Truncated(f"the data ends at byte {end}, before the end of a field at byte {at + length}")
                else:
                    begin, at = at, at + length
                    if kind <= _MESSAGE:
                        values.append(data[begin:at].decode("utf-8", "surrogateescape"))
                    else:
                        values.append(data[begin:at] if kind != _RECORDS else memoryview(data)[begin:at])
            if has_tags:
                at = at + 1 if data[at] == 0 else self._skip_tags(at)
            found.append(tuple(values))
        self.at = at
        return tuple(found)

    def _numbers(self, of: str, count: int) -> Values:
        self._use_up(count // _NUMBERS_PER_ELEMENT)
        begin, self.at = self.at, self.at + calcsize(of) * count
        return unpack_from(f">{count}{of}", self.data, begin)

    def _skip_tags(self, at: int) -> int:
        self._use_up(read_uvarint(self.data, at)[0])
        return skip_tags(self.data, at)

    def _use_up(self, elements: int) -> None:
        self._elements_left -= elements
        if self._elements_left < 0:
            raise TooManyElements(f"a frame has more than {self._most_elements} elements in all")


def _null(length: int, kind: int, is_nullable: bool) -> Values | None:
    """Return the value of a field that has no length. An array that cannot be null is empty then."""
    if length < -1 or (kind < _NUMBERS and not is_nullable):
        raise MalformedLength(f"a field that {'may' if is_nullable else 'cannot'} be null has length {length}")
    return None if is_nullable else ()


def read_whole_head(frame: bytes) -> RequestHead:
    """Read the header of the request in ``frame``. Raises Truncated or TrailingBytes if this is not one whole frame."""
    head = read_request_head(frame, 0, max(len(frame), 4))
    if head is None or len(frame) < 4 + head.size_bytes:
        raise Truncated(f"a request is cut off after {len(frame)} bytes")
    if len(frame) > 4 + head.size_bytes:
        raise TrailingBytes(f"a request of {4 + head.size_bytes} bytes is followed by more bytes")
    return head


def read_request(frame: bytes, head: RequestHead, *, most_elements: int = MAX_ELEMENTS) -> Values:
    """Read the fields of a whole request of an API in ``protocol.messages``, of which the header was already read.

    Raises Truncated or TrailingBytes if the fields do not end with the frame. For other errors see ``read_fields``.
    """
    values, end = read_fields(frame, head.body, head.api_key, head.api_version, "request", most_elements)
    if end != len(frame):
        raise TrailingBytes(f"a request has {len(frame) - end} bytes after its last field")
    return values


def read_response(
    frame: bytes,
    api_key: int,
    api_version: int,
    *,
    most_elements: int = MAX_RESPONSE_ELEMENTS,
    allows_rest: bool = False,
) -> Values:
    """Read a whole response of an API in ``protocol.messages``, and return its fields. Raises as ``read_request``.

    ``allows_rest`` means that bytes may follow the last field.
    """
    if len(frame) < 8 or len(frame) != 4 + _INT32.unpack_from(frame)[0]:
        raise Truncated(f"a response of {len(frame)} bytes is not one whole frame")
    body = skip_tags(frame, 8) if response_header_version(api_key, api_version) else 8
    values, end = read_fields(frame, body, api_key, api_version, "response", most_elements)
    if end != len(frame) and not allows_rest:
        raise TrailingBytes(f"a response has {len(frame) - end} bytes after its last field")
    return values


def read_fields(
    data: Buffer, at: int, api_key: int, api_version: int, kind: str, most_elements: int = MAX_ELEMENTS
) -> tuple[Values, int]:
    """Read the fields of a message, whose body begins at the offset ``at``. Return them and the offset after them.

    ``kind`` is "request", "response" or "front".

    An unknown newer version is read like the newest known one. Raises Truncated at the end of the data, MalformedVarint
    or MalformedLength for malformed bytes, and TooManyElements if there are more than ``most_elements`` array elements
    and tags in all.
    """
    layout = _layout(api_key, kind, min(api_version, HIGHEST_VERSION[api_key]))
    reader = _Reader(bytes(data), at, most_elements, is_whole=kind != "front")
    try:
        (values,) = reader.structures(layout, 1)
    except (StructError, IndexError):
        raise Truncated(f"the data ends at byte {len(data)}, before the end of a field") from None
    return values, reader.at


# -- writing


def write_request(
    api_key: int, api_version: int, correlation_id: int, client_id: bytes | None, values: Iterable[Any]
) -> bytes:
    """Encode a request as a whole frame."""
    name = b"\xff\xff" if client_id is None else write_string(client_id, is_compact=False)
    layout = _layout(api_key, "request", api_version)
    head = _REQUEST_HEAD.pack(api_key, api_version, correlation_id) + name + (NO_TAGS if layout.is_flexible else b"")
    return framed(head, *_written(layout, (values,)))


def write_response(api_key: int, api_version: int, correlation_id: int, values: Iterable[Any]) -> bytes:
    """Encode a response as a whole frame."""
    layout = _layout(api_key, "response", api_version)
    # ApiVersions, whose response header never has tags, is not in the table.
    head = _INT32.pack(correlation_id) + (NO_TAGS if layout.has_tags else b"")
    return framed(head, *_written(layout, (values,)))


def framed(*parts: Buffer) -> bytes:
    """Return a whole frame, which consists of its size field and the given parts."""
    return b"".join([_INT32.pack(sum(map(len, parts))), *parts])


def _written(layout: Layout, structures: Iterable[Iterable[Any]]) -> list[Buffer]:
    """Encode structures one after another.

    The values of fields that the version lacks, and those of the type ``offset``, may be anything.
    """
    parts: list[Buffer] = []
    for structure in structures:
        values = tuple(structure)
        for kind, detail, size, _, begin, end in layout.steps:
            if kind == _FIXED:
                parts.append(detail.pack(*values[begin:end]))
                continue
            if kind <= _TAGS:
                parts.append(NO_TAGS if kind == _TAGS else b"")
                continue
            value = values[begin]
            if kind <= _MESSAGE and value is not None:
                value = value.encode("utf-8", "surrogateescape")
                if kind == _MESSAGE and len(value) > MAX_STRING_BYTES:
                    # If the cut falls inside a character, "ignore" drops the rest of that character.
                    value = value[:MAX_STRING_BYTES].decode("utf-8", "ignore").encode()
            length = -1 if value is None else len(value)
            if not layout.is_flexible:
                parts.append((_INT16 if size == 2 else _INT32).pack(length))
            else:
                parts.append(bytes((length + 1,)) if length < 0x7F else write_uvarint(length + 1))
            if kind < _NUMBERS:
                parts.append(value or b"")
            elif kind == _NUMBERS:
                parts.append(pack(f">{max(length, 0)}{detail}", *(value or ())))
            else:
                parts += _written(detail, value or ())
        if layout.has_tags:
            parts.append(NO_TAGS)
    return parts
