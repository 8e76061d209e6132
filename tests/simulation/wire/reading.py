"""Reads named tuples: a list of steps for each of kio's classes. What is not whole, or has too much, is refused."""

from collections.abc import Callable
from operator import itemgetter
from struct import Struct

from tests.simulation.wire.common import WireError, get_i16, get_i32, read_varint
from tests.simulation.wire.schema import FORMATS, Matched, Untyped, matched

Read = Callable[..., tuple[Untyped, int]]
# Appends values, or puts that of a tag into its place, and returns where the next field begins.
Step = Callable[[bytes, int, list[Untyped]], int]


def reader(schema: Untyped, made_of: Untyped) -> Read:
    """Return what reads a named tuple, with a value in front that is given, and returns where the next field begins."""
    steps: list[Step] = []
    tags: dict[int, Step] = {}
    run: list[Matched] = []
    defaults = [made_of._field_defaults.get(name) for name in made_of._fields]
    # Values are appended to the defaults in the order of the wire. This is where those of the named tuple are then.
    places = list(range(len(defaults)))
    appended = len(defaults)
    flexible = schema.__flexible__
    for field in matched(schema, made_of):
        tag = field.field.metadata.get("tag")
        if tag is not None:
            tags[tag] = _tag_step(field)
            continue
        if field.at is not None:
            places[field.at] = appended
            appended += 1
        if field.kafka in FORMATS and field.kafka != "bool" and not field.is_array:
            run.append(field)
        else:
            steps += [*_numbers(run), _step(field, flexible=flexible)]
            run.clear()
    steps += _numbers(run)
    if flexible:
        steps.append(_tag_section(tags))
    return _reader_of(steps, defaults, places, made_of._make)


def _reader_of(steps: list[Step], defaults: list[Untyped], places: list[int], make: Callable[..., Untyped]) -> Read:
    pick = itemgetter(*places) if len(places) > 1 else lambda values: (values[places[0]],)

    def read(data: bytes, at: int, *front: Untyped) -> tuple[Untyped, int]:
        values = defaults.copy()
        values[: len(front)] = front
        for step in steps:
            at = step(data, at, values)
        return make(pick(values)), at

    return read


def _numbers(run: list[Matched]) -> list[Step]:
    """Return the step that reads numbers which stand side by side, if there are any."""
    if not run:
        return []
    codes = [(FORMATS[field.kafka], field.at) for field in run]
    # Those that the named tuple lacks are stepped over.
    form = Struct(">" + "".join(code if at is not None else f"{Struct('>' + code).size}x" for code, at in codes))
    unpack, size = form.unpack_from, form.size

    def step(data: bytes, at: int, values: list[Untyped]) -> int:
        values += unpack(data, at)
        return at + size

    return [step]


def _step(field: Matched, *, flexible: bool) -> Step:
    read = _reader(field, flexible=flexible)
    is_lacking = field.at is None

    def step(data: bytes, at: int, values: list[Untyped]) -> int:
        value, at = read(data, at)
        if not is_lacking:
            values.append(value)
        return at

    return step


def _tag_step(field: Matched) -> Step:
    read, place = _reader(field, flexible=True), field.at

    def step(data: bytes, at: int, values: list[Untyped]) -> int:
        value, at = read(data, at)
        if place is not None:
            values[place] = value
        return at

    return step


def _reader(field: Matched, *, flexible: bool) -> Read:
    """Return what reads a field."""
    if field.is_array:
        return _array(_one_reader(field, flexible=flexible), flexible=flexible, is_nullable=field.is_nullable)
    if field.kafka not in ("string", "bytes", "records") or field.is_nullable:
        return _one_reader(field, flexible=flexible)
    read = _one_reader(field, flexible=flexible)

    def read_value(data: bytes, at: int) -> tuple[Untyped, int]:
        value, at = read(data, at)
        if value is None:
            raise WireError(f"{field.field.name} is null")
        return value, at

    return read_value


def _one_reader(field: Matched, *, flexible: bool) -> Read:
    if field.struct is not None:
        return reader(field.struct, field.named)
    if field.kafka == "bool":
        return _read_boolean
    if field.kafka in FORMATS:
        form = Struct(">" + FORMATS[field.kafka])
        return lambda data, at: (form.unpack_from(data, at)[0], at + form.size)
    if field.kafka == "uuid":
        return lambda data, at: (_slice(data, at, at + 16), at + 16)
    if field.kafka == "string":
        return _read_compact_string if flexible else _read_string
    return _read_compact_data if flexible else _read_data


def _array(read: Read, *, flexible: bool, is_nullable: bool) -> Read:
    def read_array(data: bytes, at: int) -> tuple[list[Untyped] | None, int]:
        size, at = _read_size(data, at, flexible=flexible)
        if size < 0:
            if not is_nullable:
                raise WireError("an array is null")
            return None, at
        values = []
        for _ in range(size):
            value, at = read(data, at)
            values.append(value)
        return values, at

    return read_array


def _tag_section(tags: dict[int, Step]) -> Step:
    """Return the step that reads a tag section. Tags have to be in order and known."""

    def step(data: bytes, at: int, values: list[Untyped]) -> int:
        if not data[at]:
            return at + 1
        number, at = read_varint(data, at)
        last = -1
        for _ in range(number):
            tag, at = read_varint(data, at)
            size, at = read_varint(data, at)
            if tag <= last or tag not in tags or tags[tag](data, at, values) != at + size:
                raise WireError(f"tag {tag} of {size} bytes after tag {last}")
            at += size
            last = tag
        return at

    return step


def _read_size(data: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """Read the size of an array or of bytes, which is -1 if there are none."""
    if flexible:
        size, at = read_varint(data, at)
        return size - 1, at
    (size,) = get_i32(data, at)
    if size < -1:
        raise WireError(f"a size of {size}")
    return size, at + 4


def _slice(data: bytes, at: int, end: int) -> bytes:
    if end > len(data):
        raise WireError(f"a field ends at {end}, the frame at {len(data)}")
    return data[at:end]


def _read_compact_string(data: bytes, at: int) -> tuple[str | None, int]:
    size, at = read_varint(data, at)
    return (_slice(data, at, at + size - 1).decode(), at + size - 1) if size else (None, at)


def _read_string(data: bytes, at: int) -> tuple[str | None, int]:
    (size,) = get_i16(data, at)
    if size < -1:
        raise WireError(f"a string of {size} bytes")
    at += 2
    return (_slice(data, at, at + size).decode(), at + size) if size >= 0 else (None, at)


def _read_compact_data(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_size(data, at, flexible=True)
    return (_slice(data, at, at + size), at + size) if size >= 0 else (None, at)


def _read_data(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_size(data, at, flexible=False)
    return (_slice(data, at, at + size), at + size) if size >= 0 else (None, at)


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    value = data[at]
    if value > 1:
        raise WireError(f"a boolean is {value}")
    return bool(value), at + 1
