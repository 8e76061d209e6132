"""Lets a thread read a request and write its response, and measures how long the client lets it wait."""

import io
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class RequestSocket(io.RawIOBase):
    """The socket of a request, of which the event loop has received the beginning (``head``) already."""

    def __init__(self, head: bytes, connection: socket.socket, clock_s: Callable[[], float] = monotonic) -> None:
        self._head = io.BytesIO(head)
        self._connection = connection
        self._clock_s = clock_s
        self._waited_s = 0.0
        self._since_s: float | None = None

    def waiting_s(self) -> float:
        """Return how long the thread has waited for the client in all, or 0 if it does not wait for it now.

        May be called from any thread. The time is a sum, because a slow client may send or take a byte now and then.
        """
        since_s = self._since_s
        return 0.0 if since_s is None else self._waited_s + self._clock_s() - since_s

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read from the beginning of the request, and then from the socket. Raises OSError."""
        read = self._head.readinto(buffer)
        if read:
            return read
        with self._waiting():
            return self._connection.recv_into(buffer)

    def write(self, data: "ReadableBuffer") -> int:
        """Write as much as the socket takes, and return the number of bytes. Raises OSError."""
        with self._waiting():
            return self._connection.send(data)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        begun_s = self._since_s = self._clock_s()
        try:
            yield
        finally:
            self._since_s = None
            self._waited_s += self._clock_s() - begun_s
