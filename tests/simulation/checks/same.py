"""Compares a frame before and after the proxy, apart from the fields that the proxy may edit."""

from struct import Struct
from typing import Final

from tests.simulation.checks import frames
from tests.simulation.wire.api import whole_response
from tests.simulation.wire.schema import Untyped

_INT32: Final = Struct(">i").unpack_from
_WITHOUT_SESSION: Final = -1
_OPENS_SESSION: Final = 0
_FIRST_SESSION: Final = 7
_FIRST_MAX_RECORDS: Final = 1
_FIRST_ENDPOINTS: Final = 16
# Responses with the addresses of brokers.
_ADDRESSED: Final = (
    frames.PRODUCE, frames.FETCH, frames.METADATA, frames.FIND_COORDINATOR, frames.DESCRIBE_CLUSTER,
    frames.SHARE_FETCH, frames.SHARE_ACKNOWLEDGE,
)  # fmt: skip
_EDITED_FIELDS: Final = frozenset({"host", "port", "throttle_time"})


def unedited(value: Untyped) -> Untyped:
    """Return a response without the fields that the proxy may edit."""
    if not isinstance(value, list | tuple):
        return value
    names = getattr(value, "_fields", None)
    if names is None:
        return [unedited(part) for part in value]
    return [unedited(part) for name, part in zip(names, value, strict=True) if name not in _EDITED_FIELDS]


def hosts(value: Untyped) -> list[str]:
    """Return the hosts of all brokers in a response, but not those that no client finds."""
    if not isinstance(value, list | tuple):
        return []
    found: list[str] = []
    for name, part in zip(getattr(value, "_fields", ("",) * len(value)), value, strict=True):
        if name == "host":
            found.append(part)
        elif name != "hidden_endpoints":
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
    if api_key not in _ADDRESSED:
        return False
    old, new = whole_response(before, api_key, version), whole_response(after, api_key, version)
    if api_key == frames.FETCH and version >= _FIRST_ENDPOINTS and not new.node_endpoints:
        # The proxy hides them in a response that it streams.
        old = old._replace(node_endpoints=None, hidden_endpoints=old.node_endpoints)
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
