"""Fetch responses (key 1), v4 to v16. ``fetch`` has the requests, and says how topics are named."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tests.simulation.wire.common import (
    DAMAGES,
    Leader,
    NodeEndpoint,
    Topic,
    WireError,
    check_end,
    count,
    endpoints_field,
    framed,
    get_i32,
    leader_field,
    no_tags,
    open_response,
    pack_i32,
    read_bytes,
    read_count,
    read_endpoints,
    read_leader,
    read_tagged_fields,
    read_topic,
    response_header,
    tagged_fields,
    topic_field,
    varint,
)

API_KEY: Final = 1

_FIRST_LOG_START: Final = 5
_FIRST_SESSION: Final = 7
_FIRST_PREFERRED_REPLICA: Final = 11
_FIRST_FLEXIBLE: Final = 12
_FIRST_TOPIC_ID: Final = 13
_FIRST_ENDPOINTS: Final = 16
# In a response that the proxy streams, it hides the endpoints by this tag, which no client knows.
_HIDDEN: Final = 127

# throttle_ms, error_code, session_id
_HEAD: Final = Struct(">ihi")
# partition, error_code, high_watermark, last_stable_offset; log_start_offset from v5 on
_FRONT_V4: Final = Struct(">ihqq")
_FRONT: Final = Struct(">ihqqq")
# The tag of the leader in a partition.
_LEADER: Final = 1
_FRONT_V11: Final = Struct(">ihqqqii")
_FRONT_V12: Final = Struct(">ihqqqbi")


class FetchedPartition(NamedTuple):
    """What a partition answers. The list of aborted transactions is always empty."""

    partition: int
    records: bytes | None = b""
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_replica: int = -1
    leader: Leader | None = None


class FetchedTopic(NamedTuple):
    topic: Topic
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    error_code: int
    session_id: int
    topics: Sequence[FetchedTopic]
    endpoints: Sequence[NodeEndpoint] = ()


def response(
    correlation_id: int,
    version: int,
    topics: Iterable[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return a response. A leader is written from v12 on, ``endpoints`` from v16 on (KIP-951)."""
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_TOPIC_ID
    topics = tuple(topics)
    parts = [
        response_header(API_KEY, version, correlation_id),
        _HEAD.pack(throttle_ms, error_code, session_id) if version >= _FIRST_SESSION else pack_i32(throttle_ms),
        count(len(topics), flexible=flexible),
    ]
    for topic, partitions in topics:
        parts.append(topic_field(topic, flexible=flexible, by_id=by_id))
        parts.append(count(len(partitions), flexible=flexible))
        for partition in partitions:
            _write_partition(parts, partition, version)
        if flexible:
            parts.append(b"\0")
    if flexible:
        has_endpoints = endpoints and version >= _FIRST_ENDPOINTS
        parts.append(tagged_fields({0: endpoints_field(endpoints)}) if has_endpoints else b"\0")
    return framed(parts)


def _write_partition(parts: list[bytes], fetched: FetchedPartition, version: int) -> None:
    number, records, error_code, high_watermark, stable_offset, log_start_offset, replica, leader = fetched
    if version >= _FIRST_FLEXIBLE:
        # The 1 is an empty array of aborted transactions.
        parts.append(_FRONT_V12.pack(number, error_code, high_watermark, stable_offset, log_start_offset, 1, replica))
        parts.append(b"\0" if records is None else varint(len(records) + 1))
        parts.append(records or b"")
        parts.append(b"\0" if leader is None else tagged_fields({_LEADER: leader_field(leader)}))
        return
    if version >= _FIRST_PREFERRED_REPLICA:
        parts.append(_FRONT_V11.pack(number, error_code, high_watermark, stable_offset, log_start_offset, 0, replica))
    elif version >= _FIRST_LOG_START:
        parts.append(_FRONT.pack(number, error_code, high_watermark, stable_offset, log_start_offset) + pack_i32(0))
    else:
        parts.append(_FRONT_V4.pack(number, error_code, high_watermark, stable_offset) + pack_i32(0))
    parts += pack_i32(-1 if records is None else len(records)), records or b""


def parse_response(frame: bytes, version: int) -> FetchResponse:
    """Read a response. The records are copied once."""
    correlation_id, at = open_response(frame, API_KEY, version)
    try:
        return _parse(frame, at, version, correlation_id)
    except DAMAGES as error:
        raise WireError(f"no Fetch response v{version}: {error}") from error


def _parse(frame: bytes, at: int, version: int, correlation_id: int) -> FetchResponse:
    flexible = version >= _FIRST_FLEXIBLE
    error_code = session_id = 0
    if version >= _FIRST_SESSION:
        throttle_ms, error_code, session_id = _HEAD.unpack_from(frame, at)
        at += _HEAD.size
    else:
        (throttle_ms,) = get_i32(frame, at)
        at += 4
    topics = []
    topic_count, at = read_count(frame, at, flexible=flexible)
    for _ in range(topic_count):
        topic, at = read_topic(frame, at, flexible=flexible, by_id=version >= _FIRST_TOPIC_ID)
        partition_count, at = read_count(frame, at, flexible=flexible)
        partitions = []
        for _ in range(partition_count):
            partition, at = _read_partition(frame, at, version)
            partitions.append(partition)
        if flexible:
            at = no_tags(frame, at)
        topics.append(FetchedTopic(topic, partitions))
    endpoints: Sequence[NodeEndpoint] = ()
    if flexible:
        tags, at = read_tagged_fields(frame, at)
        if tags:
            if version < _FIRST_ENDPOINTS or list(tags) not in ([0], [_HIDDEN]):
                raise WireError(f"unknown tagged fields {sorted(tags)}")
            endpoints = read_endpoints(tags[0]) if 0 in tags else ()
    check_end(frame, at)
    return FetchResponse(correlation_id, throttle_ms, error_code, session_id, topics, endpoints)


def _read_partition(frame: bytes, at: int, version: int) -> tuple[FetchedPartition, int]:
    log_start_offset = replica = -1
    leader: Leader | None = None
    flexible = version >= _FIRST_FLEXIBLE
    if flexible:
        number, error, watermark, stable, log_start_offset, aborted, replica = _FRONT_V12.unpack_from(frame, at)
        at += _FRONT_V12.size
        # Null or empty.
        aborted = max(0, aborted - 1) if aborted >= 0 else 1
    elif version >= _FIRST_PREFERRED_REPLICA:
        number, error, watermark, stable, log_start_offset, aborted, replica = _FRONT_V11.unpack_from(frame, at)
        at += _FRONT_V11.size
    elif version >= _FIRST_LOG_START:
        number, error, watermark, stable, log_start_offset = _FRONT.unpack_from(frame, at)
        (aborted,) = get_i32(frame, at + _FRONT.size)
        at += _FRONT.size + 4
    else:
        number, error, watermark, stable = _FRONT_V4.unpack_from(frame, at)
        (aborted,) = get_i32(frame, at + _FRONT_V4.size)
        at += _FRONT_V4.size + 4
    if aborted not in (0, -1):
        raise WireError("aborted transactions, which no simulated broker has")
    records, at = read_bytes(frame, at, flexible=flexible)
    if flexible:
        tags, at = read_tagged_fields(frame, at)
        if tags:
            if list(tags) != [_LEADER]:
                raise WireError(f"unknown tagged fields {sorted(tags)}")
            leader = read_leader(tags[_LEADER])
    return FetchedPartition(number, records, error, watermark, stable, log_start_offset, replica, leader), at
