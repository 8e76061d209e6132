"""Writes and reads messages field by field, for the APIs that are too rare to be written by hand for speed."""

from collections.abc import Callable, Sequence
from functools import wraps
from struct import Struct
from typing import Final, ParamSpec, TypeVar

from tests.simulation.wire.common import (
    DAMAGES,
    RequestHeader,
    WireError,
    check_end,
    check_request,
    compact_nullable_string,
    count,
    framed,
    is_flexible,
    no_tags,
    nullable_string,
    open_response,
    parse_header,
    read_bytes,
    read_compact_string,
    read_string,
    read_varint,
    request_header,
    response_header,
)

T = TypeVar("T")
P = ParamSpec("P")

_I8: Final = Struct(">b")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_F64: Final = Struct(">d")
_NULL_I32: Final = _I32.pack(-1)


def strict(parse: Callable[P, T]) -> Callable[P, T]:
    """Let a parser raise WireError where it meets the end of the frame, or text that is not UTF-8."""

    @wraps(parse)
    def parser(*args: P.args, **options: P.kwargs) -> T:
        try:
            return parse(*args, **options)
        except DAMAGES as error:
            raise WireError(f"{parse.__module__}.{parse.__name__}: {error}") from error

    return parser


class Writer:
    """Writes a message, in a flexible version of it or an older one."""

    __slots__ = ("_parts", "_write_string", "is_flexible")

    def __init__(self, header: bytes, *, flexible: bool) -> None:
        self._parts = [header]
        self.is_flexible = flexible
        self._write_string = compact_nullable_string if flexible else nullable_string

    @staticmethod
    def request(api_key: int, version: int, correlation_id: int, client_id: str | None) -> "Writer":
        """Begin a request."""
        header = request_header(api_key, version, correlation_id, client_id)
        return Writer(header, flexible=is_flexible(api_key, version))

    @staticmethod
    def response(api_key: int, version: int, correlation_id: int) -> "Writer":
        """Begin a response."""
        header = response_header(api_key, version, correlation_id)
        return Writer(header, flexible=is_flexible(api_key, version))

    def end(self) -> bytes:
        """Return the whole frame, after the last tag section."""
        self.tags()
        return framed(self._parts)

    def i8(self, value: int) -> None:
        self._parts.append(_I8.pack(value))

    def i16(self, value: int) -> None:
        self._parts.append(_I16.pack(value))

    def i32(self, value: int) -> None:
        self._parts.append(_I32.pack(value))

    def i64(self, value: int) -> None:
        self._parts.append(_I64.pack(value))

    def f64(self, value: float) -> None:
        self._parts.append(_F64.pack(value))

    def boolean(self, value: bool) -> None:
        self._parts.append(b"\1" if value else b"\0")

    def uuid(self, value: bytes) -> None:
        """Write the 16 bytes of an id."""
        if len(value) != 16:
            raise WireError(f"no id: {value!r}")
        self._parts.append(value)

    def string(self, value: str | None) -> None:
        """Write a string, or null where the message allows it."""
        self._parts.append(self._write_string(value))

    def data(self, value: bytes | None) -> None:
        """Write bytes, or null where the message allows it."""
        if value is None:
            self._null()
        else:
            self._parts.append(count(len(value), flexible=self.is_flexible))
            self._parts.append(value)

    def array(self, values: Sequence[T] | None, write: Callable[[T], None]) -> None:
        """Write each value by ``write``, or null where the message allows it."""
        if values is None:
            self._null()
        else:
            self._parts.append(count(len(values), flexible=self.is_flexible))
            for value in values:
                write(value)

    def _null(self) -> None:
        self._parts.append(b"\0" if self.is_flexible else _NULL_I32)

    def tags(self) -> None:
        """Write an empty tag section, if the version has one."""
        if self.is_flexible:
            self._parts.append(b"\0")


class Reader:
    """Reads a message, of a flexible version of it or an older one."""

    __slots__ = ("_at", "_data", "is_flexible")

    def __init__(self, data: bytes, at: int, *, flexible: bool) -> None:
        self._data = data
        self._at = at
        self.is_flexible = flexible

    @staticmethod
    def request(frame: bytes, api_key: int, versions: range) -> "tuple[RequestHeader, Reader]":
        """Begin to read a request."""
        header = parse_header(frame)
        check_request(header, api_key, versions)
        return header, Reader(frame, header.body_at, flexible=is_flexible(api_key, header.api_version))

    @staticmethod
    def response(frame: bytes, api_key: int, version: int) -> "tuple[int, Reader]":
        """Return the correlation id of a response, and begin to read it."""
        correlation_id, at = open_response(frame, api_key, version)
        return correlation_id, Reader(frame, at, flexible=is_flexible(api_key, version))

    def end(self) -> None:
        """Read the last tag section. The frame has to end there."""
        self.tags()
        check_end(self._data, self._at)

    def _number(self, form: Struct) -> int:
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return int(value)

    def i8(self) -> int:
        return self._number(_I8)

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def i64(self) -> int:
        return self._number(_I64)

    def f64(self) -> float:
        (value,) = _F64.unpack_from(self._data, self._at)
        self._at += 8
        return float(value)

    def boolean(self) -> bool:
        value = self.i8()
        if value not in (0, 1):
            raise WireError(f"a boolean is {value}")
        return bool(value)

    def uuid(self) -> bytes:
        """Return the 16 bytes of an id."""
        self._at += 16
        if self._at > len(self._data):
            raise WireError("the frame ends within an id")
        return self._data[self._at - 16 : self._at]

    def nullable_string(self) -> str | None:
        read = read_compact_string if self.is_flexible else read_string
        value, self._at = read(self._data, self._at)
        return value

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise WireError("a string is null")
        return value

    def nullable_data(self) -> bytes | None:
        value, self._at = read_bytes(self._data, self._at, flexible=self.is_flexible)
        return value

    def data(self) -> bytes:
        value = self.nullable_data()
        if value is None:
            raise WireError("bytes are null")
        return value

    def nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        """Read each element by ``read``."""
        if self.is_flexible:
            number, self._at = read_varint(self._data, self._at)
            number -= 1
        else:
            number = self.i32()
        if number < -1:
            raise WireError(f"an array of {number} elements")
        return None if number < 0 else [read() for _ in range(number)]

    def array(self, read: Callable[[], T]) -> list[T]:
        """Read each element by ``read``."""
        values = self.nullable_array(read)
        if values is None:
            raise WireError("an array is null")
        return values

    def tags(self) -> None:
        """Read a tag section, which has to be empty, if the version has one."""
        if self.is_flexible:
            self._at = no_tags(self._data, self._at)
