"""Compares a frame before and after the proxy, apart from the fields that the proxy may edit."""

from typing import Final

from tests.simulation.checks import frames
from tests.simulation.wire import transfer
from tests.simulation.wire.api import whole_response
from tests.simulation.wire.common import WireError
from tests.simulation.wire.schema import Untyped

_WITHOUT_SESSION: Final = -1
_OPENS_SESSION: Final = 0
_FIRST_ENDPOINTS: Final = 16
# Responses with the addresses of brokers.
_ADDRESSED: Final = (
    frames.PRODUCE, frames.FETCH, frames.METADATA, frames.FIND_COORDINATOR, frames.DESCRIBE_CLUSTER,
    frames.SHARE_FETCH, frames.SHARE_ACKNOWLEDGE,
)  # fmt: skip
_LIMITS: Final = ("max_wait_ms", "min_bytes", "max_bytes", "max_records")


def _unedited(value: Untyped, edited: frozenset[str]) -> Untyped:
    """Return a response without some fields."""
    if not isinstance(value, list | tuple):
        return value
    names = getattr(value, "_fields", ("",) * len(value))
    return [_unedited(part, edited) for name, part in zip(names, value, strict=True) if name not in edited]


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
    if api_key == frames.API_VERSIONS:
        return before[4:10] == after[4:10]  # which versions are offered is the proxy's business
    try:
        old, new = (whole_response(frame, api_key, version) for frame in (before, after))
    except WireError:
        return False
    if api_key == frames.FETCH and version >= _FIRST_ENDPOINTS and not new.node_endpoints:
        # The proxy hides them in a response that it streams.
        old = old._replace(node_endpoints=None, hidden_endpoints=old.node_endpoints)
    edited = frozenset({"throttle_time", *(("host", "port") if api_key in _ADDRESSED else ())})
    return bool(_unedited(old, edited) == _unedited(new, edited))


def is_same_fetch(before: bytes, after: bytes) -> bool:
    """Return whether the broker got a consumer's Fetch, apart from a lower max_bytes, min_bytes, and no new session."""
    old, new = transfer.fetch.parse_request(before), transfer.fetch.parse_request(after)
    expected = old._replace(max_bytes=new.max_bytes, min_bytes=min(old.min_bytes, new.max_bytes))
    if (old.session_epoch, new.session_epoch) == (_OPENS_SESSION, _WITHOUT_SESSION):
        expected = expected._replace(session_epoch=_WITHOUT_SESSION)
    return 0 < new.max_bytes <= old.max_bytes and new == expected


def is_same_share_fetch(before: bytes, after: bytes) -> bool:
    """Return whether the broker got a ShareFetch, apart from its limits, which may be lower."""
    old, new = transfer.share_fetch.parse_request(before), transfer.share_fetch.parse_request(after)
    limits = {name: getattr(new, name) for name in _LIMITS}
    return new == old._replace(**limits) and all(limits[name] <= getattr(old, name) for name in _LIMITS)
