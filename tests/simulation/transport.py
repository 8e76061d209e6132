"""The transports of a simulated process: what uvloop gives a protocol, on one end of a simulated connection."""

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.network import End, Handler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.process import Process
    from tests.simulation.sockets import SimulatedSocket

# Those of asyncio and uvloop.
_HIGH_WATER_BYTES: Final = 64 * 1024
_LOW_WATER_BYTES: Final = 16 * 1024
_MOST_READ_BYTES: Final = 256 * 1024


class SimulatedTransport(asyncio.Transport, Handler):
    """A stream transport. Each event of the network is told to the protocol in a turn of the process's loop."""

    def __init__(self, process: "Process", end: End, sock: "SimulatedSocket", protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"socket": sock, "peername": end.remote, "sockname": end.local})
        self._process = process
        self._loop = process.loop
        self.end = end
        self._sock = sock
        self._protocol: Any = protocol
        self._is_closing = self._is_lost = False
        self._is_paused = self._is_protocol_paused = self._is_read_planned = False
        self._wants_eof = False
        self._is_unseen = False  # whether the connection is gone, and nothing has shown that yet
        self._is_news = False  # whether the peer has ended the connection, and the protocol has yet to hear of it
        end.low_water_bytes = _LOW_WATER_BYTES
        end.handler = self
        end.wakes = self._plan_read
        process.transports[self] = None

    def begin(self) -> None:
        """Tell the protocol of the connection, then read."""
        self._protocol.connection_made(self)
        if not self.end.is_open:
            self._force(_error_of(self.end))
        elif self.end.is_readable:
            self._plan_read()

    # -- events of the network --

    def lost(self, end: End, is_reset: bool) -> None:
        """The connection is gone. The loop does not see that while the connection is neither read nor written."""
        if self._is_paused and not self._is_closing and not end._is_above:
            self._is_unseen = True
            if end.wakes is not None:
                end.wakes()  # a relay may read the socket
        else:
            self._loop.call_soon(self._force, _error_of(end))

    def _see(self) -> None:
        if self._is_unseen:
            self._is_unseen = False
            self._loop.call_soon(self._force, _error_of(self.end))

    def drained(self, end: End) -> None:
        """The write buffer has room again."""
        self._loop.call_soon(self._tell_room)

    def _tell_room(self) -> None:
        if self._is_closing or self._is_lost:
            if self._is_closing and not self.end.unsent_bytes:
                self._finish()
            elif self.end.is_open:
                self.end.low_water_bytes = 0
                self.end._is_above = True
        elif self._is_protocol_paused and self.end.unsent_bytes <= _LOW_WATER_BYTES:
            self._is_protocol_paused = False
            self._call(self._protocol.resume_writing)

    def _plan_read(self) -> None:
        if not self._is_read_planned and not self._is_paused and not self._is_closing and not self._is_lost:
            self._is_read_planned = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_planned = False
        end = self.end
        if self._is_paused or self._is_closing or self._is_lost or not end.is_open:
            return
        if end.unread_bytes:
            self._call(self._protocol.data_received, end.take(_MOST_READ_BYTES))
        elif end.take_end():
            if not self._call(self._protocol.eof_received):
                self._is_news = True
                self.close()
            return
        if end.is_readable:
            self._plan_read()

    def _call(self, method: Any, *args: Any) -> Any:
        """Call a method of the protocol. As with uvloop, an exception ends the connection."""
        try:
            return method(*args)
        except Exception as error:  # noqa: BLE001
            self._loop.call_exception_handler(
                {"message": "Fatal error on transport", "exception": error, "transport": self}
            )
            self._force(error)
            return True

    # -- reading --

    def pause_reading(self) -> None:
        """Stop reading."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            self._see()
            if self.end.is_readable:
                self._plan_read()

    def is_reading(self) -> bool:
        """Return whether the transport is read."""
        return not self._is_paused and not self._is_closing

    # -- writing --

    def write(self, data: Any) -> None:
        """Write bytes."""
        if self._wants_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_lost or self._is_closing:
            if self._is_news and self.end.tap is not None:
                self.end.tap.wrote(bytes(data))  # as if the peer had ended the connection just after the write
            return
        self.end.write(bytes(data))
        self._see()
        if not self._is_protocol_paused and self.end.unsent_bytes > _HIGH_WATER_BYTES:
            self._is_protocol_paused = True
            self._call(self._protocol.pause_writing)

    def writelines(self, list_of_data: "Iterable[Any]") -> None:
        """Write several pieces."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for room in the system's buffer."""
        return self.end.unsent_bytes

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def write_eof(self) -> None:
        """Close the sending side after what was written."""
        self._wants_eof = True
        self.end.shutdown()

    # -- the end --

    def close(self) -> None:
        """Close the connection after what was written."""
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        if self.end.unsent_bytes:
            self.end.low_water_bytes = 0
            self.end._is_above = True
        else:
            self._loop.call_soon(self._finish)

    def abort(self) -> None:
        """Close the connection at once, and drop what was not sent."""
        if not self._is_lost:
            self._is_closing = True
            self.end.abort()
            self._lose(None)

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._is_closing or self._is_lost

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Use another protocol from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol  # type: ignore[no-any-return]

    def _finish(self) -> None:
        self.end.close()
        self._lose(None)

    def _force(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_closing = self._is_news = True
            self.end.abort()
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._process.transports.pop(self, None)
        self._loop.call_soon(self._protocol_lost, error)

    def _protocol_lost(self, error: Exception | None) -> None:
        self._is_news = False
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.release()  # as in asyncio and uvloop, the descriptor is the protocol's until then


def _error_of(end: End) -> OSError:
    """Return the error that the system reports for a connection that is gone."""
    number = errno.ETIMEDOUT if end.is_timed_out else errno.ECONNRESET
    return OSError(number, os.strerror(number))
