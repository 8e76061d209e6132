"""Relays connections to librdkafka's mock cluster, and corrects faults of the mock on the way.

* No client can read the mock's response to ApiVersions v3 and later. The relay sends the mock a request of v0 instead,
  and converts the response to the version that the client has requested.
* The mock responds to Produce with acks=0, but Apache Kafka does not. The relay drops the response.
* The mock ends a transaction by a batch without a checksum, which most clients refuse to read. The relay adds it.
* The mock has no admin requests. ``mock_admin`` answers them. Responses have to come in the order of the requests, so
  the mock gets a request, too, and the answer takes the place of its response.
* The mock rebalances groups slowly. ``mock_groups`` changes the requests.

``Repairs`` decides what to change, without I/O, and ``serve`` does the I/O. A frame is a request or response without
the int32 length before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Final

from aiokafka.protocol.types import CompactString, Int16, String, TaggedFields, UnsignedVarInt32
from aiokafka.record.util import calc_crc32c

from kafka_quota_proxy.proxy.cli.demo.mock_admin import MockAdmin
from kafka_quota_proxy.proxy.cli.demo.mock_groups import MockGroups

_PRODUCE: Final = 0
_FETCH: Final = 1
_API_VERSIONS: Final = 18
_NEWEST_API_VERSIONS: Final = 4  # Kafka 3.9; same layout as v3
_UNSUPPORTED_VERSION: Final = 35
# Compact strings and tagged fields (KIP-482) begin here.
_FLEXIBLE_API_VERSIONS: Final = 3
_FLEXIBLE_PRODUCE: Final = 9
# In a batch: int8 magic, uint32 crc, and int16 attributes, which say that it is transactional and a control batch.
_WITHOUT_CHECKSUM: Final = struct.pack(">bIh", 2, 0, 0b110000)
_BEFORE_MAGIC_BYTES: Final = 16
_CONTROL_BATCH_BYTES: Final = 66  # the mock's, without the first two fields
# Large enough for a batch in one read, small enough for a laptop.
_STREAM_LIMIT_BYTES: Final = 1 << 20
_MAX_FRAME_BYTES: Final = 104_857_600  # Kafka's socket.request.max.bytes


class Repairs:
    """Corrects the requests and responses of one connection between a client and librdkafka's mock broker.

    The methods raise struct.error or ValueError if a request or response ends too early.
    """

    def __init__(self, admin: MockAdmin | None = None, groups: MockGroups | None = None) -> None:
        self._admin = admin
        self._groups = groups
        self._repairs: dict[int, Callable[[bytes], bytes | None]] = {}

    def request(self, frame: bytes) -> bytes:
        """Return the request to send to the mock broker in place of the client's request ``frame``.

        A request consists of int16 api_key, int16 api_version, int32 correlation_id and the rest.
        """
        api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
        if api_key == _API_VERSIONS:
            versions = {} if self._admin is None else self._admin.versions
            is_known = api_version <= _NEWEST_API_VERSIONS
            self._repairs[correlation_id] = lambda response: (
                api_versions_response(response, api_version, versions) if is_known else _unsupported_version(response)
            )
            return api_versions_request_v0(correlation_id)
        answer = None if self._admin is None else self._admin.answer(frame)
        if answer is None and self._groups is not None and (changed := self._groups.request(frame)) is not None:
            if isinstance(changed, tuple):
                frame, self._repairs[correlation_id] = changed
                return frame
            answer = changed
        if answer is not None:
            self._repairs[correlation_id] = lambda _: answer
            return api_versions_request_v0(correlation_id)
        if api_key == _FETCH:
            self._repairs[correlation_id] = with_checksums
        if api_key == _PRODUCE and produce_acks(frame) == 0:
            self._repairs[correlation_id] = _drop
        return frame

    def response(self, frame: bytes) -> bytes | None:
        """Return the response to send to the client in place of ``frame``. Return None if nothing is to be sent."""
        (correlation_id,) = struct.unpack_from(">i", frame)
        repair = self._repairs.pop(correlation_id, None)
        return frame if repair is None else repair(frame)


def api_versions_request_v0(correlation_id: int) -> bytes:
    """Return an ApiVersions request v0. It consists of a request header v1 with a null client_id, and has no body."""
    return struct.pack(">hhih", _API_VERSIONS, 0, correlation_id, -1)


def api_versions_response(frame: bytes, version: int, added: Mapping[int, tuple[int, int]]) -> bytes:
    """Convert the frame of an ApiVersions response from v0 to ``version``, and add APIs with their version ranges.

    v0 consists of int32 correlation_id, int16 error_code, int32 count and, for each API, int16 api_key, int16
    min_version and int16 max_version. From v1 on, the last API is followed by int32 throttle_time_ms. From v3 on, the
    count is a uvarint of the number of APIs plus 1, and each API and the whole response end with tagged fields (a 0
    byte if empty).
    """
    (count,) = struct.unpack_from(">i", frame, 6)
    apis = [struct.unpack_from(">hhh", frame, 10 + 6 * index) for index in range(count)]
    apis = [(key, oldest, _NEWEST_API_VERSIONS if key == _API_VERSIONS else newest) for key, oldest, newest in apis]
    apis += [(key, *versions) for key, versions in added.items()]
    end = b"\0" if version >= _FLEXIBLE_API_VERSIONS else b""
    length = UnsignedVarInt32.encode(len(apis) + 1) if end else struct.pack(">i", len(apis))
    throttle_time = struct.pack(">i", 0) if version >= 1 else b""
    return frame[:6] + length + b"".join(struct.pack(">hhh", *api) + end for api in apis) + throttle_time + end


def _unsupported_version(frame: bytes) -> bytes:
    # Apache Kafka answers an unknown version as v0, so that any client can read the response (KIP-511).
    return frame[:4] + struct.pack(">h", _UNSUPPORTED_VERSION) + frame[6:]


def _drop(_: bytes) -> None:
    return None


def produce_acks(frame: bytes) -> int:
    """Return the field ``acks`` of a Produce request of any version.

    The request begins with int16 api_key, int16 api_version, int32 correlation_id, nullable string client_id, (v9+:
    tagged fields), (v3+: nullable string transactional_id, compact from v9 on), int16 acks.
    """
    (api_version,) = struct.unpack_from(">h", frame, 2)
    fields = BytesIO(frame)
    fields.seek(8)
    String("utf-8").decode(fields)
    if api_version >= _FLEXIBLE_PRODUCE:
        TaggedFields.decode(fields)
        CompactString("utf-8").decode(fields)
    elif api_version >= 3:
        String("utf-8").decode(fields)
    acks: int = Int16.decode(fields)
    return acks


def with_checksums(frame: bytes) -> bytes:
    """Return a Fetch response in which the control batches that have no checksum have one.

    A batch consists of int64 base_offset, int32 length, int32 leader_epoch, int8 magic, uint32 crc, and the rest, over
    which the crc is computed. The length does not include the first two fields.
    """
    repaired = bytearray(frame)
    magic = frame.find(_WITHOUT_CHECKSUM, _BEFORE_MAGIC_BYTES)
    while magic != -1:
        if struct.unpack_from(">i", frame, magic - 8)[0] == _CONTROL_BATCH_BYTES:
            rest = frame[magic + 5 : magic - 4 + _CONTROL_BATCH_BYTES]
            struct.pack_into(">I", repaired, magic + 1, calc_crc32c(rest))
        magic = frame.find(_WITHOUT_CHECKSUM, magic + 1)
    return bytes(repaired)


async def serve(
    *, mock_port: int, port: int = 0, admin: MockAdmin | None = None, groups: MockGroups | None = None
) -> asyncio.Server:
    """Listen on a loopback port, by default any free one, and relay each connection to the broker at ``mock_port``."""
    # asyncio keeps only weak references to tasks. Without this set the task of a closed client could be collected.
    relays: set[asyncio.Task[None] | None] = set()

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.add(relay := asyncio.current_task())
        try:
            # The writer is closed here, too, because a task that is cancelled early has not started its pumps yet.
            with contextlib.suppress(asyncio.CancelledError, OSError), contextlib.closing(writer):
                await _relay(reader, writer, mock_port, Repairs(admin, groups))
        finally:
            relays.discard(relay)

    return await asyncio.start_server(on_client, "127.0.0.1", port, limit=_STREAM_LIMIT_BYTES)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mock_port: int, repairs: Repairs) -> None:
    mock_reader, mock_writer = await asyncio.open_connection("127.0.0.1", mock_port, limit=_STREAM_LIMIT_BYTES)
    # When one side ends, its pump ends the stream to the other side. The other side then ends, too, and so does the
    # other pump.
    with contextlib.closing(mock_writer):
        await asyncio.gather(
            # This ends only the sending half. A mock that answers into a closed connection is reset, and drops what it
            # has not read yet, such as Produce requests with acks=0 from a client that has left.
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
    except (asyncio.IncompleteReadError, ConnectionError, struct.error, ValueError):
        return
    finally:
        end()
