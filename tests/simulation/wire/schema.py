"""Which field of a named tuple stands for which one of kio's classes, which are generated from Kafka's message files.

A named tuple stands for all versions of a message. It has the fields that the simulation uses, in any order, by kio's
names or the shorter ones of ``_NAMES``. A field that a version lacks is not written, and is read as its default. One
that the named tuple lacks is written as Kafka's default, and its value is not read.

Kio's own codec is not used but in the tests. Its writer takes four times as long as ``writing``, and a damaged number
of elements ends its reader with the whole process, so no check could tell of it.
"""

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, Final, NamedTuple, get_args, get_type_hints

# Kio's classes and the named tuples have no common base, and a field is of as many types as Kafka has.
Untyped = Any

# Kio's names of the numbers, as struct has them. Times are in ms, where kio's own values are of Python's classes.
FORMATS: Final = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d", "bool": "?", "error_code": "h",
    "timedelta_i32": "i", "timedelta_i64": "q", "datetime_i64": "q",
}  # fmt: skip
# What else a field of kio's may be named, whose name is not that of the named tuple, with or without "_ms" at its end.
_NAMES: Final = {
    "acknowledged": ("acknowledgement_batches",),
    "acquired": ("acquired_records",),
    "allow_auto_creation": ("allow_auto_topic_creation",),
    "apis": ("api_keys",),
    "brokers": ("broker_ids",),
    "endpoints": ("node_endpoints",),
    "epoch": ("leader_epoch", "producer_epoch"),
    "first": ("min_version",),
    "forgotten": ("forgotten_topics_data",),
    "generation": ("generation_id", "generation_id_or_member_epoch"),
    "in_sync": ("isr_nodes",),
    "keys": ("coordinator_keys",),
    "last": ("max_version",),
    "leader": ("current_leader", "leader_id"),
    "leader_epoch": ("current_leader_epoch", "committed_leader_epoch"),
    "lock_timeout_ms": ("acquisition_lock_timeout",),
    "max_bytes": ("partition_max_bytes",),
    "name": ("entity_name",),
    "names": ("topic_names",),
    "node_id": ("leader_id",),
    "offline": ("offline_replicas",),
    "offset": ("fetch_offset", "committed_offset"),
    "operations": ("ops",),
    "partition": ("partition_index", "index"),
    "partitions": ("partition_data", "partition_responses", "partition_indexes", "num_partitions", "count"),
    "preferred_replica": ("preferred_read_replica",),
    "rack": ("rack_id",),
    "replicas": ("replica_nodes",),
    "session_epoch": ("share_session_epoch",),
    "software_name": ("client_software_name",),
    "software_version": ("client_software_version",),
    "throttle_ms": ("throttle_time",),
    "timeout_ms": ("transaction_timeout",),
    "token": ("auth_bytes",),
    "topic": ("name", "topic_id"),
    "topics": ("topic_data", "responses", "results"),
    "types": ("acknowledge_types",),
}


class Matched(NamedTuple):
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


def matched(schema: Untyped, made_of: Untyped) -> list[Matched]:
    """Return the fields of one of kio's classes, in the order of the wire."""
    hints = get_type_hints(made_of)
    of_kio = {field.name: field for field in fields(schema)}
    places: dict[str, int] = {}
    for at, name in enumerate(made_of._fields):
        known = next((each for each in _names_of(name) if each in of_kio), None)
        if known is not None:
            places[known] = at
    found = []
    for name, field in of_kio.items():
        place = places.get(name)
        types = list(_types_in(field.type))
        struct = _struct_of(field)
        named = None
        if struct is not None:
            hint = None if place is None else hints[made_of._fields[place]]
            named = next(filter(_is_named, _types_in(hint)), None) or whole(struct)
        kafka = field.metadata.get("kafka_type", "")
        found.append(Matched(field, kafka, struct, named, Ellipsis in types, type(None) in types, place))
    return found


def _names_of(name: str) -> tuple[str, ...]:
    return name, name.removesuffix("_ms"), *_NAMES.get(name, ())


def _types_in(hint: Untyped) -> Iterator[Untyped]:
    yield hint
    for part in get_args(hint):
        yield from _types_in(part)


def _struct_of(field: Field[Untyped]) -> Untyped:
    return next(filter(is_dataclass, _types_in(field.type)), None)


def _is_named(hint: Untyped) -> bool:
    return hasattr(hint, "_fields")


def whole(schema: Untyped) -> Untyped:
    """Return a named tuple of all fields of one of kio's classes."""
    structs = {field.name: _struct_of(field) for field in fields(schema)}
    named: Untyped = namedtuple("named", list(structs))  # type: ignore[misc]
    named.__annotations__ = {name: object if struct is None else whole(struct) for name, struct in structs.items()}
    return named
