"""The system calls of a relay, on simulated sockets."""

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES
from tests.simulation.network import End

if TYPE_CHECKING:
    from tests.simulation.process import Process

_BROKEN: Final = (errno.EPIPE, os.strerror(errno.EPIPE))


class SimulatedRelaySockets:
    """What ``Sockets`` are, for the sockets of one simulated process."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._watched: dict[int, tuple[End, Callable[[], None] | None]] = {}
        self._reader: Callable[[], None] | None = None
        self._is_planned = False
        self._buffer = b""
        self._pipe = b""

    def fileno(self) -> "_Readiness":
        """Return what the loop's ``add_reader`` watches."""
        return _Readiness(self)

    def close(self) -> None:
        """Watch no socket any more."""
        for fd in tuple(self._watched):
            self.forget(fd)

    def watch(self, fd: int) -> None:
        """Report from now on when the socket is readable, has ended, or is lost."""
        end: End = self._process.descriptors[fd].end
        self._watched[fd] = end, end.wakes
        end.wakes = self._plan
        self._plan()

    def forget(self, fd: int) -> None:
        """Report nothing of the socket any more."""
        end, wakes = self._watched.pop(fd)
        end.wakes = wakes

    def ready(self) -> list[int]:
        """Return the watched sockets that are readable."""
        return [fd for fd, (end, _) in self._watched.items() if end.is_readable or not end.is_open]

    def read(self, fd: int, most: int) -> int:
        """Read into the buffer. Raises ``OSError`` as the system does."""
        data = self._read(fd, most)
        if data is None:
            return -1
        self._buffer = data
        return len(data)

    def _read(self, fd: int, most: int) -> bytes | None:
        try:
            data: bytes = self._process.descriptors[fd].recv(min(most, BUFFER_BYTES))
        except BlockingIOError:
            return None
        return data

    def part(self, begin: int, end: int) -> bytes:
        """Return a part of the buffer."""
        return self._buffer[begin:end]

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:
        """Write as many bytes as the send buffer has room for. Raises ``OSError`` as the system does."""
        return self._write(fd, self._buffer[begin:end])

    def _write(self, fd: int, data: bytes) -> int:
        socket_end: End = self._process.descriptors[fd].end
        if not socket_end.is_open:
            raise BrokenPipeError(*_BROKEN)
        sent = data[: socket_end.room_bytes]
        socket_end.write(sent)
        return len(sent)

    def splice_in(self, fd: int, most: int) -> int:
        """Read into the pipe. Raises ``OSError`` as the system does."""
        assert not self._pipe, "bytes of one connection are spliced into another"
        data = self._read(fd, most)
        if data is None:
            return -1
        self._pipe = data
        return len(data)

    def splice_out(self, fd: int, count: int) -> int:
        """Write bytes of the pipe. Raises ``OSError`` as the system does."""
        sent = self._write(fd, self._pipe[:count])
        self._pipe = self._pipe[sent:]
        return sent

    def take_spliced(self, count: int) -> bytes:
        """Take the last bytes out of the pipe."""
        assert len(self._pipe) == count, "bytes are left in the pipe"
        taken, self._pipe = self._pipe, b""
        return taken

    def set_reader(self, reader: Callable[[], None] | None) -> None:
        """Call ``reader`` in a turn of the loop whenever a watched socket is readable. None ends it."""
        self._reader = reader
        self._plan()

    def _plan(self) -> None:
        if self._reader is not None and not self._is_planned:
            self._is_planned = True
            self._process.loop.call_soon(self._call_reader)

    def _call_reader(self) -> None:
        self._is_planned = False
        if self._reader is not None and self.ready():
            self._reader()
            if self.ready():
                self._plan()


class _Readiness:
    """Stands for the file descriptor of the relay's epoll."""

    def __init__(self, sockets: SimulatedRelaySockets) -> None:
        self._sockets = sockets

    def watch(self, reader: Callable[[], None] | None) -> None:
        """See ``SimulatedRelaySockets.set_reader``."""
        self._sockets.set_reader(reader)
