"""Finds ``throttle_time_ms`` in responses, and raises it to the time for which the proxy throttles the client.

In most APIs ``throttle_time_ms`` is the first field of the response's body, from version ``ApiKey.first_throttle_time``
on. The SASL APIs and the APIs between brokers and controllers have no such field.

Source: the ``*Response.json`` files of Apache Kafka 4.x, and of 3.9 for versions that 4.0 removed.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol import api_versions, produce
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, NEVER, ApiKey, response_header_version
from kafka_quota_proxy.protocol.codec import read_fields
from kafka_quota_proxy.protocol.errors import FrameTooSmall, Truncated
from kafka_quota_proxy.protocol.primitives import Buffer, skip, skip_tags

_INT32: Final = Struct(">i")
_PRODUCE: Final = int(ApiKey.PRODUCE)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)

# Responses in which throttle_time_ms is the last field, or follows fields of a fixed size: error_code, and for two of
# them expiry_timestamp_ms.
_TOKEN_APIS: Final = frozenset({int(ApiKey.CREATE_DELEGATION_TOKEN), int(ApiKey.DESCRIBE_DELEGATION_TOKEN)})
_BYTES_BEFORE: Final = {
    int(ApiKey.OFFSET_DELETE): 2,
    int(ApiKey.RENEW_DELEGATION_TOKEN): 2 + 8,
    int(ApiKey.EXPIRE_DELEGATION_TOKEN): 2 + 8,
}

_FIRST_IN_FRONT: Final = {int(key): key.first_throttle_time for key in ApiKey if key.first_throttle_time != NEVER}
_FIRST_CLIENT_THROTTLE: Final = {int(key): key.first_client_throttle for key in ApiKey}


def client_throttles_itself(api_key: int, api_version: int) -> bool:
    """Whether a client itself waits for a response's ``throttle_time_ms`` before its next request (KIP-219)."""
    return api_version >= _FIRST_CLIENT_THROTTLE.get(api_key, NEVER)


def has_throttle_time(api_key: int, api_version: int) -> bool:
    """Whether responses of this version have the field, and the proxy can find it."""
    if api_key in (_PRODUCE, _API_VERSIONS):
        return api_version >= 1
    if api_key in _TOKEN_APIS or api_key in _BYTES_BEFORE:
        return api_version <= HIGHEST_VERSION[api_key]
    return _has_field_in_front(api_key, api_version)


def is_in_front(api_key: int) -> bool:
    """Whether ``throttle_time_ms`` is the first field of the API's responses, in versions that have the field."""
    return api_key in _FIRST_IN_FRONT


def throttle_time_offset(frame: Buffer, api_key: int, api_version: int) -> int | None:
    """Return the offset of ``throttle_time_ms`` in the response ``frame``, which must be a whole frame.

    Returns None if the response has no such field, or if its version is newer than the ``HIGHEST_VERSION`` of its API.
    Produce, Fetch and ApiVersions are exceptions: a newer version is read like the newest known one.
    """
    if api_key == _PRODUCE:
        return produce.throttle_time_offset(frame, api_version)
    if api_key == _API_VERSIONS:
        return api_versions.throttle_time_offset(frame, api_version)
    if not has_throttle_time(api_key, api_version):
        return None
    offset = skip_tags(frame, 8) if response_header_version(api_key, api_version) else 8
    if api_key in _TOKEN_APIS:
        (*_, offset, _), _ = read_fields(frame, offset, api_key, api_version, "response", most_elements=len(frame))
    else:
        offset += _BYTES_BEFORE.get(api_key, 0)
    skip(frame, offset, 4)
    return offset


def front_throttle_time_offset(data: Buffer, offset: int, api_key: int, api_version: int) -> int | None:
    """Return the offset of ``throttle_time_ms`` in the response that begins at ``offset``, which may be incomplete.

    Returns -1 if ``throttle_time_ms`` is not the first field of the response's body, or if the version is unknown.
    Returns None if more bytes are needed.
    """
    if not _has_field_in_front(api_key, api_version):
        return -1
    body = offset + 8
    if response_header_version(api_key, api_version):
        if body < len(data) and data[body] == 0:  # an empty tag section is one zero byte
            body += 1
        else:
            try:
                body = skip_tags(data, body)
            except Truncated:
                body = len(data)
    if offset + 4 <= len(data) and body > offset + _INT32.unpack_from(data, offset)[0]:
        raise FrameTooSmall("a response ends before its throttle_time_ms")
    return body if body + 4 <= len(data) else None


def write_throttle_time(frame: bytes, api_key: int, api_version: int, throttle_time_ms: int) -> bytes:
    """Return the response ``frame`` with its throttle time raised to ``throttle_time_ms``.

    Returns ``frame`` itself if the response has no such field, or if its throttle time is already long enough.
    """
    offset = throttle_time_offset(frame, api_key, api_version)
    if offset is None or _INT32.unpack_from(frame, offset)[0] >= throttle_time_ms:
        return frame
    out = bytearray(frame)
    _INT32.pack_into(out, offset, min(throttle_time_ms, 0x7FFF_FFFF))
    return bytes(out)


def _has_field_in_front(api_key: int, api_version: int) -> bool:
    if api_version < _FIRST_IN_FRONT.get(api_key, NEVER):
        return False
    return api_version <= HIGHEST_VERSION[api_key] or api_key == ApiKey.FETCH
