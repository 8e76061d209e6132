"""Writes named tuples: a list of steps for each of kio's classes."""

from collections.abc import Callable
from dataclasses import MISSING
from datetime import timedelta
from operator import itemgetter
from struct import Struct

from tests.simulation.wire.common import (
    NO_TOPIC_ID,
    WireError,
    compact_nullable_string,
    compact_string,
    count,
    nullable_string,
    string,
    tagged_fields,
)
from tests.simulation.wire.schema import FORMATS, Matched, Untyped, matched

Put = Callable[[list[bytes], Untyped], None]


def writer(schema: Untyped, made_of: Untyped) -> Put:
    """Return what appends the bytes of a named tuple."""
    steps: list[Put] = []
    tags: list[tuple[int, int, Put, Untyped]] = []
    run: list[Matched] = []
    flexible = schema.__flexible__
    for field in matched(schema, made_of):
        tag = field.field.metadata.get("tag")
        if tag is not None:
            if field.at is not None:
                default = made_of._field_defaults.get(made_of._fields[field.at])
                tags.append((tag, field.at, _putter(field, flexible=flexible), default))
        elif field.at is not None and field.kafka in FORMATS and not field.is_array:
            run.append(field)
        else:
            steps += _numbers(run)
            run.clear()
            steps.append(_step(field, flexible=flexible))
    steps += _numbers(run)
    if flexible:
        steps.append(_tag_section(tags))

    def put(parts: list[bytes], value: Untyped) -> None:
        for step in steps:
            step(parts, value)

    return put


def _numbers(run: list[Matched]) -> list[Put]:
    """Return the step that writes numbers which stand side by side, if there are any."""
    if not run:
        return []
    pack = Struct(">" + "".join(FORMATS[field.kafka] for field in run)).pack
    if len(run) == 1:
        at = run[0].at
        return [lambda parts, value: parts.append(pack(value[at]))]
    get = itemgetter(*[field.at for field in run])
    return [lambda parts, value: parts.append(pack(*get(value)))]


def _step(field: Matched, *, flexible: bool) -> Put:
    put = _putter(field, flexible=flexible)
    at = field.at
    if at is None:
        constant: list[bytes] = []
        put(constant, _default(field))
        return lambda parts, _value: parts.extend(constant)
    return lambda parts, value: put(parts, value[at])


def _default(field: Matched) -> Untyped:
    """Return what Kafka's message file has for a field, or zero, if it has nothing."""
    default = field.field.default
    if default is not MISSING:
        return default // timedelta(milliseconds=1) if isinstance(default, timedelta) else default
    if field.is_array:
        return ()
    if field.kafka in FORMATS:
        return 0
    if field.kafka == "uuid":
        return NO_TOPIC_ID
    if field.is_nullable:
        return None
    return "" if field.kafka == "string" else b""


def _putter(field: Matched, *, flexible: bool) -> Put:
    """Return what appends the bytes of one value."""
    put = _one_putter(field, flexible=flexible)
    if not field.is_array:
        return put
    null = _null(flexible=flexible) if field.is_nullable else None

    def put_array(parts: list[bytes], values: Untyped) -> None:
        if values is None and null is not None:
            parts.append(null)
            return
        parts.append(count(len(values), flexible=flexible))
        for value in values:
            put(parts, value)

    return put_array


def _one_putter(field: Matched, *, flexible: bool) -> Put:
    if field.struct is not None:
        return writer(field.struct, field.named)
    if field.kafka in FORMATS:
        pack = Struct(">" + FORMATS[field.kafka]).pack
        return lambda parts, value: parts.append(pack(value))
    if field.kafka == "uuid":
        return _put_uuid
    if field.kafka == "string":
        is_nullable = field.is_nullable and not field.is_array
        if flexible:
            text: Callable[[Untyped], bytes] = compact_nullable_string if is_nullable else compact_string
        else:
            text = nullable_string if is_nullable else string
        return lambda parts, value: parts.append(text(value))

    def put_data(parts: list[bytes], value: bytes | None) -> None:
        if value is None:
            parts.append(_null(flexible=flexible))
        else:
            parts.append(count(len(value), flexible=flexible))
            parts.append(value)

    return put_data


def _null(*, flexible: bool) -> bytes:
    return b"\0" if flexible else b"\xff\xff\xff\xff"


def _put_uuid(parts: list[bytes], value: bytes) -> None:
    if not isinstance(value, bytes) or len(value) != 16:
        raise WireError(f"no id: {value!r}")
    parts.append(value)


def _tag_section(tags: list[tuple[int, int, Put, Untyped]]) -> Put:
    if not tags:
        return lambda parts, _value: parts.append(b"\0")

    def put(parts: list[bytes], value: Untyped) -> None:
        written: dict[int, bytes] = {}
        for tag, at, put_field, default in tags:
            if value[at] not in (default, []):
                field: list[bytes] = []
                put_field(field, value[at])
                written[tag] = b"".join(field)
        parts.append(tagged_fields(written))

    return put
