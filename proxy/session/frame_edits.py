"""Computes how to edit requests and responses: caps fetches, and sets throttle times and offered API versions."""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol import api_versions, fetch, throttle_time
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError

# (begin, end, replacement): the bytes from offset begin to offset end are replaced. An empty tuple changes nothing.
Edit = tuple[int, int, bytes] | tuple[()]
NO_EDIT: Final[Edit] = ()

# Responses of Produce, ApiVersions and a few other APIs are collected whole before they are edited. A longer response
# is not edited, but its client is muted all the same.
MAX_HELD_RESPONSE_BYTES: Final = 1024 * 1024

_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")


def capped_fetch(limits: fetch.FetchLimits, max_fetch_bytes: int) -> Edit:
    """Return the edit that lowers max_bytes and min_bytes of a fetch to at most ``max_fetch_bytes`` (KAFKA-9677)."""
    if limits.max_bytes <= max_fetch_bytes or limits.max_bytes_offset < 0:
        return NO_EDIT
    # The two fields are neighbours in every version.
    at = limits.min_bytes_offset
    return at, at + 8, _TWO_INT32.pack(min(limits.min_bytes, max_fetch_bytes), max_fetch_bytes)


def without_session(data: bytes, edit: Edit, session: fetch.FetchSession) -> Edit:
    """Return ``edit`` (from ``capped_fetch``), extended so that a full fetch opens no fetch session at the broker."""
    at = session.epoch_offset
    epoch = _INT32.pack(fetch.WITHOUT_SESSION)
    if not edit:
        return at, at + 4, epoch
    begin, until, replacement = edit
    return begin, at + 4, replacement + data[until:at] + epoch


def response_edit(
    data: bytes,
    position: int,
    frame_bytes: int,
    api_key: int,
    api_version: int,
    wait_ms: int,
    ceilings: Mapping[int, int] = api_versions.CEILINGS,
    own: Mapping[int, api_versions.VersionRange] | None = None,
    *,
    is_exact: bool = False,
) -> Edit | None:
    """Return the edit that sets the throttle time in a response and, for ApiVersions, the offered API versions.

    The new throttle time is the larger of the broker's throttle time and ``wait_ms``, or ``wait_ms`` if ``is_exact``.
    ``ceilings`` contains the highest version to offer of each API. ``own`` contains the versions of the APIs that the
    proxy answers itself.

    Returns:
        The edit, or None if more bytes are needed. The edit is empty if there is nothing to edit, or if the response
        cannot be read.
    """
    try:
        if throttle_time.is_in_front(api_key):
            at = throttle_time.front_throttle_time_offset(data, position, api_key, api_version)
            return None if at is None else NO_EDIT if at < 0 else _told(data, at, wait_ms, is_exact=is_exact)
        if frame_bytes > MAX_HELD_RESPONSE_BYTES:
            return NO_EDIT
        if position + frame_bytes > len(data):
            return None
        frame = data[position : position + frame_bytes]
        if api_key == ApiKey.API_VERSIONS:
            announced = api_versions.limit_versions(frame, api_version, ceilings)
            if own:
                announced = api_versions.advertise_versions(announced, api_version, own)
            told = throttle_time.write_throttle_time(announced, api_key, api_version, wait_ms)
            return position, position + frame_bytes, told
        offset = throttle_time.throttle_time_offset(frame, api_key, api_version)
        return NO_EDIT if offset is None else _told(data, position + offset, wait_ms, is_exact=is_exact)
    except ProtocolError:
        return NO_EDIT


def edited(frame: bytes, edit: Edit | None) -> bytes:
    """Return a whole frame with an edit applied. Without an edit it is returned as it is."""
    return frame[: edit[0]] + edit[2] + frame[edit[1] :] if edit else frame


def _told(data: bytes, at: int, wait_ms: int, *, is_exact: bool) -> Edit:
    told_ms = wait_ms if is_exact else max(wait_ms, _INT32.unpack_from(data, at)[0])
    return at, at + 4, _INT32.pack(told_ms)
