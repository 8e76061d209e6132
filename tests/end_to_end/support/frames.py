"""Kafka frames over a blocking socket, for tests that count every byte or send unusual frames.

No code of the product is used, so that tests detect faults of its codec.

A request frame: int32 size, int16 api_key, int16 api_version, int32 correlation_id, nullable string client_id, body.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
API_VERSIONS: Final = 18
# Every broker supports these non-flexible versions. Their responses have a throttle time.
PRODUCE_VERSION: Final = 7
FETCH_VERSION: Final = 4
_NO_BYTES: Final = -1


class ProduceResponse(NamedTuple):
    """The single partition of a Produce v3 to v7 response."""

    error_code: int
    base_offset: int
    throttle_time_ms: int


class FetchResponse(NamedTuple):
    """The single partition of a Fetch v4 response."""

    error_code: int
    high_watermark: int
    records: bytes
    throttle_time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A response: its size on the wire (including the size field of 4 bytes), correlation id and body."""

    size_bytes: int
    correlation_id: int
    body: bytes


def string(text: str | None) -> bytes:
    """Encode a nullable string: int16 length (-1 for null), then UTF-8."""
    if text is None:
        return struct.pack(">h", _NO_BYTES)
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """Build a request frame with header version 1."""
    payload = struct.pack(">hhi", api_key, version, correlation_id) + string(client_id) + body
    return struct.pack(">i", len(payload)) + payload


def record_batch(values: list[bytes]) -> bytes:
    """Build an uncompressed record batch (magic 2) with these values and no keys."""
    size = 200 + sum(len(value) + 40 for value in values)
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=size,
    )  # fmt: skip
    for offset, value in enumerate(values):
        if builder.append(offset, timestamp=None, key=None, value=value, headers=[]) is None:
            raise ValueError(f"{len(values)} records do not fit {size} bytes")
    return bytes(builder.build())


def produce_body(topic: str, batch: bytes, *, acks: int, partition: int = 0, timeout_ms: int = 30_000) -> bytes:
    """Build the body of a Produce v3 to v7 request for one partition."""
    return (
        string(None)
        + struct.pack(">hii", acks, timeout_ms, 1)
        + string(topic)
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )


def fetch_body(
    topic: str,
    *,
    offset: int,
    max_bytes: int,
    partition: int = 0,
    max_wait_ms: int = 500,
) -> bytes:
    """Build the body of a Fetch v4 request for one partition. ``max_bytes`` is the limit of response and partition."""
    return (
        struct.pack(">iiiibi", -1, max_wait_ms, 1, max_bytes, 0, 1)
        + string(topic)
        + struct.pack(">iiqi", 1, partition, offset, max_bytes)
    )


def read_produce(body: bytes) -> ProduceResponse:
    """Parse a Produce v5 to v7 response with one partition."""
    at = 4 + 2 + struct.unpack_from(">h", body, 4)[0] + 4
    _, error_code, base_offset = struct.unpack_from(">ihq", body, at)
    return ProduceResponse(error_code, base_offset, struct.unpack_from(">i", body, len(body) - 4)[0])


def read_fetch(body: bytes) -> FetchResponse:
    """Parse a Fetch v4 response with one partition."""
    (throttle_time_ms,) = struct.unpack_from(">i", body, 0)
    at = 8 + 2 + struct.unpack_from(">h", body, 8)[0] + 4
    _, error_code, high_watermark, _, aborted = struct.unpack_from(">ihqqi", body, at)
    at += 26 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", body, at)
    return FetchResponse(error_code, high_watermark, body[at + 4 : at + 4 + max(size, 0)], throttle_time_ms)


class RawClient:
    """A connection that sends raw frames, and counts the bytes in each direction."""

    def __init__(
        self, port: int, *, client_id: str | None = "raw", host: str = "127.0.0.1", timeout_s: float = 30
    ) -> None:
        """Connect. ``timeout_s`` is the timeout of each read and write."""
        self.client_id = client_id
        self.sent_bytes = 0
        self.received_bytes = 0
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self.socket.sendall(data)
        self.sent_bytes += len(data)

    def send(self, api_key: int, version: int, body: bytes) -> int:
        """Send a request, and return its correlation id without waiting for the response."""
        self._correlation_id += 1
        self.send_bytes(request(api_key, version, self._correlation_id, self.client_id, body))
        return self._correlation_id

    def receive(self) -> Frame:
        """Read one response. Raises EOFError if the peer closed the connection, or TimeoutError."""
        (size,) = struct.unpack(">i", self._exactly(4))
        payload = self._exactly(size)
        return Frame(size_bytes=4 + size, correlation_id=struct.unpack_from(">i", payload)[0], body=bytes(payload[4:]))

    def ask(self, api_key: int, version: int, body: bytes) -> Frame:
        """Send a request, and return its response."""
        expected = self.send(api_key, version, body)
        frame = self.receive()
        if frame.correlation_id != expected:
            raise AssertionError(f"response {frame.correlation_id} came for request {expected}")
        return frame

    def produce(self, topic: str, batch: bytes, *, acks: int = 1, partition: int = 0) -> ProduceResponse:
        """Send a Produce request with one batch, and return its response."""
        body = produce_body(topic, batch, acks=acks, partition=partition)
        return read_produce(self.ask(PRODUCE, PRODUCE_VERSION, body).body)

    def fetch(
        self, topic: str, *, offset: int, max_bytes: int, partition: int = 0, max_wait_ms: int = 500
    ) -> FetchResponse:
        """Send a Fetch request for one partition, and return its response."""
        body = fetch_body(topic, offset=offset, max_bytes=max_bytes, partition=partition, max_wait_ms=max_wait_ms)
        return read_fetch(self.ask(FETCH, FETCH_VERSION, body).body)

    def exchange_token(self, token: bytes) -> bytes:
        """Send a SASL token without a Kafka header (after SaslHandshake v0), and return the broker's token."""
        self.send_bytes(struct.pack(">i", len(token)) + token)
        (size,) = struct.unpack(">i", self._exactly(4))
        return bytes(self._exactly(size))

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Send ApiVersions v0, and return the lowest and the highest version of each API key."""
        body = self.ask(API_VERSIONS, 0, b"").body
        _, count = struct.unpack_from(">hi", body)
        return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])}

    def is_closed_by_peer(self) -> bool:
        """Wait until the peer closes or resets the connection. Raises TimeoutError if it does neither."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
        return True

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        at = 0
        while at < count:
            got = self.socket.recv_into(view[at:])
            if got == 0:
                raise EOFError(f"connection closed by the peer after {at} of {count} bytes")
            at += got
        self.received_bytes += count
        return data


@contextmanager
def raw_client(port: int, *, client_id: str | None = "raw", timeout_s: float = 30) -> Iterator[RawClient]:
    """Open a ``RawClient``, and close it at the end of the ``with`` block."""
    client = RawClient(port, client_id=client_id, timeout_s=timeout_s)
    try:
        yield client
    finally:
        client.close()


def answers(port: int) -> bool:
    """Return whether this port answers ApiVersions within two seconds."""
    try:
        with raw_client(port, timeout_s=2) as client:
            return PRODUCE in client.api_versions()
    except (OSError, EOFError):
        return False
