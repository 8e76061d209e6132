"""Produce and Fetch frames of the synthetic load.

Produce v9 and Fetch v12 are the first flexible versions. Clients of Kafka 3.9 use Produce v11 and Fetch v17, with
responses that may contain broker addresses (KIP-951). Records are zeros, because no proxy reads them.
"""

import struct
from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
NEW_PRODUCE_VERSION: Final = 11
NEW_FETCH_VERSION: Final = 17
TOPIC_ID: Final = bytes(range(16))
TOPIC: Final = b"bench"
# int32 length, int16 api_key, int16 api_version, int32 correlation_id
HEAD: Final = struct.Struct(">ihhi")
NO_TAGS: Final = b"\0"


def unsigned_varint(value: int) -> bytes:
    """Encode a non-negative integer with seven bits a byte, the least significant first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(data: bytes) -> bytes:
    """Put the length + 1 before bytes, as in a compact string and in compact bytes."""
    return unsigned_varint(len(data) + 1) + data


def request(api_key: int, api_version: int, client_id: bytes, body: bytes) -> bytes:
    """Build a request frame: header v2 (client-id with an int16 length, tags), correlation id 0."""
    rest = struct.pack(">h", len(client_id)) + client_id + NO_TAGS + body
    return HEAD.pack(8 + len(rest), api_key, api_version, 0) + rest


def response(body: bytes) -> bytes:
    """Build a response frame: int32 length, int32 correlation_id 0, no tags (header v1), body."""
    return struct.pack(">ii", 5 + len(body), 0) + NO_TAGS + body


def produce_frame(
    client_id: bytes, records: bytes, *, topic: bytes = TOPIC, acks: int = 1, version: int = PRODUCE_VERSION
) -> bytes:
    """Build a Produce v9 to v11 request with one batch for partition 0."""
    partition = struct.pack(">i", 0) + compact(records) + NO_TAGS
    topics = unsigned_varint(2) + compact(topic) + unsigned_varint(2) + partition + NO_TAGS
    body = b"\0" + struct.pack(">hi", acks, 30_000) + topics + NO_TAGS
    return request(PRODUCE, version, client_id, body)


def produce_request(client_id: bytes, frame_size_bytes: int, *, version: int = PRODUCE_VERSION) -> bytes:
    """Build a Produce v9 to v11 request of about this many bytes, but never more."""
    overhead = len(produce_frame(client_id, b"")) + 3  # the records' varint grows by up to three bytes
    return produce_frame(client_id, bytes(max(0, frame_size_bytes - overhead)), version=version)


def produce_response() -> bytes:
    """Build a Produce v9 to v11 response without an error, with throttle_time_ms 0."""
    # index, error_code, base_offset, log_append_time_ms, log_start_offset, no record errors, no message
    partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\1\0" + NO_TAGS
    topics = unsigned_varint(2) + compact(TOPIC) + unsigned_varint(2) + partition + NO_TAGS
    return response(topics + struct.pack(">i", 0) + NO_TAGS)


def fetch_request(client_id: bytes, response_size_bytes: int, *, version: int = FETCH_VERSION) -> bytes:
    """Build a consumer's Fetch v12 or v17 without a session. ``max_bytes`` is the size of the response."""
    # partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, response_size_bytes) + NO_TAGS
    topics = unsigned_varint(2) + _fetched_topic(version) + unsigned_varint(2) + partition + NO_TAGS
    replica_id = struct.pack(">i", -1) if version < 15 else b""
    # max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch
    head = replica_id + struct.pack(">iiibii", 500, 1, response_size_bytes, 0, 0, -1)
    return request(FETCH, version, client_id, head + topics + b"\1" + compact(b"") + NO_TAGS)


def fetch_max_bytes_offset(version: int) -> int:
    """Return the offset of max_bytes in the body, after replica_id, max_wait_ms and min_bytes."""
    return 12 if version < 15 else 8


def _fetched_topic(version: int) -> bytes:
    return compact(TOPIC) if version < 13 else TOPIC_ID


def fetch_frame(records: bytes, *, version: int = FETCH_VERSION) -> bytes:
    """Build a Fetch v12 or v17 response with one partition."""
    # index, error_code, high_watermark, last_stable_offset, log_start_offset, no aborted, preferred_read_replica
    partition = struct.pack(">ihqqq", 0, 0, 1, 1, 0) + b"\0" + struct.pack(">i", -1) + compact(records) + NO_TAGS
    topics = unsigned_varint(2) + _fetched_topic(version) + unsigned_varint(2) + partition + NO_TAGS
    return response(struct.pack(">ihi", 0, 0, 0) + topics + NO_TAGS)


def fetch_response(frame_size_bytes: int, *, version: int = FETCH_VERSION) -> bytes:
    """Build a Fetch v12 or v17 response of about this many bytes, but never more."""
    overhead = len(fetch_frame(b"", version=version)) + 3
    return fetch_frame(bytes(max(0, frame_size_bytes - overhead)), version=version)


def metadata_response(host: bytes, port: int) -> bytes:
    """Build the Metadata v1 response of a cluster with one broker (node id 0) and without topics."""
    broker = struct.pack(">ih", 0, len(host)) + host + struct.pack(">ih", port, -1)
    body = struct.pack(">ii", 0, 1) + broker + struct.pack(">ii", 0, 0)
    return struct.pack(">i", len(body)) + body
