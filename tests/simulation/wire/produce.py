"""Produce (key 0), v3 to v13.

A topic is named up to v12. v13 has the 16 bytes of its id instead (KIP-516).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tests.simulation.wire.common import (
    DAMAGES,
    Leader,
    NodeEndpoint,
    RequestHeader,
    Topic,
    WireError,
    check_end,
    check_request,
    compact_nullable_string,
    compact_string,
    count,
    endpoints_field,
    framed,
    get_i32,
    leader_field,
    no_tags,
    nullable_string,
    open_response,
    pack_i32,
    parse_header,
    read_bytes,
    read_compact_string,
    read_count,
    read_endpoints,
    read_leader,
    read_string,
    read_tagged_fields,
    read_topic,
    request_header,
    response_header,
    string,
    tagged_fields,
    topic_field,
    varint,
)

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)

_FIRST_FLEXIBLE: Final = 9
_FIRST_TOPIC_ID: Final = 13
_FIRST_LOG_START: Final = 5
_FIRST_RECORD_ERRORS: Final = 8
_FIRST_LEADER: Final = 10

# acks, timeout_ms
_ACKS: Final = Struct(">hi")
# partition, error_code, base_offset, log_append_time_ms; log_start_offset from v5 on
_ANSWER_V3: Final = Struct(">ihqq")
_ANSWER: Final = Struct(">ihqqq")
_NO_ERRORS: Final = pack_i32(0) + b"\xff\xff"
_NO_ERRORS_FLEXIBLE: Final = b"\1\0"


class PartitionData(NamedTuple):
    """The records for a partition."""

    partition: int
    records: bytes | None


class TopicData(NamedTuple):
    """The records for a topic."""

    topic: Topic
    partitions: Sequence[PartitionData]


class ProduceRequest(NamedTuple):
    header: RequestHeader
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[TopicData]


class PartitionAnswer(NamedTuple):
    """What became of the records for a partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: Leader | None = None


class TopicAnswer(NamedTuple):
    topic: Topic
    partitions: Sequence[PartitionAnswer]


class ProduceResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[TopicAnswer]
    throttle_ms: int
    endpoints: Sequence[NodeEndpoint] = ()


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Iterable[tuple[Topic, Sequence[tuple[int, bytes | None]]]],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    """Return a request. The records are copied once."""
    flexible = version >= _FIRST_FLEXIBLE
    topics = tuple(topics)
    parts = [
        request_header(API_KEY, version, correlation_id, client_id),
        compact_nullable_string(transactional_id) if flexible else nullable_string(transactional_id),
        _ACKS.pack(acks, timeout_ms),
        count(len(topics), flexible=flexible),
    ]
    for topic, partitions in topics:
        parts.append(topic_field(topic, flexible=flexible, by_id=version >= _FIRST_TOPIC_ID))
        parts.append(count(len(partitions), flexible=flexible))
        for partition, records in partitions:
            parts.append(pack_i32(partition))
            if flexible:
                parts.append(b"\0" if records is None else varint(len(records) + 1))
                parts += records or b"", b"\0"
            else:
                parts += pack_i32(-1 if records is None else len(records)), records or b""
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    return framed(parts)


def parse_request(frame: bytes) -> ProduceRequest:
    """Read a request. The records are copied once."""
    header = parse_header(frame)
    check_request(header, API_KEY, VERSIONS)
    version = header.api_version
    flexible = version >= _FIRST_FLEXIBLE
    topics = []
    try:
        read_text = read_compact_string if flexible else read_string
        transactional_id, at = read_text(frame, header.body_at)
        acks, timeout_ms = _ACKS.unpack_from(frame, at)
        topic_count, at = read_count(frame, at + 6, flexible=flexible)
        for _ in range(topic_count):
            topic, at = read_topic(frame, at, flexible=flexible, by_id=version >= _FIRST_TOPIC_ID)
            partition_count, at = read_count(frame, at, flexible=flexible)
            partitions = []
            for _ in range(partition_count):
                (partition,) = get_i32(frame, at)
                records, at = read_bytes(frame, at + 4, flexible=flexible)
                if flexible:
                    at = no_tags(frame, at)
                partitions.append(PartitionData(partition, records))
            if flexible:
                at = no_tags(frame, at)
            topics.append(TopicData(topic, partitions))
        if flexible:
            at = no_tags(frame, at)
    except DAMAGES as error:
        raise WireError(f"no Produce request v{version}: {error}") from error
    check_end(frame, at)
    return ProduceRequest(header, transactional_id, acks, timeout_ms, topics)


def response(
    correlation_id: int,
    version: int,
    topics: Iterable[TopicAnswer],
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return a response. ``leader`` and ``endpoints`` are written from v10 on (KIP-951)."""
    flexible = version >= _FIRST_FLEXIBLE
    topics = tuple(topics)
    parts = [response_header(API_KEY, version, correlation_id), count(len(topics), flexible=flexible)]
    for topic, partitions in topics:
        parts.append(topic_field(topic, flexible=flexible, by_id=version >= _FIRST_TOPIC_ID))
        parts.append(count(len(partitions), flexible=flexible))
        for answer in partitions:
            _write_answer(parts, answer, version)
        if flexible:
            parts.append(b"\0")
    parts.append(pack_i32(throttle_ms))
    if flexible:
        has_endpoints = endpoints and version >= _FIRST_LEADER
        parts.append(tagged_fields({0: endpoints_field(endpoints)}) if has_endpoints else b"\0")
    return framed(parts)


def _write_answer(parts: list[bytes], answer: PartitionAnswer, version: int) -> None:
    partition, error_code, base_offset, append_time_ms, log_start_offset, message, leader = answer
    if version >= _FIRST_LOG_START:
        parts.append(_ANSWER.pack(partition, error_code, base_offset, append_time_ms, log_start_offset))
    else:
        parts.append(_ANSWER_V3.pack(partition, error_code, base_offset, append_time_ms))
    if version >= _FIRST_FLEXIBLE:
        parts.append(_NO_ERRORS_FLEXIBLE if message is None else b"\1" + compact_string(message))
        has_leader = leader is not None and version >= _FIRST_LEADER
        parts.append(tagged_fields({0: leader_field(leader)}) if leader is not None and has_leader else b"\0")
    elif version >= _FIRST_RECORD_ERRORS:
        parts.append(_NO_ERRORS if message is None else pack_i32(0) + string(message))


def parse_response(frame: bytes, version: int) -> ProduceResponse:
    """Read a response."""
    correlation_id, at = open_response(frame, API_KEY, version)
    flexible = version >= _FIRST_FLEXIBLE
    topics = []
    tags: dict[int, bytes] = {}
    try:
        topic_count, at = read_count(frame, at, flexible=flexible)
        for _ in range(topic_count):
            topic, at = read_topic(frame, at, flexible=flexible, by_id=version >= _FIRST_TOPIC_ID)
            partition_count, at = read_count(frame, at, flexible=flexible)
            partitions = []
            for _ in range(partition_count):
                answer, at = _read_answer(frame, at, version)
                partitions.append(answer)
            if flexible:
                at = no_tags(frame, at)
            topics.append(TopicAnswer(topic, partitions))
        (throttle_ms,) = get_i32(frame, at)
        at += 4
        if flexible:
            tags, at = read_tagged_fields(frame, at)
        endpoints = read_endpoints(tags.pop(0)) if 0 in tags and version >= _FIRST_LEADER else ()
    except DAMAGES as error:
        raise WireError(f"no Produce response v{version}: {error}") from error
    if tags:
        raise WireError(f"unknown tagged fields {sorted(tags)}")
    check_end(frame, at)
    return ProduceResponse(correlation_id, topics, throttle_ms, endpoints)


def _read_answer(frame: bytes, at: int, version: int) -> tuple[PartitionAnswer, int]:
    log_start_offset = -1
    if version >= _FIRST_LOG_START:
        partition, error_code, base_offset, append_time_ms, log_start_offset = _ANSWER.unpack_from(frame, at)
        at += _ANSWER.size
    else:
        partition, error_code, base_offset, append_time_ms = _ANSWER_V3.unpack_from(frame, at)
        at += _ANSWER_V3.size
    message: str | None = None
    leader: Leader | None = None
    if version >= _FIRST_RECORD_ERRORS:
        flexible = version >= _FIRST_FLEXIBLE
        errors, at = read_count(frame, at, flexible=flexible)
        if errors:
            raise WireError("errors of single records, which no simulated broker has")
        message, at = read_compact_string(frame, at) if flexible else read_string(frame, at)
        if flexible:
            tags, at = read_tagged_fields(frame, at)
            if tags:
                if version < _FIRST_LEADER or list(tags) != [0]:
                    raise WireError(f"unknown tagged fields {sorted(tags)}")
                leader = read_leader(tags[0])
    return PartitionAnswer(partition, error_code, base_offset, append_time_ms, log_start_offset, message, leader), at
