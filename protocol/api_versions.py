"""ApiVersions (key 18): tell clients only of versions that we can read, and of those that we answer ourselves.

    response   int16 error_code, array of { int16 api_key, int16 min_version, int16 max_version, [v3+ tags] },
               [v1+ int32 throttle_time_ms] [v3+ tags: features]

From v3 on the array is compact. The response's header never has tags. A broker that does not know the request's version
answers in v0 with error 35 (UNSUPPORTED_VERSION).

Source: ApiVersionsResponse.json (0 to 4), ``ApiVersionsRequest.getErrorResponse`` in Apache Kafka; KIP-511.
"""

from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import TrailingBytes
from kafka_quota_proxy.protocol.field_reader import framed
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_int16,
    skip,
    skip_tags,
    write_uvarint,
)

UNSUPPORTED_VERSION: Final = 35

# The APIs that are charged by what lies in them, tell who is, or are answered here. All others pass through, whatever
# their version.
CEILINGS: Final[Mapping[int, int]] = MappingProxyType(
    {
        key: HIGHEST_VERSION[key]
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
)

_SIZE_END: Final = 4
_HEADER_END: Final = 8  # size and correlation_id
_ARRAY: Final = 10  # error_code lies between
_NO_TAGS: Final = b"\x00"
_COUNT: Final = Struct(">i")
_FIRST_THROTTLE: Final = 1
_FIRST_FLEXIBLE: Final = 3
_ENTRY: Final = Struct(">hhh")
_MAX_VERSION: Final = Struct(">h")
_MAX_VERSION_IN_ENTRY: Final = 4


class VersionRange(NamedTuple):
    """The lowest and the highest of an API that is answered."""

    lowest: int
    highest: int


class _Found(NamedTuple):
    """Where things are in a response."""

    entries: list[int]
    first_entry: int
    last_entry_end: int
    throttle_time: int | None


def limit_versions(frame: bytes, api_version: int, ceilings: Mapping[int, int] = CEILINGS) -> bytes:
    """Clip the highest versions that a broker announces.

    Args:
        frame: A whole response with the four bytes of its size.
        api_version: Of the request; one newer than 4 is read like 4.
        ceilings: The highest version to announce, by api key. Where the broker's *lowest* version is above it, nothing
            is left that both could speak, and the entry stays as it is.

    Returns:
        A frame of the same length; unknown tags and all else as it was.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    out: bytearray | None = None
    for entry in _walk(frame, api_version).entries:
        api_key, min_version, max_version = _ENTRY.unpack_from(frame, entry)
        ceiling = ceilings.get(api_key, max_version)
        if min_version <= ceiling < max_version:
            out = out or bytearray(frame)
            _MAX_VERSION.pack_into(out, entry + _MAX_VERSION_IN_ENTRY, ceiling)
    return bytes(out) if out else frame


def highest_version(frame: bytes, api_version: int, api_key: int) -> int | None:
    """Return the highest version of an API that a broker announces in a whole response; None where it has it not.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    entries = _walk(frame, api_version).entries
    return next((found[2] for entry in entries if (found := _ENTRY.unpack_from(frame, entry))[0] == api_key), None)


def throttle_time_offset(frame: Buffer, api_version: int) -> int | None:
    """Find ``throttle_time_ms`` in a whole response; None where it has none.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    return _walk(frame, api_version).throttle_time


def advertise_versions(frame: bytes, api_version: int, own: Mapping[int, VersionRange]) -> bytes:
    """Tell of the versions that are answered here, whatever the broker says of these APIs, also where it has them not.

    An error stays as it is: it names no versions but those of ApiVersions.

    Args:
        frame: A whole response with the four bytes of its size.
        api_version: Of the request; one newer than 4 is read like 4.
        own: The lowest and the highest version, by api key.

    Returns:
        A frame, which may be longer; unknown tags and all else as it was.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    if read_int16(frame, _HEADER_END)[0] != 0:
        return frame
    found = _walk(frame, api_version)
    out = bytearray(frame)
    missing = dict(own)
    for entry in found.entries:
        api_key = _ENTRY.unpack_from(frame, entry)[0]
        if api_key in own:
            _ENTRY.pack_into(out, entry, api_key, *own[api_key])
            missing.pop(api_key, None)
    told = bytes(out)
    if not missing:
        return told
    is_flexible = api_version >= _FIRST_FLEXIBLE
    count = len(found.entries) + len(missing)
    end_of_entry = _NO_TAGS if is_flexible else b""
    return framed(
        [
            told[_SIZE_END:_ARRAY],
            write_uvarint(count + 1) if is_flexible else _COUNT.pack(count),
            told[found.first_entry : found.last_entry_end],
            *(_ENTRY.pack(api_key, *versions) + end_of_entry for api_key, versions in missing.items()),
            told[found.last_entry_end :],
        ]
    )


def _walk(frame: Buffer, api_version: int) -> _Found:
    """Find the entries and throttle_time_ms."""
    error_code, offset = read_int16(frame, _HEADER_END)
    if error_code == UNSUPPORTED_VERSION:
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
    if api_version >= _FIRST_THROTTLE:
        throttle_time = offset
        offset = skip(frame, offset, 4)
    if is_flexible:
        offset = skip_tags(frame, offset)
    if offset != len(frame):
        raise TrailingBytes(f"an ApiVersions response v{api_version} of {len(frame)} bytes ends at byte {offset}")
    return _Found(entries, first_entry, last_entry_end, throttle_time)
