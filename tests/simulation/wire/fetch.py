"""Fetch (key 1), v4 to v16. The requests are here, the responses in ``fetch_response``, whose names are here too.

A topic is named up to v12. v13 and later have the 16 bytes of its id instead (KIP-516). A follower says who it is by
``replica_id`` up to v14, and in a tagged field from v15 on (KIP-903).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tests.simulation.wire.common import (
    DAMAGES,
    RequestHeader,
    Topic,
    WireError,
    check_end,
    check_request,
    compact_nullable_string,
    compact_string,
    count,
    framed,
    get_i32,
    no_tags,
    pack_i32,
    parse_header,
    read_compact_string,
    read_count,
    read_string,
    read_tagged_fields,
    read_topic,
    request_header,
    string,
    tagged_fields,
    topic_field,
)
from tests.simulation.wire.fetch_response import FetchedPartition as FetchedPartition
from tests.simulation.wire.fetch_response import FetchedTopic as FetchedTopic
from tests.simulation.wire.fetch_response import FetchResponse as FetchResponse
from tests.simulation.wire.fetch_response import parse_response as parse_response
from tests.simulation.wire.fetch_response import response as response

API_KEY: Final = 1
VERSIONS: Final = range(4, 17)

_FIRST_LOG_START: Final = 5
_FIRST_SESSION: Final = 7
_FIRST_LEADER_EPOCH: Final = 9
_FIRST_RACK: Final = 11
_FIRST_FLEXIBLE: Final = 12
_FIRST_TOPIC_ID: Final = 13
_FIRST_REPLICA_STATE: Final = 15

_REPLICA_ID: Final = Struct(">i")
# max_wait_ms, min_bytes, max_bytes, isolation_level
_LIMITS: Final = Struct(">iiib")
# session_id, session_epoch
_SESSION: Final = Struct(">ii")
_REPLICA_STATE: Final = Struct(">iqb")
# The tags of the request's end.
_CLUSTER_ID: Final = 0
_REPLICA_STATE_TAG: Final = 1


class FetchPartition(NamedTuple):
    """What is asked of a partition."""

    partition: int
    offset: int
    max_bytes: int = 1_048_576
    leader_epoch: int = -1
    log_start_offset: int = -1
    last_fetched_epoch: int = -1


class FetchTopic(NamedTuple):
    topic: Topic
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    topic: Topic
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A request. ``session_id`` 0 with ``session_epoch`` -1 is a full fetch without a session (KIP-227)."""

    header: RequestHeader
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchTopic]
    forgotten: Sequence[ForgottenTopic]
    rack: str
    replica_id: int
    replica_epoch: int
    cluster_id: str | None


# partition, then what the version has of: leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes
def _partition_format(version: int) -> Struct:
    if version >= _FIRST_FLEXIBLE:
        return Struct(">iiqiqi")
    if version >= _FIRST_LEADER_EPOCH:
        return Struct(">iiqqi")
    return Struct(">iqqi" if version >= _FIRST_LOG_START else ">iqi")


_PARTITIONS: Final = {version: _partition_format(version) for version in VERSIONS}


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Iterable[tuple[Topic, Sequence[FetchPartition]]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[Topic, Sequence[int]]] = (),
    rack: str = "",
    replica_id: int = -1,
    replica_epoch: int = -1,
    cluster_id: str | None = None,
) -> bytes:
    """Return a request."""
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_TOPIC_ID
    topics = tuple(topics)
    parts = [request_header(API_KEY, version, correlation_id, client_id)]
    if version < _FIRST_REPLICA_STATE:
        parts.append(pack_i32(replica_id))
    parts.append(_LIMITS.pack(max_wait_ms, min_bytes, max_bytes, isolation_level))
    if version >= _FIRST_SESSION:
        parts.append(_SESSION.pack(session_id, session_epoch))
    parts.append(count(len(topics), flexible=flexible))
    for topic, partitions in topics:
        parts.append(topic_field(topic, flexible=flexible, by_id=by_id))
        parts.append(count(len(partitions), flexible=flexible))
        parts += [_partition(partition, version) for partition in partitions]
        if flexible:
            parts.append(b"\0")
    if version >= _FIRST_SESSION:
        parts.append(count(len(forgotten), flexible=flexible))
        for topic, numbers in forgotten:
            parts.append(topic_field(topic, flexible=flexible, by_id=by_id))
            parts.append(count(len(numbers), flexible=flexible))
            parts += map(pack_i32, numbers)
            if flexible:
                parts.append(b"\0")
    if version >= _FIRST_RACK:
        parts.append(compact_string(rack) if flexible else string(rack))
    if flexible:
        tags = {} if cluster_id is None else {_CLUSTER_ID: compact_nullable_string(cluster_id)}
        if replica_id != -1 and version >= _FIRST_REPLICA_STATE:
            tags[_REPLICA_STATE_TAG] = _REPLICA_STATE.pack(replica_id, replica_epoch, 0)
        parts.append(tagged_fields(tags))
    return framed(parts)


def _partition(partition: FetchPartition, version: int) -> bytes:
    number, offset, max_bytes, leader_epoch, log_start_offset, last_epoch = partition
    pack = _PARTITIONS[version].pack
    if version >= _FIRST_FLEXIBLE:
        return pack(number, leader_epoch, offset, last_epoch, log_start_offset, max_bytes) + b"\0"
    if version >= _FIRST_LEADER_EPOCH:
        return pack(number, leader_epoch, offset, log_start_offset, max_bytes)
    if version >= _FIRST_LOG_START:
        return pack(number, offset, log_start_offset, max_bytes)
    return pack(number, offset, max_bytes)


def parse_request(frame: bytes) -> FetchRequest:
    """Read a request."""
    header = parse_header(frame)
    check_request(header, API_KEY, VERSIONS)
    try:
        return _parse(frame, header)
    except DAMAGES as error:
        raise WireError(f"no Fetch request v{header.api_version}: {error}") from error


def _parse(frame: bytes, header: RequestHeader) -> FetchRequest:
    version = header.api_version
    at = header.body_at
    replica_id = replica_epoch = session_epoch = -1
    session_id = 0
    if version < _FIRST_REPLICA_STATE:
        (replica_id,) = _REPLICA_ID.unpack_from(frame, at)
        at += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(frame, at)
    at += _LIMITS.size
    if version >= _FIRST_SESSION:
        session_id, session_epoch = _SESSION.unpack_from(frame, at)
        at += _SESSION.size
    topics, at = _read_topics(frame, at, version)
    forgotten: list[ForgottenTopic] = []
    if version >= _FIRST_SESSION:
        forgotten, at = _read_forgotten(frame, at, version)
    rack: str | None = ""
    cluster_id: str | None = None
    if version >= _FIRST_RACK:
        rack, at = read_compact_string(frame, at) if version >= _FIRST_FLEXIBLE else read_string(frame, at)
        if rack is None:
            raise WireError("the rack is null")
    if version >= _FIRST_FLEXIBLE:
        tags, at = read_tagged_fields(frame, at)
        if tags:
            cluster_id, replica_id, replica_epoch = _read_end(tags, version, replica_id)
    check_end(frame, at)
    return FetchRequest(
        header, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, forgotten,
        rack or "", replica_id, replica_epoch, cluster_id,
    )  # fmt: skip


def _read_topics(frame: bytes, at: int, version: int) -> tuple[list[FetchTopic], int]:
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_TOPIC_ID
    topics = []
    topic_count, at = read_count(frame, at, flexible=flexible)
    for _ in range(topic_count):
        topic, at = read_topic(frame, at, flexible=flexible, by_id=by_id)
        partition_count, at = read_count(frame, at, flexible=flexible)
        partitions = []
        for _ in range(partition_count):
            partition, at = _read_partition(frame, at, version)
            partitions.append(partition)
        if flexible:
            at = no_tags(frame, at)
        topics.append(FetchTopic(topic, partitions))
    return topics, at


def _read_partition(frame: bytes, at: int, version: int) -> tuple[FetchPartition, int]:
    form = _PARTITIONS[version]
    leader_epoch = log_start_offset = last_epoch = -1
    end = at + form.size
    if version >= _FIRST_FLEXIBLE:
        number, leader_epoch, offset, last_epoch, log_start_offset, max_bytes = form.unpack_from(frame, at)
        end = no_tags(frame, end)
    elif version >= _FIRST_LEADER_EPOCH:
        number, leader_epoch, offset, log_start_offset, max_bytes = form.unpack_from(frame, at)
    elif version >= _FIRST_LOG_START:
        number, offset, log_start_offset, max_bytes = form.unpack_from(frame, at)
    else:
        number, offset, max_bytes = form.unpack_from(frame, at)
    return FetchPartition(number, offset, max_bytes, leader_epoch, log_start_offset, last_epoch), end


def _read_forgotten(frame: bytes, at: int, version: int) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= _FIRST_FLEXIBLE
    forgotten = []
    topic_count, at = read_count(frame, at, flexible=flexible)
    for _ in range(topic_count):
        topic, at = read_topic(frame, at, flexible=flexible, by_id=version >= _FIRST_TOPIC_ID)
        number_count, at = read_count(frame, at, flexible=flexible)
        numbers: list[int] = []
        for _ in range(number_count):
            numbers += get_i32(frame, at)
            at += 4
        if flexible:
            at = no_tags(frame, at)
        forgotten.append(ForgottenTopic(topic, numbers))
    return forgotten, at


def _read_end(tags: dict[int, bytes], version: int, replica_id: int) -> tuple[str | None, int, int]:
    """Return the cluster id, the replica id and the replica epoch."""
    cluster_id: str | None = None
    replica_epoch = -1
    for tag, field in tags.items():
        if tag == _CLUSTER_ID:
            cluster_id, end = read_compact_string(field, 0)
            check_end(field, end)
        elif tag == _REPLICA_STATE_TAG and version >= _FIRST_REPLICA_STATE:
            replica_id, replica_epoch, no_more = _REPLICA_STATE.unpack(field)
            if no_more:
                raise WireError("tagged fields in the state of a replica")
        else:
            raise WireError(f"unknown tagged field {tag}")
    return cluster_id, replica_id, replica_epoch
