"""Sockets of a simulated process, for code that uses ``socket`` and ``select`` itself."""

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.network import End, Endpoint, Handler

if TYPE_CHECKING:
    from tests.simulation.process import Process


class SimulatedSocket(Handler):
    """A connected socket: what ``accept`` returns, and what a transport has as extra information."""

    def __init__(self, process: "Process", end: End) -> None:
        self._process = process
        self.end = end
        self._number = process.take_descriptor(self)
        self._reader: Callable[[], None] | None = None
        end.handler = self
        end.wakes = self._wake

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    def setblocking(self, flag: bool) -> None:
        """Do nothing: no call blocks."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Note the options that decide how the loss of a peer is found."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE):
            self.end.has_keepalive = bool(value)
            self.end.watch_silence()
        elif (level, option) == (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT):
            self.end.user_timeout_ms = float(value)
            self.end.watch_silence()

    def fileno(self) -> int:
        """Return the descriptor, or -1 after ``close``."""
        return self._number if self._number in self._process.descriptors else -1

    def getsockname(self) -> Endpoint:
        """Return the local address."""
        return self.end.local

    def getpeername(self) -> Endpoint:
        """Return the other end's address."""
        return self.end.remote

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Read what has arrived, without taking it if the flags say so.

        Raises:
            OSError: If nothing has arrived, or the connection is gone.
        """
        if not self.end.is_open:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if not self.end.unread_bytes:
            if self.end.has_ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.end.peek(size) if flags & socket.MSG_PEEK else self.end.take(size)

    def close(self) -> None:
        """Close the connection."""
        if self.release():
            self.end.close()

    def release(self) -> bool:
        """Give back the descriptor. Return False if that was done before."""
        return self._process.give_back(self._number)

    def watch(self, reader: Callable[[], None] | None) -> None:
        """Call ``reader`` in a turn of the loop whenever something can be read. None ends it."""
        self._reader = reader
        if reader is not None and (self.end.is_readable or not self.end.is_open):
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._process.loop.call_soon(self._call_reader)

    def _call_reader(self) -> None:
        if self._reader is not None:
            self._reader()

    def lost(self, end: End, is_reset: bool) -> None:
        """The peer has ended the connection, before there is a transport."""
        self._wake()


class ListeningSocket:
    """A listening socket with its backlog."""

    def __init__(self, process: "Process", address: Endpoint) -> None:
        self._process = process
        self._address = address
        self._backlog: deque[End] = deque()
        self._reader: Callable[[], None] | None = None
        self._listening = process.world.network.listen(address, self._arrive)
        self._number = process.take_descriptor(self)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    def _arrive(self, end: End) -> "_Backlogged":
        self._backlog.append(end)
        if self._reader is not None:
            self._process.loop.call_soon(self._call_reader)
        return _Backlogged()

    def _call_reader(self) -> None:
        if self._reader is not None and self._backlog:
            self._reader()
            if self._reader is not None and self._backlog:
                self._process.loop.call_soon(self._call_reader)

    def watch(self, reader: Callable[[], None] | None) -> None:
        """Call ``reader`` in a turn of the loop while connections wait. None ends it."""
        self._reader = reader
        if reader is not None and self._backlog:
            self._process.loop.call_soon(self._call_reader)

    def accept(self) -> tuple[SimulatedSocket, Endpoint]:
        """Return the next connection and the client's address.

        Raises:
            OSError: If no connection waits, or no descriptor is left.
        """
        if not self._backlog:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if self._process.has_no_descriptor():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        end = self._backlog.popleft()
        if not end.is_open:
            raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))
        self._process.world.ledger.accepted(end.local, end.remote)
        return SimulatedSocket(self._process, end), end.remote

    def setblocking(self, flag: bool) -> None:
        """Do nothing: no call blocks."""

    def getsockname(self) -> Endpoint:
        """Return the address."""
        return self._address

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._number

    def close(self) -> None:
        """Accept no more. Connections that were not accepted are reset."""
        if self._process.give_back(self._number):
            self._listening.close()
            for end in self._backlog:
                end.abort()
            self._backlog.clear()


class _Backlogged(Handler):
    """Owns an end that was not accepted yet. Its bytes wait."""

    def connected(self, end: End) -> None:
        """It waits."""
        end.pause()


class _Poll:
    """``select.poll`` over simulated sockets."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._asked: dict[int, int] = {}

    def register(self, descriptor: int, events: int) -> None:
        """Ask for the events of a descriptor."""
        self._asked[descriptor] = events

    def poll(self, _: int) -> list[tuple[int, int]]:
        """Return the descriptors at which something has happened."""
        found: list[tuple[int, int]] = []
        for descriptor, events in self._asked.items():
            end: End = self._process.descriptors[descriptor].end
            seen = 0
            if not end.is_open:
                seen |= select.POLLERR | select.POLLHUP
            elif end.has_ended and events & select.POLLRDHUP:
                seen |= select.POLLRDHUP
            if seen:
                found.append((descriptor, seen))
        return found


class SelectModule:
    """Stands for the module ``select``."""

    POLLRDHUP: Final = select.POLLRDHUP
    POLLERR: Final = select.POLLERR
    POLLHUP: Final = select.POLLHUP
    POLLNVAL: Final = select.POLLNVAL

    def __init__(self, current: Callable[[], "Process"]) -> None:
        self.poll = lambda: _Poll(current())


class SocketModule:
    """Stands for the module ``socket`` where the proxy listens. ``current`` returns the process that runs."""

    def __init__(self, current: Callable[[], "Process"]) -> None:
        self._current = current

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[int, int, int, str, Endpoint]]:
        """Return the one address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    def create_server(self, address: Endpoint, **_: object) -> ListeningSocket:
        """Return a listening socket."""
        return ListeningSocket(self._current(), address)
