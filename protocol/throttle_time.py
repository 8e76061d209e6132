"""Where ``throttle_time_ms`` lies in each response, and writing it in place.

It is the first field of the body, from some version on; the exceptions have functions of their own below. An API that
is not in the table has no such field: the SASL APIs, and those by which brokers and controllers speak to each other.

Source: the ``*Response.json`` files of Apache Kafka 4.x; 3.9 for versions that 4.0 removed.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol import api_versions, produce
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible, response_header_version
from kafka_quota_proxy.protocol.header import first_int32_offset
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_array_count,
    read_compact_array_count,
    skip,
    skip_bytes,
    skip_compact_bytes,
    skip_compact_string,
    skip_string,
    skip_tags,
)

_INT32: Final = Struct(">i")

# The first version that has the field, in front of the body.
_FRONT: Final[dict[int, int]] = {
    ApiKey.FETCH: 1,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 3,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.SYNC_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    **dict.fromkeys(
        (
            ApiKey.DELETE_RECORDS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_GROUPS,
            ApiKey.ELECT_LEADERS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.ALTER_PARTITION,
            ApiKey.UPDATE_FEATURES,
            ApiKey.FETCH_SNAPSHOT,
            # Up to AlterShareGroupOffsets and its neighbours, but for the state of share groups (83 to 87).
            *(key for key in ApiKey if 60 <= key <= 82 or key >= 88),
        ),
        0,
    ),
}

# The first version of which a client waits by itself as long as it is told (KIP-219). Of other APIs it never does.
_WAITS_AS_TOLD: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.METADATA: 6,
    **dict.fromkeys((ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH), 4),
    **dict.fromkeys((ApiKey.LIST_OFFSETS, ApiKey.JOIN_GROUP, ApiKey.CREATE_TOPICS), 3),
    **dict.fromkeys(
        (
            ApiKey.FIND_COORDINATOR,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.API_VERSIONS,
            ApiKey.DELETE_TOPICS,
            ApiKey.DESCRIBE_CONFIGS,
        ),
        2,
    ),
    **dict.fromkeys(
        (
            ApiKey.DELETE_RECORDS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            ApiKey.DELETE_GROUPS,
        ),
        1,
    ),
    **dict.fromkeys(
        (
            ApiKey.ELECT_LEADERS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.OFFSET_DELETE,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ),
        0,
    ),
}


def client_throttles_itself(api_key: int, api_version: int) -> bool:
    """Whether a client that reads such a response waits by itself for its ``throttle_time_ms``.

    Source: ``shouldClientThrottle`` of the classes in org.apache.kafka.common.requests.
    """
    first_version = _WAITS_AS_TOLD.get(api_key)
    return first_version is not None and api_version >= first_version


def throttle_time_offset(frame: Buffer, api_key: int, api_version: int) -> int | None:
    """Find ``throttle_time_ms`` in a response.

    Args:
        frame: The whole frame with the four bytes of its size.
        api_key: Of the request.
        api_version: Of the request.

    Returns:
        Where in ``frame`` the int32 is. None if the response has no such field, or if the version is newer than those
        in ``protocol.api``, so that we cannot know (Produce, Fetch and ApiVersions excepted).

    Raises:
        ProtocolError: The frame is not such a response.
    """
    if special := _ELSEWHERE.get(api_key):
        return special(frame, api_version)
    first_version = _FRONT.get(api_key)
    if first_version is None or api_version < first_version:
        return None
    if api_version > HIGHEST_VERSION[api_key] and api_key != ApiKey.FETCH:
        return None
    offset = _body(frame, api_key, api_version)
    skip(frame, offset, 4)
    return offset


def front_throttle_time_offset(data: Buffer, offset: int, api_key: int, api_version: int) -> int | None:
    """Find ``throttle_time_ms`` where it is the first field, in a response of which perhaps only the front has come.

    Args:
        data: Bytes of the connection, as many as have come.
        offset: Where in ``data`` the frame's size is.
        api_key: Of the request; one for which ``is_in_front``.
        api_version: Of the request.

    Returns:
        Where in ``data`` the int32 is; -1 if there is none, or if that cannot be known; None if more bytes are needed.

    Raises:
        ProtocolError: The frame ends before the field, or its header's tags cannot be right.
    """
    if api_version < _FRONT[api_key] or (api_version > HIGHEST_VERSION[api_key] and api_key != ApiKey.FETCH):
        return -1
    return first_int32_offset(data, offset, has_tags=bool(response_header_version(api_key, api_version)))


def is_in_front(api_key: int) -> bool:
    """Tell whether ``throttle_time_ms`` is the first field of such responses, in versions that have it."""
    return api_key in _FRONT


def write_throttle_time(frame: bytes, api_key: int, api_version: int, throttle_time_ms: int) -> bytes:
    """Raise ``throttle_time_ms`` to at least the given number.

    Args:
        frame: The whole frame with the four bytes of its size.
        api_key: Of the request.
        api_version: Of the request.
        throttle_time_ms: Whole milliseconds; cut to what an int32 holds.

    Returns:
        A frame of the same length. The same one if the field is not there, or is not below the number: a broker's own
        throttle outlasts ours then.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    offset = throttle_time_offset(frame, api_key, api_version)
    if offset is None or _INT32.unpack_from(frame, offset)[0] >= throttle_time_ms:
        return frame
    out = bytearray(frame)
    _INT32.pack_into(out, offset, min(throttle_time_ms, 0x7FFF_FFFF))
    return bytes(out)


def _body(frame: Buffer, api_key: int, api_version: int) -> int:
    return skip_tags(frame, 8) if response_header_version(api_key, api_version) else 8


def _offset_delete(frame: Buffer, api_version: int) -> int | None:
    """Behind int16 error_code."""
    if api_version > HIGHEST_VERSION[ApiKey.OFFSET_DELETE]:
        return None
    offset = skip(frame, _body(frame, ApiKey.OFFSET_DELETE, api_version), 2)
    skip(frame, offset, 4)
    return offset


def _create_delegation_token(frame: Buffer, api_version: int) -> int | None:
    """Behind int16 error_code, the owner, [v3+ the requester], three int64 times, string token_id, bytes hmac."""
    key = ApiKey.CREATE_DELEGATION_TOKEN
    if api_version > HIGHEST_VERSION[key]:
        return None
    offset = skip(frame, _body(frame, key, api_version), 2)
    offset = _skip_token(frame, offset, is_flexible(key, api_version), principals=2 if api_version >= 3 else 1)
    skip(frame, offset, 4)
    return offset


def _renew_delegation_token(frame: Buffer, api_version: int) -> int | None:
    """Behind int16 error_code, int64 expiry_timestamp_ms; ExpireDelegationToken is the same."""
    key = ApiKey.RENEW_DELEGATION_TOKEN
    if api_version > HIGHEST_VERSION[key]:
        return None
    offset = skip(frame, _body(frame, key, api_version), 10)
    skip(frame, offset, 4)
    return offset


def _describe_delegation_token(frame: Buffer, api_version: int) -> int | None:
    """Behind int16 error_code and an array of tokens, each with an array of its renewers."""
    key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    if api_version > HIGHEST_VERSION[key]:
        return None
    flexible = is_flexible(key, api_version)
    read_count = read_compact_array_count if flexible else read_array_count
    offset = skip(frame, _body(frame, key, api_version), 2)
    tokens, offset = read_count(frame, offset)
    for _ in range(tokens):
        offset = _skip_token(frame, offset, flexible, principals=2 if api_version >= 3 else 1)
        renewers, offset = read_count(frame, offset)
        for _ in range(renewers):
            offset = _skip_principal(frame, offset, flexible)
            offset = skip_tags(frame, offset) if flexible else offset
        offset = skip_tags(frame, offset) if flexible else offset
    skip(frame, offset, 4)
    return offset


def _skip_token(frame: Buffer, offset: int, flexible: bool, *, principals: int) -> int:
    for _ in range(principals):
        offset = _skip_principal(frame, offset, flexible)
    offset = skip(frame, offset, 3 * 8)
    if flexible:
        return skip_compact_bytes(frame, skip_compact_string(frame, offset))
    return skip_bytes(frame, skip_string(frame, offset))


def _skip_principal(frame: Buffer, offset: int, flexible: bool) -> int:
    """Step over two strings, type and name."""
    step = skip_compact_string if flexible else skip_string
    return step(frame, step(frame, offset))


_ELSEWHERE: Final[dict[int, Callable[[Buffer, int], int | None]]] = {
    ApiKey.PRODUCE: produce.throttle_time_offset,
    ApiKey.API_VERSIONS: api_versions.throttle_time_offset,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_delegation_token,
}
