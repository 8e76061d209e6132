"""Builds messages with aiokafka, whose structures are written by hand and not generated from Kafka's JSON files."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from aiokafka.protocol import types
from aiokafka.protocol.api import RequestStruct, Response

for _name in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset", "produce", "transaction"):
    import_module(f"aiokafka.protocol.{_name}")

# Classes and messages that are made at run time, or that have no common base.
Untyped = Any

NOTHING: Mapping[str, Any] = MappingProxyType({})


def requests() -> list[Untyped]:
    """Return each version of each request class. DescribeAcls v2 is missing because aiokafka writes it without tags."""
    found = [cls for cls in _leaves(RequestStruct) if cls.__name__ != "DescribeAclsRequest_v2"]
    return sorted(found, key=lambda cls: (cls.API_KEY, cls.API_VERSION))


def responses(api_key: int) -> list[Untyped]:
    found = [cls for cls in _leaves(Response) if api_key == cls.API_KEY]
    return sorted(found, key=lambda cls: cls.API_VERSION)


def example(cls: Untyped, values: Mapping[str, Any] = NOTHING) -> Untyped:
    """Return a message without nulls, with two elements in each array. ``values`` replaces top-level fields."""
    schema = cls.SCHEMA
    fields = zip(schema.names, schema.fields, strict=True)
    return cls(*[values[name] if name in values else _value(kind) for name, kind in fields])


def request_frame(message: Untyped, *, correlation_id: int = 7, client_id: str | None = "etl") -> bytes:
    payload = message.build_request_header(correlation_id, client_id).encode() + message.encode()
    return bytes(len(payload).to_bytes(4, "big") + payload)


def response_frame(message: Untyped, *, correlation_id: int = 7) -> bytes:
    """Encode a response with its size and header v0."""
    payload = correlation_id.to_bytes(4, "big") + message.encode()
    return bytes(len(payload).to_bytes(4, "big") + payload)


def _leaves(cls: Untyped) -> Iterator[Untyped]:
    # The proxy defines subclasses too.
    if hasattr(cls, "API_VERSION") and cls.__module__.startswith("aiokafka."):
        yield cls
    for child in cls.__subclasses__():
        yield from _leaves(child)


def _value(kind: Untyped) -> Untyped:
    if isinstance(kind, types.Array):
        return [_value(kind.array_of)] * 2
    if isinstance(kind, types.Schema):
        return tuple(_value(field) for field in kind.fields)
    if isinstance(kind, types.String):
        return "three"
    by_type: dict[Any, Any] = {
        types.Bytes: b"three",
        types.CompactBytes: b"three",
        types.Boolean: True,
        types.Float64: 0.5,
        types.TaggedFields: {},
    }
    return by_type.get(kind, 3)
