"""Compares a frame before and after the proxy, apart from the fields that the proxy may edit."""

from importlib import import_module
from struct import Struct
from typing import Any, Final

from tests.simulation.checks import frames

_INT32: Final = Struct(">i").unpack_from
_WITHOUT_SESSION: Final = -1
_OPENS_SESSION: Final = 0
_FIRST_SESSION: Final = 7
_FIRST_MAX_RECORDS: Final = 1
# Where the actors' own parsers are, for responses with the addresses of brokers, and for offered versions.
_PARSERS: Final = {
    frames.PRODUCE: "produce",
    frames.FETCH: "fetch_response",
    frames.METADATA: "metadata",
    frames.FIND_COORDINATOR: "find_coordinator",
    frames.DESCRIBE_CLUSTER: "describe_cluster",
    frames.SHARE_FETCH: "share_fetch",
    frames.SHARE_ACKNOWLEDGE: "share_acknowledge",
    frames.API_VERSIONS: "api_versions",
}
_EDITED_FIELDS: Final = frozenset({"host", "port", "throttle_ms", "throttle_time_ms"})

Parsed = Any


def parsed(frame: bytes, api_key: int, version: int) -> Parsed:
    """Return a response as the actors read it, or None if they do not read this API.

    Raises:
        ValueError: If the frame is not such a response.
    """
    name = _PARSERS.get(api_key)
    if name is None:
        return None
    try:
        module = import_module(f"tests.simulation.wire.{name}")
    except ModuleNotFoundError:
        return None
    return module.parse_response(frame, version)


def unedited(value: Parsed) -> Parsed:
    """Return a parsed response without the fields that the proxy may edit."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(
            (name, unedited(part))
            for name, part in zip(value._fields, value, strict=True)
            if name not in _EDITED_FIELDS
        )
    if isinstance(value, list | tuple):
        return tuple(unedited(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, unedited(part)) for name, part in value.items())
    return value


def hosts(value: Parsed) -> list[str]:
    """Return the hosts of all brokers in a parsed response."""
    found: list[str] = []
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, part in zip(value._fields, value, strict=True):
            if name == "host" and isinstance(part, str):
                found.append(part)
            elif not isinstance(part, bytes | str | int | None):
                found += hosts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            found += hosts(part)
    return found


def is_same_response(before: bytes, after: bytes, api_key: int, version: int) -> bool:
    """Return whether the client got what the broker sent, apart from the throttle time and brokers' addresses."""
    if before == after:
        return True
    at = frames.throttle_at(before, api_key, version)
    if at is not None and len(before) == len(after):
        is_same = before[at + 4 :] == after[at + 4 :] and before[:at] == after[:at]
        if is_same:
            return True
    if api_key == frames.API_VERSIONS:
        return before[4:10] == after[4:10]  # which versions are offered is the proxy's business
    if api_key not in _PARSERS:
        return False
    old = parsed(before, api_key, version)
    if old is None:
        return True  # what the actors do not read yet has passed if it has its correlation id
    new = parsed(after, api_key, version)
    if api_key == frames.FETCH and not new.endpoints:
        old = old._replace(endpoints=())  # the proxy hides them in a response that it streams
    return bool(unedited(old) == unedited(new))


def is_same_fetch(before: bytes, after: bytes) -> bool:
    """Return whether the broker got a consumer's Fetch, apart from a lower max_bytes, min_bytes, and no new session."""
    if before == after:
        return True
    if len(before) != len(after):
        return False
    version = int.from_bytes(before[6:8], "big")
    at = frames.fetch_limits_at(before) + 4
    min_bytes, max_bytes = _INT32(before, at)[0], _INT32(before, at + 4)[0]
    new_min, new_max = _INT32(after, at)[0], _INT32(after, at + 4)[0]
    if not (0 < new_max <= max_bytes and new_min == min(min_bytes, new_max)):
        return False
    end = at + 8
    if version >= _FIRST_SESSION:
        epoch_at = end + 5
        old, new = _INT32(before, epoch_at)[0], _INT32(after, epoch_at)[0]
        if old != new and (old, new) != (_OPENS_SESSION, _WITHOUT_SESSION):
            return False
        if before[end:epoch_at] != after[end:epoch_at]:
            return False
        end = epoch_at + 4
    return before[:at] == after[:at] and before[end:] == after[end:]


def is_same_share_fetch(before: bytes, after: bytes) -> bool:
    """Return whether the broker got a ShareFetch, apart from its limits, which may be lower."""
    if before == after:
        return True
    if len(before) != len(after):
        return False
    version = int.from_bytes(before[6:8], "big")
    at = frames.body_at(before, has_tags=True)
    for _ in range(2):  # group_id, member_id
        length, at = frames.varint(before, at)
        at += max(0, length - 1)
    at += 4  # share_session_epoch
    fields = 4 if version >= _FIRST_MAX_RECORDS else 3
    for number in range(fields):
        if _INT32(after, at + 4 * number)[0] > _INT32(before, at + 4 * number)[0]:
            return False
    end = at + 4 * fields
    return before[:at] == after[:at] and before[end:] == after[end:]
