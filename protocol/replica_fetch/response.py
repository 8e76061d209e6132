"""Reads a leader's response to a follower's Fetch, and writes it with other partitions or fewer records.

    response   [v1+ int32 throttle_time_ms] [v7+ int16 error_code, int32 session_id]
               array of { v0-12 string topic | v13+ uuid topic_id, array of partitions, [v12+ tags] }
               [v12+ tags: v16+ 0: node_endpoints]
    partition  int32 partition, int16 error_code, int64 high_watermark, [v4+ int64 last_stable_offset],
               [v5+ int64 log_start_offset], [v4+ array of { int64 producer_id, int64 first_offset, [v12+ tags] }],
               [v11+ int32 preferred_read_replica], bytes records,
               [v12+ tags: 0: diverging_epoch, 1: current_leader, 2: snapshot_id]

From v12 on strings, bytes and arrays are compact.

Source: FetchResponse.json (0 to 18), ``FetchResponse.sizeOf`` in Apache Kafka.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.codec import framed
from kafka_quota_proxy.protocol.errors import MalformedLength, Truncated
from kafka_quota_proxy.protocol.fetch import FIRST_FLEXIBLE, FIRST_SESSION, FIRST_THROTTLE
from kafka_quota_proxy.protocol.primitives import (
    NO_TAGS,
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_int32,
    read_uvarint,
    skip,
    skip_tags,
    write_uvarint,
)
from kafka_quota_proxy.protocol.replica_fetch.topics import Entry, bounded, check_end, read_topics, written_topics

_FIRST_ABORTED: Final = 4
_FIRST_PREFERRED_REPLICA: Final = 11

_INT32: Final = Struct(">i")
# By version, the fixed fields of a partition from partition to log_start_offset, and the values that stand for the
# fields that the version lacks.
_PARTITION_FIELDS: Final[tuple[tuple[Struct, tuple[int, ...]], ...]] = (
    *[(Struct(">ihq"), (-1, -1))] * 4,
    (Struct(">ihqq"), (-1,)),
    *[(Struct(">ihqqq"), ())] * 14,
)
_ERROR_AND_SESSION: Final = Struct(">hi")
# A partition without records in the flexible encoding: its fixed fields, aborted transactions (null),
# preferred_read_replica, records, tags.
_EMPTY_PARTITION: Final = Struct(">ihqqqBiBB")


class ResponsePartition(NamedTuple):
    """A partition in a leader's response. Its entry is the data from ``begin`` to ``end``.

    ``topic`` is a name or an id, as in ``RequestPartition``. ``high_watermark``, ``last_stable_offset`` and
    ``log_start_offset`` are -1 if unknown. The length of the records is at ``records_at``. The records are the data
    from ``records`` to ``records_end``.
    """

    topic: bytes
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    begin: int
    records_at: int
    records: int
    records_end: int
    end: int


class ReplicaResponse(NamedTuple):
    """A leader's response to a follower's Fetch.

    Fields that the version lacks are 0. ``topic_tags`` contains the tags of each topic that has any. The array of
    topics begins at ``topics_at``. The tags of the response, which include the node_endpoints, begin at ``tail_at``.
    """

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: Sequence[ResponsePartition]
    topic_tags: Mapping[bytes, bytes]
    topics_at: int
    tail_at: int
    end: int


def read_response(data: bytes, position: int, frame_bytes: int, api_version: int) -> ReplicaResponse:
    """Read the whole response at ``position``. ``frame_bytes`` is the size of its frame, including the size field."""
    end = position + frame_bytes
    frame = bounded(data, position + 8, end)
    at = position + 8
    if api_version >= FIRST_FLEXIBLE:
        at = skip_tags(frame, at)
    throttle_time_ms, error_code, session_id = 0, 0, 0
    if api_version >= FIRST_THROTTLE:
        throttle_time_ms, at = read_int32(frame, at)
    if api_version >= FIRST_SESSION:
        error_code, session_id = _ERROR_AND_SESSION.unpack_from(frame, skip(frame, at, 6) - 6)
        at += 6
    topics_at = at
    partitions: list[ResponsePartition] = []
    read_partitions = _read_partitions if api_version >= FIRST_FLEXIBLE else _read_old_partitions
    topic_tags, at = read_topics(frame, topics_at, api_version, partial(read_partitions, partitions))
    check_end(frame, at, api_version)
    return ReplicaResponse(throttle_time_ms, error_code, session_id, partitions, topic_tags, topics_at, at, end)


def truncate_partition(
    data: bytes, partition: ResponsePartition, records_end: int, api_version: int
) -> tuple[Buffer, ...]:
    """Return a partition's entry without the records after ``records_end``, as parts to be joined."""
    view = memoryview(data)
    if records_end == partition.records_end:
        return (view[partition.begin : partition.end],)
    records_bytes = records_end - partition.records
    is_flexible = api_version >= FIRST_FLEXIBLE
    return (
        view[partition.begin : partition.records_at],
        write_uvarint(records_bytes + 1) if is_flexible else _INT32.pack(records_bytes),
        view[partition.records : records_end],
        view[partition.records_end : partition.end],
    )


def empty_partition(
    partition: int, *, high_watermark: int, last_stable_offset: int, log_start_offset: int, api_version: int
) -> bytes:
    """Encode a partition of a Fetch response with no error and no records, in the form that brokers use."""
    fields = (partition, 0, high_watermark, last_stable_offset, log_start_offset)
    if api_version >= FIRST_FLEXIBLE:
        return _EMPTY_PARTITION.pack(*fields, 0, -1, 1, 0)
    fixed, missing = _PARTITION_FIELDS[api_version]
    parts = [fixed.pack(*fields[: len(fields) - len(missing)])]
    if api_version >= _FIRST_ABORTED:
        parts.append(_INT32.pack(-1))
    if api_version >= _FIRST_PREFERRED_REPLICA:
        parts.append(_INT32.pack(-1))
    return b"".join([*parts, _INT32.pack(0)])


def write_response(
    data: bytes,
    position: int,
    response: ReplicaResponse,
    entries: Sequence[Entry],
    api_version: int,
    *,
    session_id: int = 0,
) -> bytes:
    """Return a leader's response as a whole frame, with only the partitions in ``entries`` and another session id."""
    front = data[position + 4 : response.topics_at]
    if api_version >= FIRST_SESSION:
        front = front[:-4] + _INT32.pack(session_id)
    topics = written_topics(entries, api_version, response.topic_tags)
    return framed(front, *topics, data[response.tail_at : response.end])


def make_response(
    correlation_id: int, entries: Sequence[Entry], api_version: int, *, error_code: int = 0, session_id: int = 0
) -> bytes:
    """Return a Fetch response that the proxy itself sends to a follower, with throttle time 0.

    ``entries`` contains the encoded partitions. Versions below 7 have no fields for ``error_code`` and ``session_id``.
    """
    header = _INT32.pack(correlation_id) + (NO_TAGS if api_version >= FIRST_FLEXIBLE else b"")
    return framed(header, *_written_body(entries, api_version, error_code, session_id))


def charged_bytes(entries: Sequence[Entry], api_version: int) -> int:
    """Return how many bytes Kafka would charge for a response with only these entries and without node_endpoints.

    Source: ``KafkaApis.sizeOfThrottledPartitions``, ``FetchResponse.sizeOf`` in Apache Kafka.
    """
    return 4 + sum(map(len, _written_body(entries, api_version)))


def _read_partitions(
    partitions: list[ResponsePartition], frame: Buffer, at: int, api_version: int, topic: bytes
) -> int:
    """Append the partitions of a topic (v12+) to ``partitions``, and return the offset of their end."""
    fixed, _ = _PARTITION_FIELDS[api_version]
    fixed_bytes, unpack = fixed.size, fixed.unpack_from
    # At least these follow: the count of aborted transactions, preferred_read_replica, the length of the records.
    least_bytes = fixed_bytes + 1 + 4 + 1
    frame_end = len(frame)
    count, at = read_compact_array_count(frame, at)
    for _ in range(count):
        begin = at
        if begin + least_bytes > frame_end:
            raise Truncated(f"the data ends at byte {frame_end}, inside a partition")
        fields = unpack(frame, begin)
        at = begin + fixed_bytes
        at = at + 1 if frame[at] < 2 else _skip_aborted_transactions(frame, at)
        records_at = at + 4
        length, records = read_uvarint(frame, records_at)
        records_end = records + length - 1 if length else records
        if records_end >= frame_end:
            raise Truncated(f"the data ends at byte {frame_end}, before the end of records at byte {records_end}")
        at = records_end + 1 if frame[records_end] == 0 else skip_tags(frame, records_end)
        partitions.append(ResponsePartition._make((topic, *fields, begin, records_at, records, records_end, at)))
    return at


def _skip_aborted_transactions(frame: Buffer, at: int) -> int:
    count, at = read_compact_array_count(frame, at)
    for _ in range(count):
        at = skip_tags(frame, at + 8 + 8)
    return at


def _read_old_partitions(
    partitions: list[ResponsePartition], frame: Buffer, at: int, api_version: int, topic: bytes
) -> int:
    """Append the partitions of a topic (v0-11) to ``partitions``, and return the offset of their end."""
    fixed, missing = _PARTITION_FIELDS[api_version]
    fixed_bytes, unpack = fixed.size, fixed.unpack_from
    has_aborted = api_version >= _FIRST_ABORTED
    preferred_replica_bytes = 4 if api_version >= _FIRST_PREFERRED_REPLICA else 0
    count, at = read_array_count(frame, at)
    for _ in range(count):
        begin = at
        at = skip(frame, begin, fixed_bytes)
        fields = unpack(frame, begin) + missing
        if has_aborted:
            aborted, at = read_array_count(frame, at)
            at += (8 + 8) * aborted
        records_at = at + preferred_replica_bytes
        length, records = read_int32(frame, records_at)
        if length < -1:
            raise MalformedLength(f"records have length {length}")
        at = skip(frame, records, max(length, 0))
        partitions.append(ResponsePartition._make((topic, *fields, begin, records_at, records, at, at)))
    return at


def _written_body(entries: Sequence[Entry], api_version: int, error_code: int = 0, session_id: int = 0) -> list[Buffer]:
    """Return the body of a response from the proxy itself, as parts to be joined."""
    written: list[Buffer] = []
    if api_version >= FIRST_THROTTLE:
        written.append(bytes(4))
    if api_version >= FIRST_SESSION:
        written.append(_ERROR_AND_SESSION.pack(error_code, session_id))
    written += written_topics(entries, api_version, {})
    if api_version >= FIRST_FLEXIBLE:
        written.append(NO_TAGS)
    return written
