"""Messages as lists of fields, each with its type and the versions that have it: for the APIs that are rare."""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tests.simulation.wire.common import DAMAGES, Leader, NodeEndpoint, WireError
from tests.simulation.wire.fields import Reader, Writer

T = TypeVar("T")

# A value of a field is of as many types as Kafka has.
Value = Any


class Kind(Protocol):
    """A type of a field."""

    def write(self, writer: Writer, value: Value, version: int) -> None: ...

    def read(self, reader: Reader, version: int) -> Value: ...


class Primitive:
    """A type that is the same in all versions."""

    def __init__(self, write: Callable[[Writer, Value], None], read: Callable[[Reader], Value]) -> None:
        self._write = write
        self._read = read

    def write(self, writer: Writer, value: Value, version: int) -> None:
        del version
        self._write(writer, value)

    def read(self, reader: Reader, version: int) -> Value:
        del version
        return self._read(reader)


I8: Final = Primitive(Writer.i8, Reader.i8)
I16: Final = Primitive(Writer.i16, Reader.i16)
I32: Final = Primitive(Writer.i32, Reader.i32)
I64: Final = Primitive(Writer.i64, Reader.i64)
F64: Final = Primitive(Writer.f64, Reader.f64)
BOOLEAN: Final = Primitive(Writer.boolean, Reader.boolean)
UUID: Final = Primitive(Writer.uuid, Reader.uuid)
STRING: Final = Primitive(Writer.string, Reader.string)
NULLABLE_STRING: Final = Primitive(Writer.string, Reader.nullable_string)
DATA: Final = Primitive(Writer.data, Reader.data)
NULLABLE_DATA: Final = Primitive(Writer.data, Reader.nullable_data)


class Array:
    """An array of one type."""

    def __init__(self, element: Kind, *, nullable: bool = False) -> None:
        self._element = element
        self._nullable = nullable

    def write(self, writer: Writer, value: Value, version: int) -> None:
        if value is None and not self._nullable:
            raise WireError("an array is null")
        write = self._element.write
        writer.array(value, lambda element: write(writer, element, version))

    def read(self, reader: Reader, version: int) -> Value:
        read = self._element.read
        read_array = reader.nullable_array if self._nullable else reader.array
        return read_array(lambda: read(reader, version))


class Field(NamedTuple):
    """A field, and the versions that have it. In others, the default of the named tuple stands for it."""

    name: str
    kind: Kind
    first: int = 0
    last: int = 99


class Struct(Generic[T]):
    """A group of fields: a named tuple. Its tag section is always empty."""

    def __init__(self, made_of: Callable[..., T], *fields: Field) -> None:
        self._made_of = made_of
        self._fields = fields

    def write(self, writer: Writer, value: Value, version: int) -> None:
        for name, kind, first, last in self._fields:
            if first <= version <= last:
                kind.write(writer, getattr(value, name), version)
        writer.tags()

    def read(self, reader: Reader, version: int) -> T:
        values = {field.name: field.kind.read(reader, version) for field in self._fields
                  if field.first <= version <= field.last}  # fmt: skip
        reader.tags()
        return self._made_of(**values)


class _Message(Generic[T]):
    def __init__(self, api_key: int, versions: range, made_of: Callable[..., T], *fields: Field) -> None:
        self._api_key = api_key
        self._versions = versions
        self._made_of = made_of
        self._fields = fields

    def _frame(self, writer: Writer, version: int, values: dict[str, Value]) -> bytes:
        if version not in self._versions:
            raise WireError(f"API {self._api_key} v{version}")
        for name, kind, first, last in self._fields:
            if first <= version <= last:
                kind.write(writer, values[name], version)
        return writer.end()

    def _values(self, reader: Reader, version: int) -> dict[str, Value]:
        try:
            values = {field.name: field.kind.read(reader, version) for field in self._fields
                      if field.first <= version <= field.last}  # fmt: skip
            reader.end()
        except DAMAGES as error:
            raise WireError(f"API {self._api_key} v{version}: {error}") from error
        return values


class Request(_Message[T]):
    """A request: a named tuple whose first field is the ``header``."""

    def write(self, correlation_id: int, version: int, client_id: str | None, **values: Value) -> bytes:
        """Return the whole frame."""
        return self._frame(Writer.request(self._api_key, version, correlation_id, client_id), version, values)

    def read(self, frame: bytes) -> T:
        """Read a whole frame."""
        header, reader = Reader.request(frame, self._api_key, self._versions)
        return self._made_of(header, **self._values(reader, header.api_version))


class Response(_Message[T]):
    """A response: a named tuple whose first field is the ``correlation_id``."""

    def write(self, correlation_id: int, version: int, **values: Value) -> bytes:
        """Return the whole frame."""
        return self._frame(Writer.response(self._api_key, version, correlation_id), version, values)

    def read(self, frame: bytes, version: int) -> T:
        """Read a whole frame."""
        if version not in self._versions:
            raise WireError(f"API {self._api_key} v{version}")
        correlation_id, reader = Reader.response(frame, self._api_key, version)
        return self._made_of(correlation_id, **self._values(reader, version))


LEADER: Final = Struct(Leader, Field("node_id", I32), Field("epoch", I32))
ENDPOINT: Final = Struct(
    NodeEndpoint, Field("node_id", I32), Field("host", STRING), Field("port", I32), Field("rack", NULLABLE_STRING)
)
