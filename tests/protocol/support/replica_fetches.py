"""Reads and writes a follower's Fetch frames among other bytes, and with unknown tags."""

from struct import pack
from typing import Final

from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch, read_request, write_request
from kafka_quota_proxy.protocol.replica_fetch.response import ReplicaResponse, read_response
from tests.protocol.support.fetches import FETCH, codecs
from tests.protocol.support.kio_messages import framed

LIMIT: Final = 100 * 1024 * 1024
BEFORE, BEHIND = b"before", b"\xff\xff\x02behind"
REQUESTS, RESPONSES = codecs("request"), codecs("response")
MANY: Final = b"\xff\xff\xff\xff\x0f"
TOPIC: Final = b"\x02" + bytes(16)
UNKNOWN_TAGS: Final = b"\x02\x05\x03abc\xc8\x01\x00"
TAGGED_TOPICS: Final = ((b"a", UNKNOWN_TAGS), (b"b", b"\x00"), (b"c", b"\x01\x00\x01?"))


def body_of(frame: bytes) -> int:
    head = read_request_head(frame, 0, LIMIT)
    assert isinstance(head, RequestHead)
    return head.body


def read_whole_request(frame: bytes, version: int) -> tuple[bytes, ReplicaFetch]:
    """Read a request among other bytes. Return all bytes and the request."""
    data = BEFORE + frame + BEHIND
    request = read_request(data, len(BEFORE), len(BEFORE) + body_of(frame), version)
    assert (request.position, request.end) == (len(BEFORE), len(BEFORE) + len(frame))
    return data, request


def read_whole_response(frame: bytes, version: int) -> tuple[bytes, ReplicaResponse]:
    """Read a response among other bytes. Return all bytes and the response."""
    data = BEFORE + frame + BEHIND
    response = read_response(data, len(BEFORE), len(frame), version)
    assert response.end == len(BEFORE) + len(frame)
    return data, response


def unchanged(data: bytes, request: ReplicaFetch) -> bytes:
    """Write a request with the values that were read."""
    return write_request(
        data,
        request,
        [(partition, partition.max_bytes) for partition in request.partitions],
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
    )


def tagged_request(version: int, *, forgotten: bool) -> bytes:
    """Return a request (v12 or later) with unknown tags in each tag section."""
    replica_id = b"" if version >= 15 else pack(">i", 2)
    topic = (bytes(15) + b"%c", 16) if version >= 13 else (b"\x02%c", 2)
    entry = pack(">iiqiqi", 4, 5, 6, 7, 8, 9)
    topics = b"".join(topic[0] % name + b"\x03" + (entry + UNKNOWN_TAGS) * 2 + tags for name, tags in TAGGED_TOPICS)
    forgotten_topics = b"\x02" + topic[0] % b"f" + b"\x03" + bytes(8) + UNKNOWN_TAGS if forgotten else b"\x01"
    state = b"\x01\x0d" + pack(">iqB", 2, 3, 0) if version >= 15 else b"\x01\x00"
    tags = b"\x03" + b"\x00\x03\x03id" + state + b"\x09\x01x"
    header = pack(">hhih", FETCH, version, 7, 3) + b"etl" + UNKNOWN_TAGS
    front = replica_id + pack(">iiibii", 500, 1, 1_000, 0, 0, -1)
    return framed(header + front + b"\x04" + topics + forgotten_topics + b"\x05rack" + tags)
