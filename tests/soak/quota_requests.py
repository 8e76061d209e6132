"""Kafka's requests that describe and alter client quotas, over a raw connection. Both in version 0."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from tests.end_to_end.support.frames import raw_client, string

_DESCRIBE: Final = 48
_ALTER: Final = 49


def alter(port: int, entity: Mapping[str, str], key: str, limit: float) -> str | None:
    """Set one limit of an entity, and return the error message, or None if the change was acknowledged."""
    names = b"".join(string(kind) + string(name) for kind, name in entity.items())
    body = (
        struct.pack(">ii", 1, len(entity))
        + names
        + struct.pack(">i", 1)
        + string(key)
        + struct.pack(">d??", limit, 0, 0)
    )
    with raw_client(port, client_id="quotas") as client:
        response = client.ask(_ALTER, 0, body).body
    _, count, code = struct.unpack_from(">iih", response)
    if count != 1:
        raise AssertionError(f"{count} entities in the response")
    return None if code == 0 else f"error {code}: {_string(response, 10)[0]}"


def describe(port: int) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """Return the limits of each entity. An entity is its sorted pairs of type and name."""
    with raw_client(port, client_id="quotas") as client:
        body = client.ask(_DESCRIBE, 0, struct.pack(">i?", 0, False)).body
    _, code = struct.unpack_from(">ih", body)
    message, at = _string(body, 6)
    if code:
        raise AssertionError(f"error {code}: {message}")
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    found = {}
    for _ in range(count):
        (parts,) = struct.unpack_from(">i", body, at)
        at += 4
        entity = []
        for _ in range(parts):
            kind, at = _string(body, at)
            name, at = _string(body, at)
            entity.append((str(kind), name))
        (values,) = struct.unpack_from(">i", body, at)
        at += 4
        limits = {}
        for _ in range(values):
            key, at = _string(body, at)
            (limits[str(key)],) = struct.unpack_from(">d", body, at)
            at += 8
        found[tuple(sorted(entity))] = limits
    return found


def _string(body: bytes, at: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", body, at)
    if size < 0:
        return None, at + 2
    return body[at + 2 : at + 2 + size].decode(), at + 2 + size
