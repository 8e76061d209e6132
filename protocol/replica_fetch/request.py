"""Reads a follower's Fetch request, and writes it with other partitions and limits.

    request    as in the docstring of protocol.fetch
    partition  int32 partition, [v9+ int32 current_leader_epoch], int64 fetch_offset,
               [v12+ int32 last_fetched_epoch], [v5+ int64 log_start_offset], int32 partition_max_bytes, [v12+ tags]

Source: FetchRequest.json (0 to 18) in Apache Kafka.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.codec import framed
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.protocol.fetch import (
    FIRST_FLEXIBLE,
    FIRST_MAX_BYTES,
    FIRST_RACK_ID,
    FIRST_REPLICA_STATE,
    FIRST_SESSION,
    UNLIMITED_BYTES,
    read_replica_state,
)
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_int32,
    skip,
    skip_compact_string,
    skip_string,
    skip_tags,
    written_count,
)
from kafka_quota_proxy.protocol.replica_fetch.topics import (
    bounded,
    check_end,
    read_count,
    read_topics,
    written_topics,
)

_FIRST_ISOLATION_LEVEL: Final = 4
_FIRST_LEADER_EPOCH: Final = 9

_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")

# The fixed fields of a partition, by version. The values are partition, [current_leader_epoch], fetch_offset and
# partition_max_bytes.
_PARTITION_FIELDS: Final = (
    *[Struct(">iqi")] * 5,
    *[Struct(">iq8xi")] * 4,
    *[Struct(">iiq8xi")] * 3,
    *[Struct(">iiq12xi")] * 7,
)


class RequestPartition(NamedTuple):
    """A partition in a follower's Fetch request. ``entry`` is its encoded form.

    Up to v12 ``topic`` is a name in UTF-8. From v13 on it is the 16 bytes of a topic id. ``leader_epoch`` is -1 before
    v9. ``max_bytes`` is the field ``partition_max_bytes``.
    """

    topic: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    max_bytes: int
    entry: bytes


class ReplicaFetch(NamedTuple):
    """A follower's Fetch request. Its frame is the data from ``position``, where the size field is, to ``end``.

    If the version lacks a field, ``session_epoch`` is -1, ``session_id`` is 0 and ``max_bytes`` is ``UNLIMITED_BYTES``.
    ``replica_id`` is below 0 if a consumer sent the request. ``topic_tags`` contains the tags of each topic that has
    any. ``forgotten`` contains the topics and numbers of partitions to remove from the fetch session. The rack id and
    the tags of the request begin at ``tail_at``.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: Sequence[RequestPartition]
    topic_tags: Mapping[bytes, bytes]
    forgotten: Sequence[tuple[bytes, int]]
    api_version: int
    position: int
    body: int
    tail_at: int
    end: int


def read_request(data: bytes, position: int, body: int, api_version: int) -> ReplicaFetch:
    """Read the whole Fetch request whose frame begins at ``position``, and whose body begins at ``body``."""
    size_bytes, _ = read_int32(data, position)
    end = position + 4 + size_bytes
    frame = bounded(data, body, end)
    wait_at = _max_wait_at(body, api_version)
    topics_at = skip(frame, wait_at, _limits_bytes(api_version))
    max_wait_ms, min_bytes = _TWO_INT32.unpack_from(frame, wait_at)
    max_bytes, session_id, session_epoch = UNLIMITED_BYTES, 0, -1
    if api_version >= FIRST_MAX_BYTES:
        (max_bytes,) = _INT32.unpack_from(frame, wait_at + 8)
    if api_version >= FIRST_SESSION:
        session_id, session_epoch = _TWO_INT32.unpack_from(frame, topics_at - 8)
    partitions: list[RequestPartition] = []
    topic_tags, at = read_topics(frame, topics_at, api_version, partial(_read_partitions, partitions))
    forgotten: list[tuple[bytes, int]] = []
    tail_at = at
    if api_version >= FIRST_SESSION:
        _, tail_at = read_topics(frame, at, api_version, partial(_read_forgotten, forgotten))
    replica_id = _read_tail(frame, tail_at, body, api_version)
    return ReplicaFetch(
        replica_id, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, partitions, topic_tags, forgotten,
        api_version, position, body, tail_at, end,
    )  # fmt: skip


def write_request(
    data: bytes,
    request: ReplicaFetch,
    chosen: Sequence[tuple[RequestPartition, int]],
    *,
    max_wait_ms: int,
    max_bytes: int,
    session_id: int = 0,
    session_epoch: int = -1,
) -> bytes:
    """Encode a request with other limits and partitions, and without forgotten topics, as a whole frame.

    ``chosen`` contains the partitions in the order in which they are written, each with its new
    ``partition_max_bytes``. An argument is ignored if the version lacks its field.
    """
    api_version = request.api_version
    wait_at = _max_wait_at(0, api_version)
    front = bytearray(data[request.body : request.body + wait_at + _limits_bytes(api_version)])
    _INT32.pack_into(front, wait_at, max_wait_ms)
    if api_version >= FIRST_MAX_BYTES:
        _INT32.pack_into(front, wait_at + 8, max_bytes)
    forgotten = b""
    if api_version >= FIRST_SESSION:
        _TWO_INT32.pack_into(front, len(front) - 8, session_id, session_epoch)
        forgotten = written_count(0, is_flexible=api_version >= FIRST_FLEXIBLE)
    return framed(
        data[request.position + 4 : request.body],
        bytes(front),
        *written_topics(_entries(chosen, api_version), api_version, request.topic_tags),
        forgotten,
        data[request.tail_at : request.end],
    )


def _entries(chosen: Sequence[tuple[RequestPartition, int]], api_version: int) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """Return the topic and the entry of each partition, with its new ``partition_max_bytes``, as parts to be joined."""
    limit_offset = _PARTITION_FIELDS[api_version].size - 4
    pack = _INT32.pack
    entries = []
    for partition, limit in chosen:
        entry = partition.entry
        if limit == partition.max_bytes:
            parts: tuple[bytes, ...] = (entry,)
        else:
            parts = (entry[:limit_offset], pack(limit), entry[limit_offset + 4 :])
        entries.append((partition.topic, parts))
    return entries


def _max_wait_at(body: int, api_version: int) -> int:
    return body if api_version >= FIRST_REPLICA_STATE else body + 4


def _limits_bytes(api_version: int) -> int:
    """Return how many bytes a Fetch request has from ``max_wait_ms`` to the beginning of the array of topics."""
    size_bytes = 4 + 4
    if api_version >= FIRST_MAX_BYTES:
        size_bytes += 4
    if api_version >= _FIRST_ISOLATION_LEVEL:
        size_bytes += 1
    if api_version >= FIRST_SESSION:
        size_bytes += 4 + 4
    return size_bytes


def _read_partitions(partitions: list[RequestPartition], frame: Buffer, at: int, api_version: int, topic: bytes) -> int:
    """Append the partitions of a topic to ``partitions``, and return the offset of their end."""
    fields = _PARTITION_FIELDS[api_version]
    size_bytes, unpack = fields.size, fields.unpack_from
    is_flexible, has_leader_epoch = api_version >= FIRST_FLEXIBLE, api_version >= _FIRST_LEADER_EPOCH
    leader_epoch = -1
    frame_end = len(frame)
    count, at = read_count(frame, at, api_version)
    for _ in range(count):
        end = at + size_bytes
        if end > frame_end:
            raise Truncated(f"the data ends at byte {frame_end}, inside a partition")
        if has_leader_epoch:
            partition, leader_epoch, fetch_offset, max_bytes = unpack(frame, at)
        else:
            partition, fetch_offset, max_bytes = unpack(frame, at)
        if is_flexible:
            # Followers write no tags here.
            end = end + 1 if end < frame_end and frame[end] == 0 else skip_tags(frame, end)
        partitions.append(
            RequestPartition(topic, partition, leader_epoch, fetch_offset, max_bytes, bytes(frame[at:end]))
        )
        at = end
    return at


def _read_forgotten(forgotten: list[tuple[bytes, int]], frame: Buffer, at: int, api_version: int, topic: bytes) -> int:
    """Append the partitions of a topic to ``forgotten``, and return the offset of their end."""
    count, at = read_count(frame, at, api_version)
    end = skip(frame, at, 4 * count)
    forgotten += [(topic, partition) for (partition,) in _INT32.iter_unpack(frame[at:end])]
    return end


def _read_tail(frame: Buffer, at: int, body: int, api_version: int) -> int:
    """Read a Fetch request from its rack id, at the offset ``at``, to the end of the frame. Return the replica_id."""
    if api_version >= FIRST_RACK_ID:
        at = skip_compact_string(frame, at) if api_version >= FIRST_FLEXIBLE else skip_string(frame, at)
    if api_version >= FIRST_REPLICA_STATE:
        return read_replica_state(frame, at)
    check_end(frame, at, api_version)
    replica_id: int = _INT32.unpack_from(frame, body)[0]
    return replica_id
