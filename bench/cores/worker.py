"""A worker: ``python -m bench.cores.worker LIBRARY FILE NUMBER PORT BROKER_PORT``.

It shares its port with the other workers (``SO_REUSEPORT``), and its bucket through the file. It charges Produce
requests when the broker answers them, as Kafka does. While the bucket is over its limit, requests wait in one line.
"""

import asyncio
import struct
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from bench.cores.extension import loaded
from bench.frames import PRODUCE

if TYPE_CHECKING:
    from bench.cores.shared_buckets import Buckets

BUFFER_SIZE_BYTES = 1 << 20
HOST = "127.0.0.1"
_INT32 = struct.Struct(">i")
_THROTTLE_AT = -5  # throttle_time_ms of a Produce response v9 to v11, before the last tags


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read one request or response, and return it without its length."""
    return await reader.readexactly(_INT32.unpack(await reader.readexactly(4))[0])


class Worker:
    """Serves the connections of one worker process."""

    def __init__(self, buckets: "Buckets", broker_port: int) -> None:
        self._buckets = buckets
        self._broker_port = broker_port
        self._line = asyncio.Lock()  # requests get it in the order in which they ask

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward requests and responses of one client until one side closes."""
        broker_reader, broker_writer = await asyncio.open_connection(HOST, self._broker_port, limit=BUFFER_SIZE_BYTES)
        client = Client(self._buckets, self._line)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client.forward_requests(reader, broker_writer))
                tasks.create_task(client.forward_responses(broker_reader, writer))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            client.settle()
            broker_writer.close()
            writer.close()


class Client:
    """One client's connection."""

    def __init__(self, buckets: "Buckets", line: asyncio.Lock) -> None:
        self._buckets = buckets
        self._line = line
        self._sent: deque[int] = deque()  # the bytes to charge for each unanswered request, or -1
        self._muted_until = 0.0

    async def forward_requests(self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter) -> None:
        """Forward each request when the connection is not muted and the bucket has room."""
        while True:
            frame = await read_frame(reader)
            is_produce = frame[:2] == PRODUCE.to_bytes(2)
            if is_produce:
                await asyncio.sleep(self._muted_until - asyncio.get_running_loop().time())
                async with self._line:
                    while wait_ms := self._buckets.admit(0, len(frame)):  # noqa: ASYNC110 - of other processes
                        await asyncio.sleep(wait_ms / 1_000)
            self._sent.append(len(frame) if is_produce else -1)
            broker.writelines((_INT32.pack(len(frame)), frame))
            await broker.drain()

    async def forward_responses(self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Charge the request that each response answers, and mute the connection for the throttle time."""
        while True:
            frame = bytearray(await read_frame(broker))
            amount = self._sent.popleft()
            if amount >= 0:
                throttle_ms = self._buckets.charge(0, amount, reserved=amount)
                _INT32.pack_into(frame, len(frame) + _THROTTLE_AT, throttle_ms)
                self._muted_until = asyncio.get_running_loop().time() + throttle_ms / 1_000
            writer.writelines((_INT32.pack(len(frame)), frame))
            await writer.drain()

    def settle(self) -> None:
        """Charge the requests that the broker got and has not answered."""
        for amount in self._sent:
            if amount >= 0:
                self._buckets.charge(0, amount, reserved=amount)


async def main(library: str, file: str, number: str, port: str, broker_port: str) -> None:
    buckets = loaded(Path(library))(file)
    buckets.join(int(number))
    worker = Worker(buckets, int(broker_port))
    server = await asyncio.start_server(worker.serve, HOST, int(port), reuse_port=True, limit=BUFFER_SIZE_BYTES)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
