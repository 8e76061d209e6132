"""Keeps the sockets of refused clients open for a while, so that a refused client does not reconnect at once."""

import asyncio
import socket
from typing import Final

from kafka_quota_proxy.proxy.runtime.isolation import repeated

# Each socket holds a file descriptor that a served client might need.
MAX_KEPT: Final = 500


class RefusedSockets:
    """Keeps the sockets of one listener's refused clients open for a time. It keeps at most ``MAX_KEPT`` sockets.

    ``hurried`` counts the sockets that were closed before their time was over, to make room for newer ones.
    """

    def __init__(self) -> None:
        self._kept: dict[socket.socket, asyncio.TimerHandle] = {}
        self._is_closed = False
        self.hurried = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, client: socket.socket, time_ms: int) -> None:
        """Close the socket ``client`` after ``time_ms``, or earlier if too many sockets are kept."""
        if self._is_closed or not time_ms:
            client.close()
            return
        if len(self._kept) >= MAX_KEPT:
            self.hurried += 1
            self._end(next(iter(self._kept)))
        self._kept[client] = asyncio.get_running_loop().call_later(time_ms / 1_000, self._end, client)

    def close(self) -> None:
        """Close all refused sockets now, and keep no more."""
        self._is_closed = True
        for client in tuple(self._kept):
            self._end(client)

    @repeated
    def _end(self, client: socket.socket) -> None:
        client.close()
        timer = self._kept.pop(client, None)
        if timer is not None:
            timer.cancel()
