"""A TCP relay between clients and a server, which a test can cut. One thread serves all connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 64 * 1024


class Relay:
    """Forwards ports of 127.0.0.1 in a ``with`` block. ``ports`` maps listening ports to target ports."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._servers: list[asyncio.Server] = []
        self._passing: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def mend(self) -> None:
        """Accept connections again after a cut."""
        asyncio.run_coroutine_threadsafe(self._mend(), self._loop).result(10)

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _mend(self) -> None:
        for port, upstream in self._ports.items():
            self._servers.append(await asyncio.start_server(self._passing_to(upstream), "127.0.0.1", port))

    async def _cut(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for passing in list(self._passing):
            passing.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def _passing_to(self, upstream: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._passing.add(task)
            writers = [writer]
            try:
                with suppress(OSError, asyncio.CancelledError):
                    there = await asyncio.open_connection("127.0.0.1", upstream)
                    writers.append(there[1])
                    await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))
            finally:
                for each in writers:
                    each.transport.abort()
                self._passing.discard(task)

        return serve


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
