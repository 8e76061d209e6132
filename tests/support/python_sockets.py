"""The system calls of a relay by the functions of Python, as ``native_sockets`` makes them in C."""

import fcntl
import os
import select
from contextlib import suppress
from typing import Final

from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES

_MOST_READY: Final = 64
# Each packet takes a page of the pipe, however few bytes it has. So this much has room for BUFFER_BYTES in small ones.
_PIPE_BYTES: Final = 1024 * 1024
_SPLICE_FLAGS: Final = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class PythonSockets:
    """``Sockets`` of a relay, where the C of the product may not be built."""

    __slots__ = ("_epoll", "_pipe", "_view")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # where the system allows no larger one, the pipe holds 64 KiB
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        if not self._epoll.closed:
            self._epoll.close()
            for fd in self._pipe:
                os.close(fd)

    def watch(self, fd: int) -> None:
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        with suppress(OSError):  # if the socket is closed, its registration has ended
            self._epoll.unregister(fd)

    def ready(self) -> list[int]:
        return [fd for fd, _ in self._epoll.poll(0, _MOST_READY)]

    def read(self, fd: int, most: int) -> int:
        try:
            return os.readv(fd, (self._view[:most],))
        except (BlockingIOError, InterruptedError):
            return -1

    def part(self, begin: int, end: int) -> bytes:
        return self._view[begin:end].tobytes()

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:
        try:
            return os.write(fd, self._view[begin:end])
        except (BlockingIOError, InterruptedError):
            return 0

    def splice_in(self, fd: int, most: int) -> int:
        try:
            return os.splice(fd, self._pipe[1], min(most, BUFFER_BYTES), flags=_SPLICE_FLAGS)
        except (BlockingIOError, InterruptedError):
            return -1

    def splice_out(self, fd: int, count: int) -> int:
        try:
            return os.splice(self._pipe[0], fd, count, flags=_SPLICE_FLAGS)
        except (BlockingIOError, InterruptedError):
            return 0

    def take_spliced(self, count: int) -> bytes:
        return os.read(self._pipe[0], count)
