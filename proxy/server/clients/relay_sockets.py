"""The system calls of a relay: which sockets are readable, and reads and writes with one buffer.

``native_sockets`` does the same in C, where this program is compiled.
"""

import fcntl
import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

HAS_EPOLL: Final = hasattr(select, "epoll")  # Linux has it
_MOST_READY: Final = 64
BUFFER_BYTES: Final = 256 * 1024
# Each packet takes a page of the pipe, however few bytes it has. So this much has room for BUFFER_BYTES in small ones.
_PIPE_BYTES: Final = 1024 * 1024
_SPLICE_FLAGS: Final = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if HAS_EPOLL else 0


class Sockets(Protocol):
    """Watches sockets by their file descriptors, and reads them into one buffer."""

    def fileno(self) -> int:
        """Return a file descriptor that is readable while a watched socket is."""

    def close(self) -> None:
        """Watch no socket any more."""

    def watch(self, fd: int) -> None:
        """Report from now on when the socket is readable, has ended, or is lost."""

    def forget(self, fd: int) -> None:
        """Report nothing of the socket any more. It may be closed."""

    def ready(self) -> list[int]:
        """Return the watched sockets that are readable, without a wait."""

    def read(self, fd: int, most: int) -> int:
        """Read into the buffer, and return the number of bytes: 0 at the end of the stream, -1 if none are there.

        Raises:
            OSError: The connection is lost.
        """

    def part(self, begin: int, end: int) -> bytes:
        """Return a part of the buffer as an object."""

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:
        """Write a part of the buffer, as far as the system has room for it, and return the number of bytes.

        If the socket ``has_more`` to come soon, the system may wait for that before it sends a short packet.

        Raises:
            OSError: The connection is lost.
        """

    def splice_in(self, fd: int, most: int) -> int:
        """Read into the pipe, which must be empty, and return what ``read`` returns.

        Raises:
            OSError: The connection is lost.
        """

    def splice_out(self, fd: int, count: int) -> int:
        """Write ``count`` bytes of the pipe as ``write`` does, and return how many of them were written.

        Raises:
            OSError: The connection is lost.
        """

    def take_spliced(self, count: int) -> bytes:
        """Take the last ``count`` bytes out of the pipe, which is empty after this."""


class PythonSockets:
    """``Sockets`` by the functions of Python."""

    __slots__ = ("_epoll", "_pipe", "_view")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # where the system allows no larger one, the pipe holds 64 KiB
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def fileno(self) -> int:
        """See ``Sockets``, as for all methods."""
        return self._epoll.fileno()

    def close(self) -> None:  # noqa: D102
        if not self._epoll.closed:
            self._epoll.close()
            for fd in self._pipe:
                os.close(fd)

    def watch(self, fd: int) -> None:  # noqa: D102
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:  # noqa: D102
        with suppress(OSError):  # if the socket is closed, its registration has ended
            self._epoll.unregister(fd)

    def ready(self) -> list[int]:  # noqa: D102
        return [fd for fd, _ in self._epoll.poll(0, _MOST_READY)]

    def read(self, fd: int, most: int) -> int:  # noqa: D102
        try:
            return os.readv(fd, (self._view[:most],))
        except (BlockingIOError, InterruptedError):
            return -1

    def part(self, begin: int, end: int) -> bytes:  # noqa: D102
        return self._view[begin:end].tobytes()

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:  # noqa: D102
        try:
            return os.write(fd, self._view[begin:end])
        except (BlockingIOError, InterruptedError):
            return 0

    def splice_in(self, fd: int, most: int) -> int:  # noqa: D102
        try:
            return os.splice(fd, self._pipe[1], min(most, BUFFER_BYTES), flags=_SPLICE_FLAGS)
        except (BlockingIOError, InterruptedError):
            return -1

    def splice_out(self, fd: int, count: int) -> int:  # noqa: D102
        try:
            return os.splice(self._pipe[0], fd, count, flags=_SPLICE_FLAGS)
        except (BlockingIOError, InterruptedError):
            return 0

    def take_spliced(self, count: int) -> bytes:  # noqa: D102
        return os.read(self._pipe[0], count)


def make_sockets() -> Sockets:
    """Return the sockets in C if they are built, else those in Python."""
    try:
        from kafka_quota_proxy.proxy.server.clients.native_sockets import NativeSockets
    except ImportError:
        return PythonSockets()
    make: Callable[[], Sockets] = NativeSockets
    return make()
