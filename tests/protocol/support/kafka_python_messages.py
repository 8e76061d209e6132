"""Builds messages with kafka-python, which uses Kafka's own JSON files and knows old versions."""

import uuid
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from random import Random
from types import MappingProxyType
from typing import Any

from tests.protocol.support.kio_messages import generated_scalar

with warnings.catch_warnings():
    # kafka-python reads its JSON files with a deprecated function of importlib.resources.
    warnings.simplefilter("ignore", DeprecationWarning)
    import_module("kafka")  # first, because the modules of the package import each other in a circle
    for _name in ("admin", "consumer", "metadata", "producer", "sasl"):
        import_module(f"kafka.protocol.{_name}")
    from kafka.protocol.api_message import ApiMessage

# Classes and messages that are made at run time, or that have no common base.
Untyped = Any

NOTHING: Mapping[str, Any] = MappingProxyType({})

_SCALARS: Mapping[str, Any] = MappingProxyType(
    {
        "bool": True,
        "float64": 0.5,
        "uuid": uuid.UUID(int=3),
        "string": "three",
        "bytes": b"three",
        "records": b"three",
        "bitfield": frozenset({3}),
    }
)


@cache
def messages(kind: str) -> list[tuple[Untyped, int]]:
    """Return each pair of message class and version. ``kind`` is "request" or "response"."""
    # A class indexed by a version is a subclass; the class itself has version None.
    found = {cls.API_KEY: cls[None] for cls in ApiMessage.__subclasses__() if cls.type == kind}
    return [(cls, version) for _, cls in sorted(found.items()) for version in range(cls.max_version + 1)]


def example(cls: Untyped, version: int, values: Mapping[str, Any] = NOTHING, *, array_length: int = 2) -> Untyped:
    """Return a message without nulls or empty arrays. ``values`` replaces top-level fields."""
    return cls(version=version, **{**_filled(cls.fields, version, array_length), **values})


def generated(cls: Untyped, version: int, random: Random, values: Mapping[str, Any] = NOTHING) -> Untyped:
    """Return a random message. ``values`` replaces top-level fields."""
    return cls(version=version, **{**_generated_fields(cls.fields, version, random), **values})


def generated_element(field: Untyped, version: int, random: Random, values: Mapping[str, Any]) -> Untyped:
    """Return a random element of an array of structures. ``values`` replaces some of its fields."""
    return field.data_class(version=version, **{**_generated_fields(field.fields, version, random), **values})


def decoded(frame: bytes, cls: Untyped, version: int) -> Untyped:
    return cls.decode(frame, version=version, header=True, framed=True)


def empty(cls: Untyped, version: int) -> Untyped:
    """Return a message of defaults, with empty arrays and without tagged fields."""
    return cls(version=version)


def request_frame(message: Untyped, *, correlation_id: int = 7, client_id: str | None = "etl") -> bytes:
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(message.encode(header=True, framed=True))


def response_frame(message: Untyped, *, correlation_id: int = 7) -> bytes:
    flexible = message.flexible_version_q(message.API_VERSION)
    message.with_header(correlation_id=correlation_id)
    payload = message.encode_header(flexible=flexible) + message.encode()
    return bytes(len(payload).to_bytes(4, "big") + payload)


def _filled(fields: Mapping[str, Any], version: int, array_length: int) -> dict[str, Any]:
    return {
        name: _value(field, version, array_length) for name, field in fields.items() if field.for_version_q(version)
    }


def _generated_fields(fields: Mapping[str, Any], version: int, random: Random) -> dict[str, Any]:
    return {name: _generated(field, version, random) for name, field in fields.items() if field.for_version_q(version)}


def _generated(field: Untyped, version: int, random: Random) -> Untyped:
    if field.nullable_for_version_q(version) and random.random() < 0.3:
        return None
    if field.is_struct_array():
        return [generated_element(field, version, random, {}) for _ in range(random.randrange(4))]
    if field.is_struct():
        return generated_element(field, version, random, {})
    if field.is_array():
        kind = field.type_str.removeprefix("[]")
        return [generated_scalar(kind, random) for _ in range(random.randrange(4))]
    if field.type_str == "bitfield":
        return frozenset(random.sample(range(31), random.randrange(4)))
    return generated_scalar(field.type_str, random)


def _value(field: Untyped, version: int, array_length: int) -> Untyped:
    if field.is_struct_array():
        element = field.data_class(version=version, **_filled(field.fields, version, array_length))
        return [element] * array_length
    if field.is_struct():
        return field.data_class(version=version, **_filled(field.fields, version, array_length))
    if field.is_array():
        return [_SCALARS.get(field.type_str.removeprefix("[]"), 3)] * array_length
    return _SCALARS.get(field.type_str, 3)
