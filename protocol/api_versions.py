"""Changes ApiVersions responses (key 18), in which a broker lists its APIs and the versions that it supports.

For APIs whose messages the proxy has to read, the highest version is lowered to the newest one that it can read. APIs
that the proxy answers itself are added.

    response   int16 error_code, array of { int16 api_key, int16 min_version, int16 max_version, [v3+ tags] },
               [v1+ int32 throttle_time_ms] [v3+ tags: features]

From v3 on the array is compact. The header of the response never has tags. A broker that does not know the version of
the request responds in v0 with error 35 (UNSUPPORTED_VERSION).

Source: ApiVersionsResponse.json (0 to 4), ``ApiVersionsRequest.getErrorResponse`` in Apache Kafka; KIP-511.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.codec import framed
from kafka_quota_proxy.protocol.errors import TrailingBytes
from kafka_quota_proxy.protocol.primitives import (
    NO_TAGS,
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_int16,
    skip,
    skip_tags,
    written_count,
)

# The highest versions that the proxy can read, for the APIs that it charges by their fields, that authenticate, or that
# it answers itself. Requests of all other APIs are forwarded in any version.
CEILINGS: Final[Mapping[int, int]] = {
    key: key.highest_version
    for key in (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.SHARE_FETCH,
    )
}

_UNSUPPORTED_VERSION: Final = 35
_ERROR_CODE: Final = 8  # after size and correlation_id
_FIRST_FLEXIBLE: Final = 3
_ENTRY: Final = Struct(">hhh")


class VersionRange(NamedTuple):
    """The lowest and the highest version of an API that a response advertises."""

    lowest: int
    highest: int


class _Layout(NamedTuple):
    """The offsets of the parts of an ApiVersions response: its entries, one for each API, and ``throttle_time_ms``."""

    entries: list[int]
    first_entry: int
    last_entry_end: int
    throttle_time: int | None


def limit_versions(frame: bytes, api_version: int, ceilings: Mapping[int, int] = CEILINGS) -> bytes:
    """Return an ApiVersions response in which the highest version of each API is at most the API's ceiling.

    ``ceilings`` maps an api_key to the highest version to allow. An API without a ceiling stays as it is. So does an
    API whose lowest version is above its ceiling, because no version would be left.
    """
    out: bytearray | None = None
    for entry in _layout(frame, api_version).entries:
        api_key, min_version, max_version = _ENTRY.unpack_from(frame, entry)
        ceiling = ceilings.get(api_key, max_version)
        if min_version <= ceiling < max_version:
            out = out or bytearray(frame)
            _ENTRY.pack_into(out, entry, api_key, min_version, ceiling)
    return bytes(out) if out else frame


def highest_version(frame: bytes, api_version: int, api_key: int) -> int | None:
    """Return the highest version that an ApiVersions response lists for an API, or None if the broker lacks the API."""
    for entry in _layout(frame, api_version).entries:
        key, _, max_version = _ENTRY.unpack_from(frame, entry)
        if key == api_key:
            return int(max_version)
    return None


def throttle_time_offset(frame: Buffer, api_version: int) -> int | None:
    """Return the offset of ``throttle_time_ms`` in a whole response, or None if the response lacks the field."""
    return _layout(frame, api_version).throttle_time


def advertise_versions(frame: bytes, api_version: int, own: Mapping[int, VersionRange]) -> bytes:
    """Return an ApiVersions response to which the APIs that the proxy answers itself have been added.

    ``own`` maps the api_key of each of these APIs to the proxy's versions. If the broker lists the same API, the
    proxy's versions replace the broker's. A response with an error stays as it is, because it lists only ApiVersions.
    """
    if read_int16(frame, _ERROR_CODE)[0] != 0:
        return frame
    layout = _layout(frame, api_version)
    out = bytearray(frame)
    missing = dict(own)
    for entry in layout.entries:
        api_key = _ENTRY.unpack_from(frame, entry)[0]
        if api_key in own:
            _ENTRY.pack_into(out, entry, api_key, *own[api_key])
            missing.pop(api_key, None)
    changed = bytes(out)
    if not missing:
        return changed
    is_flexible = api_version >= _FIRST_FLEXIBLE
    end_of_entry = NO_TAGS if is_flexible else b""
    return framed(
        changed[4 : _ERROR_CODE + 2],
        written_count(len(layout.entries) + len(missing), is_flexible=is_flexible),
        changed[layout.first_entry : layout.last_entry_end],
        *(_ENTRY.pack(api_key, *versions) + end_of_entry for api_key, versions in missing.items()),
        changed[layout.last_entry_end :],
    )


def _layout(frame: Buffer, api_version: int) -> _Layout:
    error_code, offset = read_int16(frame, _ERROR_CODE)
    if error_code == _UNSUPPORTED_VERSION:
        api_version = 0
    is_flexible = api_version >= _FIRST_FLEXIBLE
    entries = []
    count, offset = read_compact_array_count(frame, offset) if is_flexible else read_array_count(frame, offset)
    first_entry = offset
    for _ in range(count):
        entries.append(offset)
        offset = skip(frame, offset, _ENTRY.size)
        if is_flexible:
            offset = skip_tags(frame, offset)
    last_entry_end = offset
    throttle_time = None
    if api_version >= 1:
        throttle_time = offset
        offset = skip(frame, offset, 4)
    if is_flexible:
        offset = skip_tags(frame, offset)
    if offset != len(frame):
        raise TrailingBytes(f"an ApiVersions response v{api_version} of {len(frame)} bytes ends at byte {offset}")
    return _Layout(entries, first_entry, last_entry_end, throttle_time)
