"""Keeps track of the memory that closed transports hold until their peers have read what was written."""

import asyncio


class ClosingTransports:
    """The transports of one listener that are closed, and still have bytes to write."""

    __slots__ = ("_kept_bytes",)

    def __init__(self) -> None:
        self._kept_bytes: dict[asyncio.Transport, int] = {}

    def close(self, transport: asyncio.Transport, *, kept_bytes: int = 0) -> None:
        """Close a transport after writing its buffer. Until then, its protocol keeps ``kept_bytes`` in memory."""
        transport.close()
        if transport.get_write_buffer_size():
            self._kept_bytes[transport] = kept_bytes

    def holders(self) -> list[tuple[int, asyncio.Transport]]:
        """Return each transport that still has bytes to write, after the number of bytes that it holds in memory."""
        held: list[tuple[int, asyncio.Transport]] = []
        for transport, kept_bytes in tuple(self._kept_bytes.items()):
            size_bytes = transport.get_write_buffer_size()
            if size_bytes:
                held.append((size_bytes + kept_bytes, transport))
            else:
                del self._kept_bytes[transport]
        return held
