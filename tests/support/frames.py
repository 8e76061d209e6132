"""Writes frames of Kafka's protocol field by field, for unit tests.

Requests and responses have one topic ``t`` with one partition. A ``size_bytes`` is the size of a whole frame without
the four bytes of its size prefix.
"""

from collections.abc import Mapping
from struct import pack

from tests.simulation.wire import greeting, transfer
from tests.simulation.wire.common import NodeEndpoint

PRODUCE = 0
FETCH = 1
METADATA = 3
SHARE_FETCH = 78


def framed(payload: bytes) -> bytes:
    """Return the payload with its size prefix of four bytes."""
    return pack(">i", len(payload)) + payload


def request_header(api_key: int, version: int, correlation_id: int, client_id: str, *, is_flexible: bool) -> bytes:
    """Return a request header v1, or a request header v2 with an empty tag section if the version is flexible."""
    name = client_id.encode()
    return pack(">hhih", api_key, version, correlation_id, len(name)) + name + (b"\0" if is_flexible else b"")


def produce_request(
    correlation_id: int = 1, *, version: int = 7, client_id: str = "etl", acks: int = 1, size_bytes: int = 400
) -> bytes:
    """Return a Produce request of exactly this size. Zeros take the place of its topics and records."""
    is_flexible = version >= 9
    header = request_header(PRODUCE, version, correlation_id, client_id, is_flexible=is_flexible)
    transactional_id = b"" if version < 3 else b"\0" if is_flexible else b"\xff\xff"
    front = header + transactional_id + pack(">hi", acks, 30_000)
    return framed(front + bytes(size_bytes - len(front)))


def produce_response(correlation_id: int = 1, *, version: int = 7, throttle_time_ms: int = 0) -> bytes:
    """Return the response to ``produce_request``."""
    fixed = (
        pack(">ihq", 0, 0, 42) + (pack(">q", -1) if version >= 2 else b"") + (pack(">q", 0) if version >= 5 else b"")
    )
    if version >= 9:
        topic = bytes(16) if version >= 13 else b"\x02t"
        body = b"\x02" + topic + b"\x02" + fixed + b"\x01\x00\x00" + b"\x00"
        return framed(pack(">i", correlation_id) + b"\0" + body + pack(">i", throttle_time_ms) + b"\0")
    if version >= 8:
        fixed += pack(">ih", 0, -1)
    body = pack(">ih", 1, 1) + b"t" + pack(">i", 1) + fixed
    return framed(pack(">i", correlation_id) + body + (pack(">i", throttle_time_ms) if version >= 1 else b""))


def fetch_request(
    correlation_id: int = 1,
    *,
    version: int = 11,
    client_id: str = "etl",
    max_bytes: int = 50 * 1024 * 1024,
    min_bytes: int = 1,
    replica_id: int = -1,
) -> bytes:
    """Return a Fetch request for partition 0 without a fetch session."""
    is_flexible = version >= 12
    front = pack(">i", replica_id) if version < 15 else b""
    front += pack(">ii", 500, min_bytes) + (pack(">i", max_bytes) if version >= 3 else b"")
    front += (b"\0" if version >= 4 else b"") + (pack(">ii", 0, -1) if version >= 7 else b"")
    partition = pack(">i", 0) + (pack(">i", -1) if version >= 9 else b"") + pack(">q", 0)
    partition += pack(">i", -1) if is_flexible else b""
    partition += (pack(">q", 0) if version >= 5 else b"") + pack(">i", 1024 * 1024)
    if is_flexible:
        topic = (bytes(16) if version >= 13 else b"\x02t") + b"\x02" + partition + b"\0" + b"\0"
        replica_state = pack(">iq", replica_id, 1) + b"\0"
        tags = b"\x01\x01" + bytes([len(replica_state)]) + replica_state if version >= 15 and replica_id >= 0 else b"\0"
        body = front + b"\x02" + topic + b"\x01" + b"\x01" + tags
    else:
        body = front + pack(">ih", 1, 1) + b"t" + pack(">i", 1) + partition
        body += (pack(">i", 0) if version >= 7 else b"") + (pack(">h", 0) if version >= 11 else b"")
    return framed(request_header(FETCH, version, correlation_id, client_id, is_flexible=is_flexible) + body)


def fetch_response(
    correlation_id: int = 1, *, version: int = 11, size_bytes: int = 1_000, throttle_time_ms: int = 0
) -> bytes:
    """Return a Fetch response of exactly this size. Zeros follow the throttle time."""
    front = pack(">i", correlation_id) + (b"\0" if version >= 12 else b"")
    front += pack(">i", throttle_time_ms) if version >= 1 else b""
    return framed(front + bytes(size_bytes - len(front)))


def fetched_batch(correlation_id: int, *, size_bytes: int) -> bytes:
    """Return a Fetch response v11 of exactly this size with one batch. Zeros follow the batch's offset and length."""
    front = pack(">iihiih", correlation_id, 0, 0, 0, 1, 1) + b"t"
    partition = pack(">iihqqqii", 1, 0, 0, 0, 0, 0, 0, -1)
    batch_bytes = size_bytes - len(front + partition) - 4
    return framed(front + partition + pack(">iqi", batch_bytes, 0, batch_bytes - 12) + bytes(batch_bytes - 12))


def share_fetch_request(
    correlation_id: int = 1,
    *,
    version: int = 2,
    client_id: str = "etl",
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 * 1024 * 1024,
    max_records: int = 500,
) -> bytes:
    """Return a ShareFetch request of session epoch 7. It acknowledges records 0 to 9 of partition 0."""
    body = b"\x06group\x07member" + pack(">iiii", 7, max_wait_ms, min_bytes, max_bytes)
    body += (pack(">ii", max_records, 500) if version >= 1 else b"") + (b"\0\0" if version >= 2 else b"")
    batch = pack(">qq", 0, 9) + b"\x02\x01" + b"\0"
    partition = pack(">i", 0) + (pack(">i", max_bytes) if version == 0 else b"") + b"\x02" + batch + b"\0"
    body += b"\x02" + bytes(16) + b"\x02" + partition + b"\0" + b"\x01\0"
    return framed(request_header(SHARE_FETCH, version, correlation_id, client_id, is_flexible=True) + body)


def share_fetch_response(correlation_id: int = 1, *, size_bytes: int = 1_000, throttle_time_ms: int = 0) -> bytes:
    """Return a ShareFetch response of exactly this size. Zeros follow the throttle time."""
    front = pack(">i", correlation_id) + b"\0" + pack(">i", throttle_time_ms)
    return framed(front + bytes(size_bytes - len(front)))


def other_request(
    correlation_id: int = 1, *, api_key: int = METADATA, version: int = 5, client_id: str = "etl"
) -> bytes:
    """Return a request that the proxy does not handle. By default it is a Metadata request for all topics."""
    return framed(
        request_header(api_key, version, correlation_id, client_id, is_flexible=False) + pack(">i?", -1, False)
    )


def other_response(correlation_id: int = 1, *, size_bytes: int = 100) -> bytes:
    """Return the response to ``other_request``. Its body is zeros."""
    return framed(pack(">i", correlation_id) + bytes(size_bytes - 4))


def api_versions_response(correlation_id: int = 1, *, produce_max: int = 99, fetch_max: int = 99) -> bytes:
    """Return an ApiVersions v0 response with the version ranges of Produce, Fetch and Metadata."""
    versions = {PRODUCE: (0, produce_max), FETCH: (4, fetch_max), METADATA: (0, 77)}
    return greeting.api_versions.response(correlation_id, 0, versions)


def metadata_request(correlation_id: int = 1) -> bytes:
    """Return a Metadata v1 request that asks for no topics."""
    return transfer.metadata.request(correlation_id, 1, "etl", [])


def metadata_response(
    brokers: Mapping[int, tuple[str, int]],
    correlation_id: int = 1,
    *,
    api_version: int = 1,
    cluster_id: str | None = None,
) -> bytes:
    """Return the response to ``metadata_request``. ``brokers`` has host and port by node id.

    From version 2 on, the response has the cluster id.
    """
    nodes = [NodeEndpoint(node_id, *address) for node_id, address in brokers.items()]
    return transfer.metadata.response(correlation_id, api_version, nodes, (), -1, cluster_id)


def brokers_in(frame: bytes) -> dict[int, tuple[str, int]]:
    """Return the host and port of each broker in a Metadata v1 response, by node id."""
    return {one.node_id: (one.host, one.port) for one in transfer.metadata.parse_response(frame, 1).brokers}
