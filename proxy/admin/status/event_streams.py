"""Sends server-sent events to the open status pages. Runs on the event loop.

A thread reads what an event says, once for all pages, and only while there are any. No stream holds more than one
event: while a page has not taken one, it gets no other. After ``_STALLED_S`` the stream ends.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kafka_quota_proxy.proxy.runtime.isolation import isolated, persisting, repeated, report

# Enough for some operators with a page each.
MAX_STREAMS: Final = 8
EVERY_S: Final = 2.0
_STALLED_S: Final = 10.0
# What the system keeps for a page that does not read. It doubles the number on Linux.
_BUFFER_BYTES: Final = 65_536
# A page that has lost its stream tries again after this time.
RETRY_MS: Final = 2_000


class EventStreams:
    """The connections of all open pages. ``read`` returns the data of an event. It is called in a thread."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._read = read
        self._streams: dict[socket.socket, _Stream] = {}
        self._last = b""  # the last event
        self._last_s = float("-inf")  # when it was read
        self._is_reading = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another stream."""
        return len(self._streams) >= MAX_STREAMS

    def add(self, connection: socket.socket, head: bytes) -> None:
        """Take over a connection. ``head`` is the beginning of the response. The first event follows at once."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        stream = _Stream(connection, self._loop, self._drop, head)
        self._streams[connection] = stream
        self._loop.add_reader(connection, stream.ended)
        if self._loop.time() - self._last_s < EVERY_S:
            stream.unsent += self._last
        stream.write()
        self._schedule()

    def close(self) -> None:
        """End all streams."""
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._streams.values()):
            self._drop(stream)

    def _schedule(self) -> None:
        """Arrange that the next event is read when it is due, if a page waits for it."""
        if self._streams and self._timer is None and not self._is_reading:
            due_s = max(self._last_s + EVERY_S, self._loop.time())
            self._timer = self._loop.call_at(due_s, self._start_reading)

    @repeated
    def _start_reading(self) -> None:
        self._timer = None
        if self._streams:
            threading.Thread(target=persisting(self._read_event), name="status", daemon=True).start()
            self._is_reading = True

    def _read_event(self) -> None:
        """Read an event. Runs in a thread."""
        event = b""
        try:
            event = b"data: " + self._read() + b"\n\n"
        except Exception as error:  # noqa: BLE001 - the next event is read all the same
            report(error, "the state for the status page could not be read")
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._publish, event)

    @repeated
    def _publish(self, event: bytes) -> None:
        now_s, self._is_reading = self._loop.time(), False
        self._last, self._last_s = event, now_s
        for stream in list(self._streams.values()):
            if not stream.unsent:
                stream.since_s, stream.unsent = now_s, event
                stream.write()
            elif now_s - stream.since_s >= _STALLED_S:
                self._drop(stream)
        self._schedule()

    def _drop(self, stream: "_Stream") -> None:
        if self._streams.pop(stream.connection, None) is not None:
            self._loop.remove_reader(stream.connection)
            self._loop.remove_writer(stream.connection)
            stream.connection.close()


class _Stream:
    """The connection of one page.

    Attributes:
        unsent: The rest of the last event, which the page has not taken yet.
        since_s: When that event was read.
    """

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        drop: Callable[["_Stream"], None],
        unsent: bytes,
    ) -> None:
        self.connection = connection
        self.unsent = unsent
        self.since_s = loop.time()
        self._loop = loop
        self._drop = drop
        self._is_waiting = False  # whether the event loop watches for room in the socket

    @isolated
    def write(self) -> None:
        """Send as much as the socket takes, and the rest when it takes more."""
        try:
            if self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(self)
            return
        if self.unsent and not self._is_waiting:
            self._loop.add_writer(self.connection, self.write)
        elif not self.unsent and self._is_waiting:
            self._loop.remove_writer(self.connection)
        self._is_waiting = bool(self.unsent)

    @isolated
    def ended(self) -> None:
        """End a stream whose page has closed it. A page sends nothing, so one that does is ended too."""
        self._drop(self)

    def fail(self) -> None:
        """End the stream after an unexpected exception. The page opens another one."""
        self._drop(self)
