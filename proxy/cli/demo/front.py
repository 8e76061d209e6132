"""A relay in front of the mock cluster that repairs its faults on the wire.

* ApiVersions v3 and later: no client can read the mock's response. The relay asks for v0 and rewrites the response.
* Produce with acks=0: the mock sends a response, which Apache Kafka does not. The relay drops it.

``Repairs`` decides, without I/O; ``serve`` moves frames. Frames here are without their int32 length.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from enum import Enum
from typing import Final

_PRODUCE: Final = 0
_API_VERSIONS: Final = 18
_NEWEST_API_VERSIONS: Final = 4  # Kafka 3.9; same layout as v3
_UNSUPPORTED_VERSION: Final = 35
# Compact strings and tagged fields (KIP-482) begin here.
_FLEXIBLE_API_VERSIONS: Final = 3
_FLEXIBLE_PRODUCE: Final = 9
# Large enough for a batch in one read, small enough for a laptop.
_STREAM_LIMIT_BYTES: Final = 1 << 20
_MAX_FRAME_BYTES: Final = 104_857_600  # Kafka's socket.request.max.bytes


class _Answer(Enum):
    DROP = "drop"
    FLEXIBLE_API_VERSIONS = "flexible ApiVersions"
    UNSUPPORTED_API_VERSIONS = "ApiVersions error"


class Repairs:
    """The repairs of one connection: the responses to change, by correlation id."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[int, _Answer] = {}

    def request(self, frame: bytes) -> bytes:
        """Return the request for the mock, from int16 api_key, int16 api_version, int32 correlation_id and the rest.

        Raises:
            struct.error, IndexError: The frame ends too early.
        """
        api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
        if api_key == _API_VERSIONS and api_version >= _FLEXIBLE_API_VERSIONS:
            known = api_version <= _NEWEST_API_VERSIONS
            self._due[correlation_id] = _Answer.FLEXIBLE_API_VERSIONS if known else _Answer.UNSUPPORTED_API_VERSIONS
            return api_versions_request_v0(correlation_id)
        if api_key == _PRODUCE and produce_acks(frame) == 0:
            self._due[correlation_id] = _Answer.DROP
        return frame

    def response(self, frame: bytes) -> bytes | None:
        """Return the response for the client, or ``None`` to drop it.

        Raises:
            struct.error: The frame ends too early.
        """
        (correlation_id,) = struct.unpack_from(">i", frame)
        match self._due.pop(correlation_id, None):
            case _Answer.DROP:
                return None
            case _Answer.FLEXIBLE_API_VERSIONS:
                return flexible_api_versions_response(frame)
            case _Answer.UNSUPPORTED_API_VERSIONS:
                # Apache Kafka answers a version that it does not know as v0, so that any client can read it (KIP-511).
                return frame[:4] + struct.pack(">h", _UNSUPPORTED_VERSION) + frame[6:]
            case None:
                return frame


def api_versions_request_v0(correlation_id: int) -> bytes:
    """Return a request header v1 with a null client_id; ApiVersions v0 has no body."""
    return struct.pack(">hhih", _API_VERSIONS, 0, correlation_id, -1)


def flexible_api_versions_response(frame: bytes) -> bytes:
    """Return an ApiVersions answer of v0 as v3 or v4, with a response header v0 as in each version.

    v0: int32 correlation_id, int16 error_code, int32 count, then int16 api_key, min, max each. v3: the count is a
    uvarint one too large, each entry and the whole end in tagged fields (none: a 0), int32 throttle_time_ms comes last.

    Raises:
        struct.error: The frame ends too early.
    """
    (count,) = struct.unpack_from(">i", frame, 6)
    out = bytearray(frame[:6]) + _uvarint(count + 1)
    for index in range(count):
        api_key, oldest, newest = struct.unpack_from(">hhh", frame, 10 + 6 * index)
        newest = _NEWEST_API_VERSIONS if api_key == _API_VERSIONS else newest
        out += struct.pack(">hhhB", api_key, oldest, newest, 0)
    return bytes(out + struct.pack(">iB", 0, 0))


def produce_acks(frame: bytes) -> int:
    """Return the acks of a Produce request of any version.

    int16 api_key, int16 api_version, int32 correlation_id, nullable string client_id, (v9+: tagged fields),
    (v3+: nullable string transactional_id, compact from v9 on), int16 acks.

    Raises:
        struct.error, IndexError: The frame ends too early.
    """
    (api_version, client_id_bytes) = struct.unpack_from(">h4xh", frame, 2)
    position = 10 + max(client_id_bytes, 0)
    if api_version >= _FLEXIBLE_PRODUCE:
        tags, position = _read_uvarint(frame, position)
        for _ in range(tags):
            _, position = _read_uvarint(frame, position)
            size, position = _read_uvarint(frame, position)
            position += size
        size_plus_one, position = _read_uvarint(frame, position)
        position += max(size_plus_one - 1, 0)
    elif api_version >= 3:
        (size,) = struct.unpack_from(">h", frame, position)
        position += 2 + max(size, 0)
    acks: int = struct.unpack_from(">h", frame, position)[0]
    return acks


def _read_uvarint(frame: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


async def serve(*, mock_port: int) -> asyncio.Server:
    """Listen on a free port of loopback and relay each connection to the mock."""
    # asyncio keeps only weak references to tasks: without this set, those of a closed client would be collected.
    relays: set[asyncio.Task[None] | None] = set()

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.add(relay := asyncio.current_task())
        try:
            # Closed here too: a client that is cancelled early has no pumps yet.
            with contextlib.suppress(asyncio.CancelledError, OSError), contextlib.closing(writer):
                await _relay(reader, writer, mock_port)
        finally:
            relays.discard(relay)

    return await asyncio.start_server(on_client, "127.0.0.1", 0, limit=_STREAM_LIMIT_BYTES)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mock_port: int) -> None:
    repairs = Repairs()
    mock_reader, mock_writer = await asyncio.open_connection("127.0.0.1", mock_port, limit=_STREAM_LIMIT_BYTES)
    # Either side's end is the other's: each pump ends what it writes to, which ends the other pump's reads.
    with contextlib.closing(mock_writer):
        await asyncio.gather(
            # Only the sending half: the mock is reset if it answers into a closed connection, and drops what it has
            # not read yet, such as Produce requests with acks=0 of a client that has left.
            _pump(reader, mock_writer, repairs.request, end=lambda: _end_of_requests(mock_writer)),
            _pump(mock_reader, writer, repairs.response, end=writer.close),
        )


def _end_of_requests(mock_writer: asyncio.StreamWriter) -> None:
    if not mock_writer.is_closing():
        mock_writer.write_eof()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    repair: Callable[[bytes], bytes | None],
    *,
    end: Callable[[], None],
) -> None:
    try:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 0 <= size <= _MAX_FRAME_BYTES:
                return
            frame = repair(await reader.readexactly(size))
            if frame is not None:
                writer.writelines((struct.pack(">i", len(frame)), frame))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, struct.error, IndexError):
        return
    finally:
        end()
