"""Messages as named tuples, written and read by kio's classes, which are generated from Kafka's own message files.

A named tuple stands for all versions of a message. It has the fields that the simulation uses, in any order, by kio's
names or the shorter ones of ``_NAMES``. A field that a version lacks is not written, and is read as its default. One
that the named tuple lacks is written as Kafka's default, and not read.

Kio's reader is native, strict, and takes a tenth of the time of one in Python, so it reads. Its writer takes four times
as long as the one here, which is a list of steps for each of kio's classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any, Final, NamedTuple, get_args, get_type_hints

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

# Kio's classes and the named tuples have no common base, and a field is of as many types as Kafka has.
Untyped = Any
Get = Callable[[Untyped], Untyped]
Put = Callable[[list[bytes], Untyped], None]

_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMATS: Final = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d", "bool": "?", "error_code": "h",
    "timedelta_i32": "i", "timedelta_i64": "q", "datetime_i64": "q",
}  # fmt: skip
# Our values, where kio has those of a class.
_PLAIN: Final[dict[str, Get]] = {
    "error_code": int,
    "timedelta_i32": lambda value: value // _MS,
    "timedelta_i64": lambda value: value // _MS,
    "datetime_i64": lambda value: -1 if value is None else (value - _EPOCH) // _MS,
    "uuid": lambda value: NO_TOPIC_ID if value is None else value.bytes,
}
_NAMES: Final = {
    "allow_auto_creation": ("allow_auto_topic_creation",),
    "apis": ("api_keys",),
    "acquired": ("acquired_records",),
    "acknowledged": ("acknowledgement_batches",),
    "brokers": ("brokers", "broker_ids"),
    "endpoints": ("node_endpoints",),
    "epoch": ("leader_epoch", "producer_epoch"),
    "first": ("min_version",),
    "forgotten": ("forgotten_topics_data",),
    "generation": ("generation_id", "generation_id_or_member_epoch"),
    "keys": ("coordinator_keys",),
    "names": ("topic_names",),
    "in_sync": ("isr_nodes",),
    "last": ("max_version",),
    "leader": ("leader", "current_leader", "leader_id"),
    "leader_epoch": ("leader_epoch", "current_leader_epoch", "committed_leader_epoch"),
    "lock_timeout_ms": ("acquisition_lock_timeout",),
    "log_append_time_ms": ("log_append_time",),
    "max_bytes": ("max_bytes", "partition_max_bytes"),
    "max_wait_ms": ("max_wait",),
    "name": ("name", "entity_name"),
    "node_id": ("node_id", "leader_id"),
    "offline": ("offline_replicas",),
    "offset": ("fetch_offset", "committed_offset"),
    "operations": ("ops",),
    "partition": ("partition", "partition_index", "index"),
    "partitions": (
        "partitions", "partition_data", "partition_responses", "partition_indexes", "num_partitions", "count",
    ),
    "preferred_replica": ("preferred_read_replica",),
    "rack": ("rack", "rack_id"),
    "rebalance_timeout_ms": ("rebalance_timeout",),
    "replicas": ("replica_nodes",),
    "session_epoch": ("session_epoch", "share_session_epoch"),
    "session_lifetime_ms": ("session_lifetime",),
    "session_timeout_ms": ("session_timeout",),
    "software_name": ("client_software_name",),
    "software_version": ("client_software_version",),
    "throttle_ms": ("throttle_time",),
    "timeout_ms": ("timeout", "transaction_timeout"),
    "token": ("auth_bytes",),
    "topic": ("topic", "name", "topic_id"),
    "topics": ("topics", "topic_data", "responses", "results"),
    "types": ("acknowledge_types",),
}  # fmt: skip


class _Matched(NamedTuple):
    """A field of one of kio's classes, and what stands for it.

    Attributes:
        kafka: Kio's name of its primitive type, or "" for a struct.
        struct: Kio's class of the struct.
        named: The named tuple that stands for the struct.
        at: Where the field is in the named tuple around it, or None if that lacks it.
    """

    field: Field[Untyped]
    kafka: str
    struct: Untyped
    named: Untyped
    is_array: bool
    is_nullable: bool
    at: int | None


def matched(schema: Untyped, made_of: Untyped) -> list[_Matched]:
    """Return the fields of one of kio's classes, in the order of the wire."""
    hints = get_type_hints(made_of)
    of_kio = {field.name: field for field in fields(schema)}
    places: dict[str, int] = {}
    for at, name in enumerate(made_of._fields):
        known = next((each for each in _NAMES.get(name, (name,)) if each in of_kio), None)
        if known is not None:
            places[known] = at
    found = []
    for name, field in of_kio.items():
        place = places.get(name)
        types = list(_types_in(field.type))
        found.append(
            _Matched(
                field,
                field.metadata.get("kafka_type", ""),
                next(filter(is_dataclass, types), None),
                None if place is None else next(filter(_is_named, _types_in(hints[made_of._fields[place]])), None),
                Ellipsis in types,
                type(None) in types,
                place,
            )
        )
    return found


def _types_in(hint: Untyped) -> Iterator[Untyped]:
    yield hint
    for part in get_args(hint):
        yield from _types_in(part)


def _is_named(hint: Untyped) -> bool:
    return hasattr(hint, "_fields")


# -- reading --


def getters(schema: Untyped, made_of: Untyped) -> list[Get]:
    """Return what gets the value of each field of a named tuple from an instance of kio's class."""
    gets = {each.at: _getter(each) for each in matched(schema, made_of)}
    defaults = made_of._field_defaults
    return [gets.get(at) or _constant(defaults.get(name)) for at, name in enumerate(made_of._fields)]


def _constant(value: Untyped) -> Get:
    return lambda _instance: value


def _getter(field: _Matched) -> Get:
    get = attrgetter(field.field.name)
    plain = _plain(field)
    return get if plain is None else lambda instance: plain(get(instance))


def _plain(field: _Matched) -> Get | None:
    """Return what makes a value of kio's ours, or None if it is the same."""
    plain = _PLAIN.get(field.kafka)
    if field.named is not None:
        gets, make = getters(field.struct, field.named), field.named._make

        def plain(instance: Untyped) -> Untyped:
            return make([get(instance) for get in gets])

    if not field.is_array:
        return plain
    if plain is None:
        return lambda values: None if values is None else list(values)
    return lambda values: None if values is None else [plain(value) for value in values]


# -- writing --


def writer(schema: Untyped, made_of: Untyped) -> Put:
    """Return what appends the bytes of a named tuple."""
    steps: list[Put] = []
    tags: list[tuple[int, int, Put, Untyped]] = []
    run: list[_Matched] = []
    flexible = schema.__flexible__
    for field in matched(schema, made_of):
        tag = field.field.metadata.get("tag")
        if tag is not None:
            if field.at is not None:
                tags.append((tag, field.at, _putter(field, flexible=flexible), _default(field)))
        elif field.at is not None and field.kafka in _FORMATS and not field.is_array:
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


def _numbers(run: list[_Matched]) -> list[Put]:
    """Return the step that writes numbers which stand side by side, if there are any."""
    if not run:
        return []
    pack = Struct(">" + "".join(_FORMATS[field.kafka] for field in run)).pack
    if len(run) == 1:
        at = run[0].at
        return [lambda parts, value: parts.append(pack(value[at]))]
    get = itemgetter(*[field.at for field in run])
    return [lambda parts, value: parts.append(pack(*get(value)))]


def _step(field: _Matched, *, flexible: bool) -> Put:
    put = _putter(field, flexible=flexible)
    at = field.at
    if at is None:
        constant: list[bytes] = []
        put(constant, _default(field))
        return lambda parts, _value: parts.extend(constant)
    return lambda parts, value: put(parts, value[at])


def _default(field: _Matched) -> Untyped:
    default = field.field.default
    if default is not MISSING:
        plain = _plain(field)
        return default if plain is None else plain(default)
    if field.is_array:
        return ()
    if field.kafka in _FORMATS:
        return 0
    if field.is_nullable:
        return NO_TOPIC_ID if field.kafka == "uuid" else None
    return {"string": "", "uuid": NO_TOPIC_ID}.get(field.kafka, b"")


def _putter(field: _Matched, *, flexible: bool) -> Put:
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


def _one_putter(field: _Matched, *, flexible: bool) -> Put:
    if field.struct is not None:
        return writer(field.struct, field.named) if field.named is not None else _put_nothing
    if field.kafka in _FORMATS:
        pack = Struct(">" + _FORMATS[field.kafka]).pack
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


def _put_nothing(_parts: list[bytes], _value: Untyped) -> None:
    raise WireError("a struct that no named tuple stands for")


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
            if value[at] != default:
                field: list[bytes] = []
                put_field(field, value[at])
                written[tag] = b"".join(field)
        parts.append(tagged_fields(written))

    return put
