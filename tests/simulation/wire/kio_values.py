"""Reads frames with kio, whose messages are generated from Kafka's own files, into plain values to compare with."""

import uuid
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

# Messages that are made at run time, or that have no common base.
Untyped = Any


def read_request(frame: bytes, api_key: int, version: int) -> tuple[dict[str, Untyped], dict[str, Untyped]]:
    """Return the fields of a request's header, and those of its body."""
    schema = load_request_schema(api_key, version)
    return _read(frame, schema.__header_schema__, schema)


def read_response(frame: bytes, api_key: int, version: int) -> tuple[dict[str, Untyped], dict[str, Untyped]]:
    """Return the fields of a response's header, and those of its body."""
    schema = load_response_schema(api_key, version)
    return _read(frame, schema.__header_schema__, schema)


def _read(frame: bytes, header: Untyped, body: Untyped) -> tuple[dict[str, Untyped], dict[str, Untyped]]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    values = []
    at = 4
    for schema in (header, body):
        message, size = entity_reader(schema)(frame, at)
        at += size
        values.append(_plain(message))
    assert at == len(frame), f"kio reads {at} of {len(frame)} bytes"
    return values[0], values[1]


def _plain(value: Untyped) -> Untyped:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000)
    if isinstance(value, Enum):
        return value.value
    return value.bytes if isinstance(value, uuid.UUID) else value
