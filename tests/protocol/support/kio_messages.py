"""Builds messages with kio, which is generated from Kafka's message files and knows every API of Kafka 4."""

import io
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import MappingProxyType
from typing import Any, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

# Classes and messages that are made at run time, or that have no common base.
Untyped = Any

NOTHING: Mapping[str, Any] = MappingProxyType({})


def api_versions() -> list[tuple[int, int]]:
    """Return each (api_key, version) for which kio has a request and a response."""
    return [(key, version) for key, name in sorted(api_key_map.items()) for version in sorted(schema_name_map[name])]


def request_class(api_key: int, version: int) -> Untyped:
    return load_request_schema(api_key, version)


def response_class(api_key: int, version: int) -> Untyped:
    return load_response_schema(api_key, version)


def example(
    entity: Untyped, values: Mapping[str, Any] = NOTHING, *, array_length: int = 2, tagged: bool = True
) -> Untyped:
    """Return a message without nulls or empty arrays. ``values`` replaces top-level fields."""
    filled = {}
    for field in fields(entity):
        if field.name in values:
            filled[field.name] = values[field.name]
        elif tagged or not _may_be_left_out(field):
            filled[field.name] = _value(field.type, array_length=array_length, tagged=tagged)
    return entity(**filled)


def generated(entity: Untyped, random: Random, values: Mapping[str, Any] = NOTHING) -> Untyped:
    """Return a random message. ``values`` replaces top-level fields."""
    filled = {}
    for field in fields(entity):
        if field.name in values:
            filled[field.name] = values[field.name]
        elif not _may_be_left_out(field) or random.random() < 0.5:
            filled[field.name] = _generated(field.type, field.metadata.get("kafka_type"), random)
    return entity(**filled)


def _may_be_left_out(field: Field[Any]) -> bool:
    return "tag" in field.metadata and (field.default, field.default_factory) != (MISSING, MISSING)


def milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def encode(message: Untyped) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def request_frame(
    message: Untyped, *, correlation_id: int = 7, client_id: str | None = "etl", header_tags: bytes | None = None
) -> bytes:
    """Encode a request with its header and size. ``header_tags`` replaces the header's empty tag section."""
    kind = type(message)
    header = encode(
        kind.__header_schema__(
            request_api_key=kind.__api_key__,
            request_api_version=kind.__version__,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )
    if header_tags is not None:
        assert header[-1] == 0, "this header has no tag section"
        header = header[:-1] + header_tags
    return framed(header + encode(message))


def response_frame(message: Untyped, *, correlation_id: int = 7) -> bytes:
    return framed(encode(type(message).__header_schema__(correlation_id=correlation_id)) + encode(message))


def framed(payload: bytes) -> bytes:
    """Return a payload with its size in front."""
    return len(payload).to_bytes(4, "big") + payload


def _value(kind: Untyped, *, array_length: int, tagged: bool) -> Untyped:
    origin: Any = get_origin(kind)
    arguments = get_args(kind)
    if origin is tuple:
        return (_value(arguments[0], array_length=array_length, tagged=tagged),) * array_length
    if arguments:
        # This is a union with None.
        kind = next(argument for argument in arguments if argument is not type(None))
        return _value(kind, array_length=array_length, tagged=tagged)
    if is_dataclass(kind):
        return example(kind, array_length=array_length, tagged=tagged)
    return _scalar(kind)


def _generated(kind: Untyped, kafka_type: str | None, random: Random) -> Untyped:
    origin: Any = get_origin(kind)
    arguments = get_args(kind)
    if origin is tuple:
        return tuple(_generated(arguments[0], kafka_type, random) for _ in range(random.randrange(4)))
    if arguments:
        # This is a union with None.
        kind = next(argument for argument in arguments if argument is not type(None))
        return None if random.random() < 0.3 else _generated(kind, kafka_type, random)
    if is_dataclass(kind):
        return generated(kind, random)
    if kind is ErrorCode:
        return random.choice(list(ErrorCode))
    if issubclass(kind, timedelta):
        return milliseconds(random.randrange(2**31))
    if issubclass(kind, datetime):
        return datetime.fromtimestamp(random.randrange(2**32), tz=UTC)
    return generated_scalar(str(kafka_type), random)


def generated_scalar(kafka_type: str, random: Random) -> Any:  # noqa: ANN401 - as many types as Kafka has
    """Return a random value of a type of Kafka's message files, such as ``int32``."""
    if kafka_type.startswith("int"):
        bits = int(kafka_type.removeprefix("int"))
        return random.choice([0, -1, random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))])
    size = random.choice([0, 1, 7, 20, random.randrange(300)])
    if kafka_type == "string":
        return "".join(random.choices("aé-0\0\U0001f980", k=size))
    if kafka_type in ("bytes", "records"):
        return random.randbytes(size)
    others: dict[str, Any] = {
        "bool": random.random() < 0.5,
        "float64": random.random(),
        "uint16": random.randrange(2**16),
        "uuid": uuid.UUID(int=random.randrange(1, 2**128)),
    }
    return others[kafka_type]


def _scalar(kind: Untyped) -> Untyped:
    if kind is ErrorCode:
        return ErrorCode.none
    for base, value in (
        (bool, True),
        (int, 3),
        (float, 0.5),
        (str, "three"),
        (bytes, b"three"),
        (uuid.UUID, uuid.UUID(int=3)),
        (timedelta, timedelta(milliseconds=3)),
        (datetime, datetime.fromtimestamp(3, tz=UTC)),
    ):
        if issubclass(kind, base):
            return value
    raise AssertionError(f"no example for {kind}")
