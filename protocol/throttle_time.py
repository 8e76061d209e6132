"""Finds ``throttle_time_ms`` in responses and writes it in place.

From some version on it is the first field of the body; the exceptions have their own functions below. An API that is
not in the table has no such field: the SASL APIs, and those between brokers and controllers.

Source: the ``*Response.json`` files of Apache Kafka 4.x; 3.9 for versions that 4.0 removed.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol import api_versions, produce
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible, response_header_version
from kafka_quota_proxy.protocol.field_reader import FieldReader
from kafka_quota_proxy.protocol.header import first_int32_offset
from kafka_quota_proxy.protocol.primitives import Buffer, skip, skip_tags

_INT32: Final = Struct(">i")
_TOKEN_FIRST_REQUESTER: Final = 3

# The first version with the field, as the first of the body.
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
            # All later APIs but those for the state of share groups (83 to 87).
            *(key for key in ApiKey if 60 <= key <= 82 or key >= 88),
        ),
        0,
    ),
}

# The first version in which the client itself waits for the throttle time (KIP-219). In other APIs it never waits.
_FIRST_CLIENT_THROTTLE: Final[dict[int, int]] = {
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
    """Whether a client that reads this response waits for its ``throttle_time_ms`` before it sends again.

    Source: ``shouldClientThrottle`` of the classes in org.apache.kafka.common.requests.
    """
    first_version = _FIRST_CLIENT_THROTTLE.get(api_key)
    return first_version is not None and api_version >= first_version


def throttle_time_offset(frame: Buffer, api_key: int, api_version: int) -> int | None:
    """Find ``throttle_time_ms`` in a response.

    Args:
        frame: The whole frame with the four bytes of its size.
        api_key: Of the request.
        api_version: Of the request.

    Returns:
        The offset of the int32. None if the response has no such field, or if the version is newer than those in
        ``protocol.api``, so that its layout is unknown (Produce, Fetch and ApiVersions excepted).

    Raises:
        ProtocolError: The frame is no such response.
    """
    if find := _ELSEWHERE.get(api_key):
        return find(frame, api_version)
    first_version = _FRONT.get(api_key)
    if first_version is None or api_version < first_version:
        return None
    if api_version > HIGHEST_VERSION[api_key] and api_key != ApiKey.FETCH:
        return None
    offset = _body(frame, api_key, api_version)
    skip(frame, offset, 4)
    return offset


def front_throttle_time_offset(data: Buffer, offset: int, api_key: int, api_version: int) -> int | None:
    """Find ``throttle_time_ms`` as the first field of a response that may be incomplete.

    Args:
        data: The bytes of the connection so far.
        offset: The offset of the frame's size.
        api_key: Of the request, with ``is_in_front``.
        api_version: Of the request.

    Returns:
        The offset of the int32; -1 if there is none or its place is unknown; None if more bytes are needed.

    Raises:
        ProtocolError: The frame ends before the field, or its header's tags are malformed.
    """
    if api_version < _FRONT[api_key] or (api_version > HIGHEST_VERSION[api_key] and api_key != ApiKey.FETCH):
        return -1
    return first_int32_offset(data, offset, has_tags=bool(response_header_version(api_key, api_version)))


def is_in_front(api_key: int) -> bool:
    """Whether ``throttle_time_ms`` is the first field of these responses, in versions that have it."""
    return api_key in _FRONT


def write_throttle_time(frame: bytes, api_key: int, api_version: int, throttle_time_ms: int) -> bytes:
    """Raise ``throttle_time_ms`` to at least the given time.

    Args:
        frame: The whole frame with the four bytes of its size.
        api_key: Of the request.
        api_version: Of the request.
        throttle_time_ms: Milliseconds, cut to the range of an int32.

    Returns:
        A frame of the same length; the same object if the response has no such field, or if the broker's own throttle
        time is at least as long.

    Raises:
        ProtocolError: The frame is no such response.
    """
    offset = throttle_time_offset(frame, api_key, api_version)
    if offset is None or _INT32.unpack_from(frame, offset)[0] >= throttle_time_ms:
        return frame
    out = bytearray(frame)
    _INT32.pack_into(out, offset, min(throttle_time_ms, 0x7FFF_FFFF))
    return bytes(out)


def _body(frame: Buffer, api_key: int, api_version: int) -> int:
    return skip_tags(frame, 8) if response_header_version(api_key, api_version) else 8


def _reader(frame: Buffer, api_key: int, api_version: int) -> FieldReader | None:
    """Return a reader of the body of a known version."""
    if api_version > HIGHEST_VERSION[api_key]:
        return None
    flexible = is_flexible(api_key, api_version)
    return FieldReader(frame, _body(frame, api_key, api_version), is_flexible=flexible, most_elements=len(frame))


def _next_int32(reader: FieldReader) -> int:
    """Return the offset of the next field, an int32."""
    offset = reader.at
    reader.skip(4)
    return offset


def _offset_delete(frame: Buffer, api_version: int) -> int | None:
    """The field follows int16 error_code."""
    if reader := _reader(frame, ApiKey.OFFSET_DELETE, api_version):
        reader.skip(2)
        return _next_int32(reader)
    return None


def _create_delegation_token(frame: Buffer, api_version: int) -> int | None:
    """The field follows int16 error_code, the owner, [v3+ the requester], three int64, string token_id, bytes hmac."""
    if reader := _reader(frame, ApiKey.CREATE_DELEGATION_TOKEN, api_version):
        reader.skip(2)
        _skip_token(reader, api_version)
        return _next_int32(reader)
    return None


def _renew_delegation_token(frame: Buffer, api_version: int) -> int | None:
    """The field follows int16 error_code, int64 expiry_timestamp_ms; ExpireDelegationToken is the same."""
    if reader := _reader(frame, ApiKey.RENEW_DELEGATION_TOKEN, api_version):
        reader.skip(2 + 8)
        return _next_int32(reader)
    return None


def _describe_delegation_token(frame: Buffer, api_version: int) -> int | None:
    """The field follows int16 error_code and an array of tokens, each with an array of its renewers."""
    if reader := _reader(frame, ApiKey.DESCRIBE_DELEGATION_TOKEN, api_version):
        reader.skip(2)
        for _ in range(reader.count()):
            _skip_token(reader, api_version)
            for _ in range(reader.count()):
                _skip_principal(reader)
                reader.skip_tags()
            reader.skip_tags()
        return _next_int32(reader)
    return None


def _skip_token(reader: FieldReader, api_version: int) -> None:
    _skip_principal(reader)
    if api_version >= _TOKEN_FIRST_REQUESTER:
        _skip_principal(reader)
    reader.skip(3 * 8)
    reader.nullable_string()
    reader.skip_bytes()


def _skip_principal(reader: FieldReader) -> None:
    """Step over two strings, type and name."""
    reader.nullable_string()
    reader.nullable_string()


_ELSEWHERE: Final[dict[int, Callable[[Buffer, int], int | None]]] = {
    ApiKey.PRODUCE: produce.throttle_time_offset,
    ApiKey.API_VERSIONS: api_versions.throttle_time_offset,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_delegation_token,
}
