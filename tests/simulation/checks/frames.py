"""The few fields of Kafka's frames that the checks look at. Positions are counted from the front of the whole frame."""

from struct import Struct
from typing import Final

from tests.simulation.wire.common import is_flexible

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
OFFSET_DELETE: Final = 47
DESCRIBE_QUOTAS: Final = 48
ALTER_QUOTAS: Final = 49
DESCRIBE_CLUSTER: Final = 60
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_FETCH_WITH_MAX_BYTES: Final = 3
_FETCH_WITHOUT_REPLICA_ID: Final = 15


def body_at(frame: bytes, *, has_tags: bool) -> int:
    """Return where the body of a request begins."""
    length: int = _INT16(frame, 12)[0]
    at = 14 + max(0, length)
    return skip_tags(frame, at) if has_tags else at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint, and where the next field begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def skip_tags(data: bytes, at: int) -> int:
    """Return the end of a section of tagged fields."""
    count, at = varint(data, at)
    for _ in range(count):
        _, at = varint(data, at)
        size, at = varint(data, at)
        at += size
    return at


def fetch_limits_at(frame: bytes) -> int:
    """Return where max_wait_ms, min_bytes and max_bytes of a Fetch stand, four bytes each."""
    version: int = _INT16(frame, 6)[0]
    at = body_at(frame, has_tags=is_flexible(FETCH, version))
    return at if version >= _FETCH_WITHOUT_REPLICA_ID else at + 4


def asked_bytes(frame: bytes) -> int | None:
    """Return how many bytes a Fetch asks for, or None if its version has no such field."""
    version: int = _INT16(frame, 6)[0]
    if version < _FETCH_WITH_MAX_BYTES:
        return None
    asked: int = _INT32(frame, fetch_limits_at(frame) + 8)[0]
    return asked


def max_wait_ms(frame: bytes) -> int:
    """Return how long the broker may wait for data before it answers a Fetch."""
    wait_ms: int = _INT32(frame, fetch_limits_at(frame))[0]
    return wait_ms


# The first version of each API whose response begins with throttle_time_ms. KIP-124 and the message files of Kafka.
_THROTTLE_IN_FRONT: Final = {
    1: 1, 2: 2, 3: 3, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 15: 1, 16: 1, 19: 2, 20: 1, 21: 0, 22: 0, 23: 2,
    24: 0, 25: 0, 26: 0, 28: 0, 29: 0, 30: 0, 31: 0, 32: 0, 33: 0, 34: 0, 35: 0, 37: 0, 42: 0, 43: 0, 44: 0, 45: 0,
    46: 0, 48: 0, 49: 0, 50: 0, 51: 0, 57: 0, 60: 0, 61: 0, 65: 0, 66: 0, 68: 0, 69: 0, 71: 0, 72: 0, 74: 0, 75: 0,
    76: 0, 77: 0, 78: 0, 79: 0,
}  # fmt: skip


_PRODUCE_WITH_TOPIC_IDS: Final = 13
# Of a partition in a Produce response: index, error code, base offset, append time and log start offset.
_PRODUCED_BYTES: Final = 4 + 2 + 8 + 8 + 8


def throttle_at(frame: bytes, api_key: int, version: int) -> int | None:
    """Return where throttle_time_ms stands in a response, or None if it has none or it is not easily found."""
    first = _THROTTLE_IN_FRONT.get(api_key)
    if first is not None:
        if version < first:
            return None
        return skip_tags(frame, 8) if is_flexible(api_key, version) else 8
    if api_key == PRODUCE and version >= 1:
        return _produce_throttle_at(frame, version) if is_flexible(PRODUCE, version) else len(frame) - 4
    if api_key == API_VERSIONS and version >= 1:
        at = 10
        if version >= 3:
            count, at = varint(frame, at)
            for _ in range(count - 1):
                at = skip_tags(frame, at + 6)
            return at
        return at + 4 + 6 * int(_INT32(frame, at)[0])
    if api_key == OFFSET_DELETE:
        return 10
    return None


def _produce_throttle_at(frame: bytes, version: int) -> int:
    """Find the field behind the topics of a flexible response. Tags with the addresses of leaders may follow it."""
    topics, at = varint(frame, skip_tags(frame, 8))
    for _ in range(topics - 1):
        if version >= _PRODUCE_WITH_TOPIC_IDS:
            at += 16
        else:
            length, at = varint(frame, at)
            at += length - 1
        partitions, at = varint(frame, at)
        for _ in range(partitions - 1):
            errors, at = varint(frame, at + _PRODUCED_BYTES)
            for _ in range(errors - 1):
                length, at = varint(frame, at + 4)
                at = skip_tags(frame, at + max(0, length - 1))
            length, at = varint(frame, at)
            at = skip_tags(frame, at + max(0, length - 1))
        at = skip_tags(frame, at)
    return at


def throttle_ms(frame: bytes, api_key: int, version: int) -> int | None:
    """Return throttle_time_ms of a response, or None as ``throttle_at``."""
    at = throttle_at(frame, api_key, version)
    if at is None:
        return None
    wait_ms: int = _INT32(frame, at)[0]
    return wait_ms
