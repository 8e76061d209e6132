"""The system calls of a relay: which sockets are readable, and reads and writes with one buffer.

``native_sockets`` makes them in C.
"""

from collections.abc import Callable
from typing import Final, Protocol

BUFFER_BYTES: Final = 256 * 1024


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


def make_sockets() -> Sockets | None:
    """Return the sockets in C, or None where they are not built: without a compiler, and on systems without epoll."""
    try:
        from kafka_quota_proxy.proxy.server.clients.native_sockets import NativeSockets
    except ImportError:
        return None
    make: Callable[[], Sockets] = NativeSockets
    return make()
