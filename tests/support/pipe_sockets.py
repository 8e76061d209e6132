"""The system calls of a relay that have a buffer and a pipe, on sockets that are not the system's."""

from abc import ABC, abstractmethod

from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES


class PipeSockets(ABC):
    """What ``Sockets`` are, but what they watch. Subclasses read and write a socket by its descriptor.

    Each method raises ``OSError`` as the system does.
    """

    pipe_bytes = BUFFER_BYTES  # the most that is spliced at once

    def __init__(self) -> None:
        self._buffer = self._pipe = b""

    @abstractmethod
    def receive(self, fd: int, most: int) -> bytes | None:
        """Return bytes that have arrived, b"" at the end of the stream, or None if none are there."""

    @abstractmethod
    def send(self, fd: int, data: bytes) -> int:
        """Write as many bytes as there is room for, and return their number."""

    def read(self, fd: int, most: int) -> int:
        """Read into the buffer, and return the number of bytes, or -1 if none are there."""
        data = self.receive(fd, min(most, BUFFER_BYTES))
        self._buffer = self._buffer if data is None else data
        return -1 if data is None else len(data)

    def part(self, begin: int, end: int) -> bytes:
        """Return a part of the buffer."""
        assert 0 <= begin <= end <= len(self._buffer)
        return self._buffer[begin:end]

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:
        """Write a part of the buffer."""
        return self.send(fd, self.part(begin, end))

    def splice_in(self, fd: int, most: int) -> int:
        """Read into the pipe."""
        assert not self._pipe, "bytes of one connection are spliced into another"
        data = self.receive(fd, min(most, self.pipe_bytes))
        self._pipe = data or b""
        return -1 if data is None else len(data)

    def splice_out(self, fd: int, count: int) -> int:
        """Write bytes of the pipe."""
        sent = self.send(fd, self._pipe[:count])
        self._pipe = self._pipe[sent:]
        return sent

    def take_spliced(self, count: int) -> bytes:
        """Take the last bytes out of the pipe."""
        assert len(self._pipe) == count, "the pipe has other bytes"
        taken, self._pipe = self._pipe, b""
        return taken
