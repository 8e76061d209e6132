"""Sockets of clients that are not served: kept open for a while, so that who is refused does not come back at once."""

import asyncio
import socket
from typing import Final

from kafka_quota_proxy.proxy.background.isolation import repeated

# Each is a file descriptor that a client who is served might want.
MAX_KEPT: Final = 500


class RefusedSockets:
    """The unserved sockets of one listener. In Kafka any number is kept; here the oldest makes room."""

    def __init__(self) -> None:
        self._kept: dict[socket.socket, asyncio.TimerHandle] = {}
        self._is_closed = False
        self.hurried = 0  # closed before their time, for others

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, client: socket.socket, time_ms: int) -> None:
        """Close ``client`` unread when ``time_ms`` have passed, 0: at once; or earlier, when too many are kept."""
        if self._is_closed or not time_ms:
            client.close()
            return
        if len(self._kept) >= MAX_KEPT:
            self.hurried += 1
            self._end(next(iter(self._kept)))
        self._kept[client] = asyncio.get_running_loop().call_later(time_ms / 1_000, self._end, client)

    def close(self) -> None:
        """Close all of them now, and keep no more."""
        self._is_closed = True
        for client in tuple(self._kept):
            self._end(client)

    @repeated
    def _end(self, client: socket.socket) -> None:
        client.close()
        timer = self._kept.pop(client, None)
        if timer is not None:
            timer.cancel()
