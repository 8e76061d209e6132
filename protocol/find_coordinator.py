"""Finds the coordinators in FindCoordinator responses (key 10), and replaces their addresses with the advertised ones.

    v0-3   [v1+ int32 throttle_time_ms] int16 error_code, [v1+ string error_message],
           int32 node_id, string host, int32 port
    v4+    int32 throttle_time_ms,
           array of { string key, int32 node_id, string host, int32 port, int16 error_code, string error_message }

From v3 on strings and arrays are compact, and each structure ends with tags.

Source: FindCoordinatorRequest.json, FindCoordinatorResponse.json (0 to 6) in Apache Kafka.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.broker_list import (
    MAX_FRONT_BYTES,
    AdvertisedAddresses,
    Broker,
    frame_so_far,
    read_broker,
    skip_nothing,
)
from kafka_quota_proxy.protocol.errors import HeadTooLong, TrailingBytes
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_compact_array_count,
    skip,
    skip_compact_string,
    skip_string,
    skip_tags,
    write_string,
)

_COORDINATOR_NOT_AVAILABLE: Final = 15
NO_NODE: Final = -1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_FIRST_BATCH: Final = 4


def find_coordinators(data: bytes, start: int, api_version: int) -> tuple[Broker, ...] | None:
    """Return the coordinators in a FindCoordinator response, or None until the whole response has arrived.

    The response begins at the offset ``start``. A coordinator that is not available has node_id -1.
    """
    if len(data) - start < 4:
        return None
    size_bytes = _INT32.unpack_from(data, start)[0]
    if size_bytes > MAX_FRONT_BYTES:
        raise HeadTooLong(f"a FindCoordinator response has {size_bytes} bytes")
    if len(data) - start < 4 + size_bytes:
        return None
    frame = frame_so_far(data, start)
    offset = skip(frame, start, 8)
    if api_version >= _FIRST_BATCH:
        coordinators, offset = _read_batch(frame, skip(frame, skip_tags(frame, offset), 4))
    else:
        is_flexible = api_version >= 3
        offset = _error_code_offset(frame, start, api_version) + 2
        if api_version >= 1:
            offset = skip_compact_string(frame, offset) if is_flexible else skip_string(frame, offset)
        one = read_broker(frame, offset, is_compact=is_flexible, skip_rest=skip_tags if is_flexible else skip_nothing)
        coordinators, offset = (one,), one.end
    if offset != len(frame):
        raise TrailingBytes(f"a FindCoordinator response v{api_version} ends {len(frame) - offset} bytes too early")
    return coordinators


def replace_coordinators(
    data: bytes, start: int, api_version: int, coordinators: tuple[Broker, ...], addresses: AdvertisedAddresses
) -> bytes:
    """Return the whole frame, with each coordinator's address replaced by its advertised one.

    A coordinator without an advertised address gets the error COORDINATOR_NOT_AVAILABLE, after which clients ask again.
    """
    is_compact = api_version >= 3
    end = start + 4 + int(_INT32.unpack_from(data, start)[0])
    parts = []
    at = start + 4
    for coordinator in coordinators:
        known = addresses.get(coordinator.node_id)
        host, port = known or (b"", -1)
        node_id = coordinator.node_id if known else NO_NODE
        front = data[at : coordinator.begin]
        rest = data[coordinator.rest : coordinator.end]
        if known is None and coordinator.node_id != NO_NODE:
            if api_version >= _FIRST_BATCH:
                rest = _INT16.pack(_COORDINATOR_NOT_AVAILABLE) + rest[2:]
            else:
                error = _error_code_offset(data, start, api_version) - at
                front = front[:error] + _INT16.pack(_COORDINATOR_NOT_AVAILABLE) + front[error + 2 :]
        parts += [front, _INT32.pack(node_id), write_string(host, is_compact=is_compact), _INT32.pack(port), rest]
        at = coordinator.end
    body = b"".join((*parts, data[at:end]))
    return _INT32.pack(len(body)) + body


def _read_batch(frame: Buffer, offset: int) -> tuple[tuple[Broker, ...], int]:
    count, offset = read_compact_array_count(frame, offset)
    coordinators = []
    for _ in range(count):
        coordinator = read_broker(
            frame, skip_compact_string(frame, offset), is_compact=True, skip_rest=_skip_error_and_tags
        )
        coordinators.append(coordinator)
        offset = coordinator.end
    return tuple(coordinators), skip_tags(frame, offset)


def _error_code_offset(data: Buffer, start: int, api_version: int) -> int:
    """Return the offset of error_code in the FindCoordinator response (v0 to v3) that begins at ``start``."""
    offset = start + 8
    if api_version >= 3:
        offset = skip_tags(data, offset)
    return skip(data, offset, 4) if api_version >= 1 else offset


def _skip_error_and_tags(data: Buffer, offset: int) -> int:
    return skip_tags(data, skip_compact_string(data, skip(data, offset, 2)))
