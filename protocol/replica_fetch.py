"""A follower's Fetch (key 1, v0 to v18), read as a whole and written anew: request and response.

    request        see protocol.fetch
    entry of it    int32 partition, [v9+ int32 current_leader_epoch], int64 fetch_offset,
                   [v12+ int32 last_fetched_epoch], [v5+ int64 log_start_offset], int32 partition_max_bytes, [v12+ tags]
    response       [v1+ int32 throttle_time_ms] [v7+ int16 error_code, int32 session_id]
                   array of { v0-12 string topic | v13+ uuid topic_id, array of entries, [v12+ tags] }
                   [v12+ tags: v16+ 0: node_endpoints]
    entry of it    int32 partition, int16 error_code, int64 high_watermark, [v4+ int64 last_stable_offset],
                   [v5+ int64 log_start_offset], [v4+ array of { int64 producer_id, int64 first_offset, [v12+ tags] }],
                   [v11+ int32 preferred_read_replica], bytes records,
                   [v12+ tags: 0: diverging_epoch, 1: current_leader, 2: snapshot_id]

From v12 on strings, bytes and arrays are compact. Entries are kept as ranges of the bytes that came: what is not
changed passes as it is, whatever it means, and no records are copied before a frame is put together.

Frames are whole, and versions are 0 to 18: callers pass no others. A partition, or a topic, may come twice.

Source: FetchRequest.json, FetchResponse.json (0 to 18), ``FetchResponse.sizeOf`` in Apache Kafka.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.errors import MalformedLength, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.fetch import (
    FIRST_FLEXIBLE,
    FIRST_MAX_BYTES,
    FIRST_RACK_ID,
    FIRST_REPLICA_STATE,
    FIRST_SESSION,
    FIRST_THROTTLE,
    FIRST_TOPIC_ID,
    UNLIMITED_BYTES,
    read_replica_state,
    skip_forgotten_topics,
)
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_int32,
    read_string,
    read_uvarint,
    skip,
    skip_compact_string,
    skip_string,
    skip_tags,
    write_string,
    write_uvarint,
)

_FIRST_ISOLATION_LEVEL: Final = 4
_FIRST_ABORTED: Final = 4
_FIRST_LEADER_EPOCH: Final = 9
_FIRST_PREFERRED_REPLICA: Final = 11

_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_NO_TAGS: Final = b"\0"

# Of an entry in a request, by version: partition, [current_leader_epoch], fetch_offset, partition_max_bytes.
_REQUEST_ENTRIES: Final = (
    *[Struct(">iqi")] * 5,
    *[Struct(">iq8xi")] * 4,
    *[Struct(">iiq8xi")] * 3,
    *[Struct(">iiq12xi")] * 7,
)
# Of an entry in a response, by version: what stands in front of the aborted transactions or the records, a
# ``ResponsePartition``'s fields from partition to log_start_offset; and what those are that it does not have.
_RESPONSE_ENTRIES: Final[tuple[tuple[Struct, tuple[int, ...]], ...]] = (
    *[(Struct(">ihq"), (-1, -1))] * 4,
    (Struct(">ihqq"), (-1,)),
    *[(Struct(">ihqqq"), ())] * 14,
)
_ERROR_AND_SESSION: Final = Struct(">hi")
# A flexible entry of a response: its fixed fields, aborted transactions (null), preferred_read_replica, records, tags.
_EMPTY: Final = Struct(">ihqqqBiBB")

# A batch of any magic: int64 base offset, int32 length of what follows.
_BATCH_LENGTH: Final = Struct(">8xi")
_BATCH_FRONT_BYTES: Final = 12
# Kafka takes a shorter one for corrupt: crc, magic, attributes, and the lengths of key and value of magic 0.
_SHORTEST_BATCH_BYTES: Final = 4 + 1 + 1 + 4 + 4


class RequestPartition(NamedTuple):
    """What a follower asks of a partition.

    Attributes:
        topic: Its name in UTF-8 up to v12, the 16 bytes of its id from v13 on.
        partition: Its index.
        leader_epoch: -1 below v9.
        fetch_offset: Of the first record wanted.
        max_bytes: Its ``partition_max_bytes``.
        begin: Where the entry begins in the data.
        end: Where it ends, its tags included.
    """

    topic: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    max_bytes: int
    begin: int
    end: int


class ReplicaFetch(NamedTuple):
    """A request.

    Attributes:
        replica_id: The follower's node id; below 0 it is a consumer.
        max_wait_ms: How long the leader may wait for ``min_bytes``.
        min_bytes: See there.
        max_bytes: Of all records; ``UNLIMITED_BYTES`` below v3.
        session_id: 0 is none, and below v7.
        session_epoch: -1 is none, and below v7.
        partitions: In the order of the request.
        topic_tags: Of each topic that has tags, which none of Kafka's has: the whole section.
        api_version: Of the request.
        position: Where its size is in the data.
        body: Where its body begins.
        tail_at: Where begins what lies behind the forgotten topics: rack id and tags.
        end: Where it ends.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: Sequence[RequestPartition]
    topic_tags: Mapping[bytes, bytes]
    api_version: int
    position: int
    body: int
    tail_at: int
    end: int


class ResponsePartition(NamedTuple):
    """What a leader answers of a partition.

    Attributes:
        topic: As in ``RequestPartition``.
        partition: Its index.
        error_code: 0 is none.
        high_watermark: -1 is unknown.
        last_stable_offset: -1 is unknown, and below v4.
        log_start_offset: -1 is unknown, and below v5.
        begin: Where the entry begins in the data.
        records_at: Where the length of its records is.
        records: Where its records begin.
        records_end: Where they end; where they begin: it has none, or null.
        end: Where the entry ends, its tags included.
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
    """A response.

    Attributes:
        throttle_time_ms: 0 below v1.
        error_code: 0 is none, and below v7.
        session_id: 0 is none, and below v7.
        partitions: In the order of the response.
        topic_tags: As in ``ReplicaFetch``.
        topics_at: Where in the data the array of topics begins.
        tail_at: Where begins what lies behind it: the tags, with the node_endpoints.
        end: Where the response ends.
    """

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: Sequence[ResponsePartition]
    topic_tags: Mapping[bytes, bytes]
    topics_at: int
    tail_at: int
    end: int


class Entry(NamedTuple):
    """An entry that is to be written.

    Attributes:
        topic: As in ``RequestPartition``.
        parts: Its bytes, in order.
    """

    topic: bytes
    parts: tuple[Buffer, ...]


def read_request(data: bytes, position: int, body: int, api_version: int) -> ReplicaFetch:
    """Read a whole request.

    Args:
        data: Bytes that hold the whole frame.
        position: Where its size is.
        body: Where its body begins.
        api_version: Of the request.

    Raises:
        ProtocolError: The frame is not a Fetch request of this version.
    """
    size_bytes, _ = read_int32(data, position)
    end = position + 4 + size_bytes
    frame = _bounded(data, body, end)
    wait_at = _max_wait_at(body, api_version)
    topics_at = skip(frame, wait_at, _front_bytes(api_version))
    replica_id = 0 if api_version >= FIRST_REPLICA_STATE else _INT32.unpack_from(frame, body)[0]
    max_wait_ms, min_bytes = _TWO_INT32.unpack_from(frame, wait_at)
    max_bytes, session_id, session_epoch = UNLIMITED_BYTES, 0, -1
    if api_version >= FIRST_MAX_BYTES:
        (max_bytes,) = _INT32.unpack_from(frame, wait_at + 8)
    if api_version >= FIRST_SESSION:
        session_id, session_epoch = _TWO_INT32.unpack_from(frame, topics_at - 8)

    partitions: list[RequestPartition] = []
    topic_tags: dict[bytes, bytes] = {}
    count, at = _read_count(frame, topics_at, api_version)
    for _ in range(count):
        topic, at = _read_topic(frame, at, api_version)
        at = _read_request_entries(frame, at, api_version, topic, partitions)
        at = _read_topic_tags(frame, at, api_version, topic, topic_tags)
    tail_at = skip_forgotten_topics(frame, at, api_version) if api_version >= FIRST_SESSION else at
    at = _skip_rack_id(frame, tail_at, api_version)
    if api_version >= FIRST_REPLICA_STATE:
        replica_id = read_replica_state(frame, at)
    else:
        _check_end(frame, at, api_version)
    return ReplicaFetch(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        session_id,
        session_epoch,
        partitions,
        topic_tags,
        api_version,
        position,
        body,
        tail_at,
        end,
    )


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
    """Write a request anew, without forgotten topics.

    Args:
        data: Bytes of which ``request`` was read.
        request: It.
        chosen: Which of its partitions, in order, and the new ``partition_max_bytes`` of each. Neighbours of one topic
            come under it together.
        max_wait_ms: How long the leader may wait.
        max_bytes: Of all records; not written below v3.
        session_id: 0 is none; not written below v7.
        session_epoch: -1: the leader is to make no session; not written below v7.

    Returns:
        The whole frame; all else is as it was.
    """
    api_version = request.api_version
    wait_at = _max_wait_at(0, api_version)
    front = bytearray(data[request.body : request.body + wait_at + _front_bytes(api_version)])
    _INT32.pack_into(front, wait_at, max_wait_ms)
    if api_version >= FIRST_MAX_BYTES:
        _INT32.pack_into(front, wait_at + 8, max_bytes)
    if api_version >= FIRST_SESSION:
        _TWO_INT32.pack_into(front, len(front) - 8, session_id, session_epoch)

    limit_offset = _REQUEST_ENTRIES[api_version].size - 4
    pack = _INT32.pack
    entries = []
    for partition, limit in chosen:
        begin, end = partition.begin, partition.end
        if limit == partition.max_bytes:
            parts: tuple[bytes, ...] = (data[begin:end],)
        else:
            limit_at = begin + limit_offset
            parts = (data[begin:limit_at], pack(limit), data[limit_at + 4 : end])
        entries.append((partition.topic, parts))
    forgotten = _written_count(0, api_version) if api_version >= FIRST_SESSION else b""
    return _framed(
        [
            data[request.position + 4 : request.body],
            bytes(front),
            *_written_topics(entries, api_version, request.topic_tags),
            forgotten,
            data[request.tail_at : request.end],
        ]
    )


def read_response(data: bytes, position: int, frame_bytes: int, api_version: int) -> ReplicaResponse:
    """Read a whole response.

    Args:
        data: Bytes that hold the whole frame.
        position: Where its size is.
        frame_bytes: How many bytes it has, its size included.
        api_version: Of the request.

    Raises:
        ProtocolError: The frame is not a Fetch response of this version.
    """
    end = position + frame_bytes
    frame = _bounded(data, position + 8, end)
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
    topic_tags: dict[bytes, bytes] = {}
    read_entries = _read_response_entries if api_version >= FIRST_FLEXIBLE else _read_old_response_entries
    count, at = _read_count(frame, topics_at, api_version)
    for _ in range(count):
        topic, at = _read_topic(frame, at, api_version)
        at = read_entries(frame, at, api_version, topic, partitions)
        at = _read_topic_tags(frame, at, api_version, topic, topic_tags)
    _check_end(frame, at, api_version)
    return ReplicaResponse(throttle_time_ms, error_code, session_id, partitions, topic_tags, topics_at, at, end)


def end_of_whole_batches(data: Buffer, begin: int, end: int) -> int:
    """Return where the last of the batches that are whole ends: at ``end``, or before it.

    Args:
        data: Bytes that hold the records.
        begin: Where the first batch begins.
        end: Where what may be taken of them ends.

    Returns:
        ``begin`` if not even the first is whole.

    A batch, or a message of magic 0 or 1, of an impossible length is not whole. Only lengths are looked at.
    """
    length_of = _BATCH_LENGTH.unpack_from
    last = end - _BATCH_FRONT_BYTES - _SHORTEST_BATCH_BYTES
    at = begin
    while at <= last:
        (length,) = length_of(data, at)
        after = at + _BATCH_FRONT_BYTES + length
        if length < _SHORTEST_BATCH_BYTES or after > end:
            break
        at = after
    return at


def first_batch_size(data: Buffer, begin: int, end: int) -> int:
    """Return the size of the batch at ``begin``, or of the message of magic 0 or 1, as it says: perhaps beyond ``end``.

    0 if too little of it is there to say so, or what it says cannot be.
    """
    if begin + _BATCH_FRONT_BYTES > end:
        return 0
    return max(_BATCH_FRONT_BYTES + int(_BATCH_LENGTH.unpack_from(data, begin)[0]), 0)


def truncate_partition(
    data: bytes, partition: ResponsePartition, records_end: int, api_version: int
) -> tuple[Buffer, ...]:
    """Return an entry of a response with its records up to ``records_end``, and all else as it was.

    Args:
        data: Bytes of which the response was read.
        partition: The entry.
        records_end: Where its records are to end: anywhere from where they begin to where they end now.
        api_version: Of the request.
    """
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
    """Return an entry of a response without an error and without records, as a broker writes it for a follower.

    The aborted transactions are null, which they are for whoever reads uncommitted records; followers do.
    """
    fields = (partition, 0, high_watermark, last_stable_offset, log_start_offset)
    if api_version >= FIRST_FLEXIBLE:
        return _EMPTY.pack(*fields, 0, -1, 1, 0)
    front, missing = _RESPONSE_ENTRIES[api_version]
    parts = [front.pack(*fields[: len(fields) - len(missing)])]
    if api_version >= _FIRST_ABORTED:
        parts.append(_INT32.pack(-1))
    if api_version >= _FIRST_PREFERRED_REPLICA:
        parts.append(_INT32.pack(-1))
    return b"".join([*parts, _INT32.pack(0)])


def write_response(
    data: bytes, position: int, response: ReplicaResponse, entries: Sequence[Entry], api_version: int
) -> bytes:
    """Write a response anew, of no session.

    Args:
        data: Bytes of which ``response`` was read.
        position: Where its size is in them.
        response: It.
        entries: What it is to have, in order; neighbours of one topic come under it together.
        api_version: Of the request.

    Returns:
        The whole frame; all else is as it was.
    """
    front = data[position + 4 : response.topics_at]
    if api_version >= FIRST_SESSION:
        front = front[:-4] + bytes(4)
    topics = _written_topics(entries, api_version, response.topic_tags)
    return _framed([front, *topics, data[response.tail_at : response.end]])


def make_response(correlation_id: int, entries: Sequence[Entry], api_version: int, *, error_code: int = 0) -> bytes:
    """Return a response that no broker sent: not throttled, and of no session.

    Args:
        correlation_id: Of the request.
        entries: As in ``write_response``.
        api_version: Of the request.
        error_code: Of the whole response; below v7 it has none.
    """
    header = _INT32.pack(correlation_id) + (_NO_TAGS if api_version >= FIRST_FLEXIBLE else b"")
    return _framed([header, *_written_body(entries, api_version, error_code)])


def charged_bytes(entries: Sequence[Entry], api_version: int) -> int:
    """Return what Kafka charges for a response of only these entries: four bytes and the body, without node_endpoints.

    Source: ``KafkaApis.sizeOfThrottledPartitions``, ``FetchResponse.sizeOf`` in Apache Kafka.
    """
    return 4 + sum(map(len, _written_body(entries, api_version, 0)))


def _bounded(data: bytes, least: int, end: int) -> Buffer:
    """Return the data up to ``end``, so that nothing behind a frame is read as its own."""
    if not least <= end <= len(data):
        raise Truncated(f"a Fetch frame of {len(data)} bytes ends at byte {end}")
    return data if end == len(data) else memoryview(data)[:end]


def _max_wait_at(body: int, api_version: int) -> int:
    return body if api_version >= FIRST_REPLICA_STATE else body + 4


def _front_bytes(api_version: int) -> int:
    """Return how many bytes a request has from max_wait_ms to its topics."""
    size_bytes = 4 + 4
    if api_version >= FIRST_MAX_BYTES:
        size_bytes += 4
    if api_version >= _FIRST_ISOLATION_LEVEL:
        size_bytes += 1
    if api_version >= FIRST_SESSION:
        size_bytes += 4 + 4
    return size_bytes


def _read_count(frame: Buffer, at: int, api_version: int) -> tuple[int, int]:
    return read_compact_array_count(frame, at) if api_version >= FIRST_FLEXIBLE else read_array_count(frame, at)


def _read_topic(frame: Buffer, at: int, api_version: int) -> tuple[bytes, int]:
    if api_version >= FIRST_TOPIC_ID:
        end = skip(frame, at, 16)
        return bytes(frame[at:end]), end
    return read_string(frame, at, is_compact=api_version >= FIRST_FLEXIBLE)


def _read_topic_tags(frame: Buffer, at: int, api_version: int, topic: bytes, topic_tags: dict[bytes, bytes]) -> int:
    if api_version < FIRST_FLEXIBLE:
        return at
    if at < len(frame) and frame[at] == 0:
        return at + 1
    end = skip_tags(frame, at)
    topic_tags[topic] = bytes(frame[at:end])
    return end


def _read_request_entries(
    frame: Buffer, at: int, api_version: int, topic: bytes, partitions: list[RequestPartition]
) -> int:
    fields = _REQUEST_ENTRIES[api_version]
    size_bytes, unpack = fields.size, fields.unpack_from
    is_flexible, has_leader_epoch = api_version >= FIRST_FLEXIBLE, api_version >= _FIRST_LEADER_EPOCH
    leader_epoch = -1
    frame_end = len(frame)
    count, at = _read_count(frame, at, api_version)
    for _ in range(count):
        end = at + size_bytes
        if end > frame_end:
            raise Truncated(f"the data end at byte {frame_end}, a partition at byte {end}")
        if has_leader_epoch:
            partition, leader_epoch, fetch_offset, max_bytes = unpack(frame, at)
        else:
            partition, fetch_offset, max_bytes = unpack(frame, at)
        if is_flexible:
            # Followers have no tags here.
            end = end + 1 if end < frame_end and frame[end] == 0 else skip_tags(frame, end)
        partitions.append(RequestPartition(topic, partition, leader_epoch, fetch_offset, max_bytes, at, end))
        at = end
    return at


def _skip_rack_id(frame: Buffer, at: int, api_version: int) -> int:
    if api_version < FIRST_RACK_ID:
        return at
    return skip_compact_string(frame, at) if api_version >= FIRST_FLEXIBLE else skip_string(frame, at)


def _check_end(frame: Buffer, at: int, api_version: int) -> None:
    if api_version >= FIRST_FLEXIBLE:
        at = skip_tags(frame, at)
    if at != len(frame):
        raise TrailingBytes(f"a Fetch frame ends {len(frame) - at} bytes behind its fields")


def _read_response_entries(
    frame: Buffer, at: int, api_version: int, topic: bytes, partitions: list[ResponsePartition]
) -> int:
    """Read the entries of a topic (v12+)."""
    front, _ = _RESPONSE_ENTRIES[api_version]
    front_bytes, unpack = front.size, front.unpack_from
    # Behind the front: a count of aborted transactions, preferred_read_replica, the length of the records.
    least_bytes = front_bytes + 1 + 4 + 1
    frame_end = len(frame)
    count, at = read_compact_array_count(frame, at)
    for _ in range(count):
        begin = at
        if begin + least_bytes > frame_end:
            raise Truncated(f"the data end at byte {frame_end}, a partition behind it")
        fields = unpack(frame, begin)
        at = begin + front_bytes
        at = at + 1 if frame[at] < 2 else _skip_aborted_transactions(frame, at)
        records_at = at + 4
        length, records = read_uvarint(frame, records_at)
        records_end = records + length - 1 if length else records
        if records_end >= frame_end:
            raise Truncated(f"the data end at byte {frame_end}, records at byte {records_end}")
        at = records_end + 1 if frame[records_end] == 0 else skip_tags(frame, records_end)
        partitions.append(ResponsePartition._make((topic, *fields, begin, records_at, records, records_end, at)))
    return at


def _skip_aborted_transactions(frame: Buffer, at: int) -> int:
    count, at = read_compact_array_count(frame, at)
    for _ in range(count):
        at = skip_tags(frame, at + 8 + 8)
    return at


def _read_old_response_entries(
    frame: Buffer, at: int, api_version: int, topic: bytes, partitions: list[ResponsePartition]
) -> int:
    """Read the entries of a topic (v0-11)."""
    front, missing = _RESPONSE_ENTRIES[api_version]
    front_bytes, unpack = front.size, front.unpack_from
    has_aborted = api_version >= _FIRST_ABORTED
    preferred_replica_bytes = 4 if api_version >= _FIRST_PREFERRED_REPLICA else 0
    count, at = read_array_count(frame, at)
    for _ in range(count):
        begin = at
        at = skip(frame, begin, front_bytes)
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


def _written_count(count: int, api_version: int) -> bytes:
    return write_uvarint(count + 1) if api_version >= FIRST_FLEXIBLE else _INT32.pack(count)


def _written_topics(
    entries: Iterable[tuple[bytes, tuple[Buffer, ...]]], api_version: int, topic_tags: Mapping[bytes, bytes]
) -> list[Buffer]:
    """Return the parts of an array of topics, of requests and responses alike.

    A topic that comes again comes without tags: else a frame could be written longer by far than it was read.
    """
    has_ids, is_flexible = api_version >= FIRST_TOPIC_ID, api_version >= FIRST_FLEXIBLE
    tags = dict(topic_tags)
    written: list[Buffer] = [b""]
    topics = 0
    for topic, neighbours in groupby(entries, itemgetter(0)):
        topics += 1
        written.append(topic if has_ids else write_string(topic, is_compact=is_flexible))
        count_index = len(written)
        written.append(b"")
        count = 0
        for _, parts in neighbours:
            written += parts
            count += 1
        written[count_index] = _written_count(count, api_version)
        if is_flexible:
            written.append(tags.pop(topic, _NO_TAGS))
    written[0] = _written_count(topics, api_version)
    return written


def _written_body(entries: Sequence[Entry], api_version: int, error_code: int) -> list[Buffer]:
    """Return the parts of a response's body that is of our own making."""
    written: list[Buffer] = []
    if api_version >= FIRST_THROTTLE:
        written.append(bytes(4))
    if api_version >= FIRST_SESSION:
        written.append(_ERROR_AND_SESSION.pack(error_code, 0))
    written += _written_topics(entries, api_version, {})
    if api_version >= FIRST_FLEXIBLE:
        written.append(_NO_TAGS)
    return written


def _framed(parts: list[Buffer]) -> bytes:
    """Put the size in front."""
    return b"".join([_INT32.pack(sum(map(len, parts))), *parts])
