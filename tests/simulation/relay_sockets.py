"""The system calls of a relay, on simulated sockets."""

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.network import End
from tests.support.pipe_sockets import PipeSockets

if TYPE_CHECKING:
    from tests.simulation.process import Process

_BROKEN: Final = (errno.EPIPE, os.strerror(errno.EPIPE))


class SimulatedRelaySockets(PipeSockets):
    """What ``Sockets`` are, for the sockets of one simulated process."""

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._process = process
        self._watched: dict[int, tuple[End, Callable[[], None] | None]] = {}
        self._reader: Callable[[], None] | None = None
        self._is_planned = False

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

    def receive(self, fd: int, most: int) -> bytes | None:
        """Return what has arrived."""
        try:
            data: bytes = self._process.descriptors[fd].recv(most)
        except BlockingIOError:
            return None
        return data

    def send(self, fd: int, data: bytes) -> int:
        """Write as many bytes as the send buffer has room for."""
        socket_end: End = self._process.descriptors[fd].end
        if not socket_end.is_open:
            raise BrokenPipeError(*_BROKEN)
        sent = data[: socket_end.room_bytes]
        socket_end.write(sent)
        return len(sent)

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
