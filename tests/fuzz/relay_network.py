"""Sockets in memory, their transports, the system calls of a relay on them, and an event loop with a clock of its own.

Nothing happens by itself: ``relayed.py`` says what arrives, how much room a socket has, and when the loop goes on.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final, cast

from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES
from tests.support.pipe_sockets import PipeSockets

# Those of asyncio and uvloop.
HIGH_WATER_BYTES: Final = 64 * 1024
_LOW_WATER_BYTES: Final = 16 * 1024
UNLIMITED_BYTES: Final = 1 << 60


class Clock:
    """The time, which passes only if ``now_ms`` is changed."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def monotonic_ns(self) -> int:
        """Stand for the function of the module ``time``."""
        return self.now_ms * 1_000_000


class Loop:
    """The part of an event loop that connections use. ``run_ready`` calls the callbacks and timers that are due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._self = cast(asyncio.AbstractEventLoop, self)
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # noqa: ANN401 - as in asyncio
        """Call ``callback`` in ``run_ready``."""
        handle = asyncio.Handle(callback, args, self._self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - as in asyncio
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call ``callback`` in ``run_ready`` at that time, which is rounded to milliseconds."""
        timer = asyncio.TimerHandle(self._clock.now_ms + round(delay * 1_000), callback, args, self._self, context)
        self._timers.append(timer)
        return timer

    @property
    def timers_ms(self) -> list[int]:
        """Return the times of all timers that are set."""
        self._timers = [timer for timer in self._timers if not timer.cancelled()]
        return sorted(int(timer.when()) for timer in self._timers)

    def run_ready(self) -> None:
        """Call all callbacks, those that they add, and the timers that are due."""
        due = [timer for timer in self._timers if timer.when() <= self._clock.now_ms]
        if due:
            self._timers = [timer for timer in self._timers if timer not in due]
            due.sort(key=asyncio.TimerHandle.when)
            self._ready += due
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._callback(*handle._args)  # type: ignore[attr-defined] # so that an exception is a finding

    def get_debug(self) -> bool:
        """Return False, for handles."""
        return False

    def enter(self) -> None:
        """Be the running loop."""
        asyncio._set_running_loop(self._self)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: ``timers_ms`` drops what is cancelled."""


class Socket:
    """The proxy's end of one connection: bytes that have arrived, and room for bytes to send.

    Attributes:
        room_bytes: How many bytes the system takes before the peer reads.
        sent: All bytes that the system took.
        is_ended: Whether the peer sends nothing more.
        error: What each system call raises, because the peer has reset the connection.
        may_join: Whether one read may return the bytes of several messages of the peer.
    """

    def __init__(self, fd: int, may_join: Callable[[], bool] = lambda: True) -> None:
        self._fd = fd
        self._arrived: deque[bytes] = deque()
        self.room_bytes = UNLIMITED_BYTES
        self.sent = bytearray()
        self.is_ended = False
        self.error: OSError | None = None
        self.may_join = may_join

    def fileno(self) -> int:
        """Return the number that the relay knows the socket by."""
        return self._fd

    def setsockopt(self, *_: object) -> None:
        """Take any option."""

    def arrive(self, data: bytes) -> None:
        """Let a message of the peer arrive."""
        if data and not self.is_ended and self.error is None:
            self._arrived.append(data)

    def reset(self) -> None:
        """Let the peer reset the connection. What has arrived is lost."""
        self.error = ConnectionResetError("reset")
        self._arrived.clear()

    @property
    def is_readable(self) -> bool:
        """Whether ``receive`` returns bytes or the end, or raises."""
        return bool(self._arrived) or self.is_ended or self.error is not None

    def receive(self, most: int) -> bytes | None:
        """Return bytes that have arrived, b"" at the end of the stream, or None if none are there."""
        if self.error is not None:
            raise self.error
        if not self._arrived:
            return b"" if self.is_ended else None
        taken = bytearray(self._arrived.popleft())
        while self._arrived and len(taken) < most and self.may_join():
            taken += self._arrived.popleft()
        if len(taken) > most:
            self._arrived.appendleft(bytes(taken[most:]))
        return bytes(taken[:most])

    def send(self, data: bytes) -> int:
        """Take as many bytes as there is room for, and return their number."""
        if self.error is not None:
            raise self.error
        taken = data[: self.room_bytes]
        self.sent += taken
        self.room_bytes -= len(taken)
        return len(taken)


class Transport(asyncio.Transport):
    """What asyncio and uvloop give a protocol, on a socket in memory."""

    def __init__(self, loop: Loop, sock: Socket, protocol: Any) -> None:  # noqa: ANN401 - of the client or the broker
        super().__init__({"socket": sock, "peername": ("192.0.2.7", 50_000)})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._is_paused = self._is_closing = self._is_lost = self._is_full = self._has_seen_end = False
        self.has_sent_end = False
        self._unsent = bytearray()

    # -- what the world does --

    @property
    def is_to_read(self) -> bool:
        """Whether the event loop would read the socket now."""
        return self.is_reading() and not self._has_seen_end and self._sock.is_readable

    def read(self, most: int = BUFFER_BYTES) -> int:
        """Read the socket once, tell the protocol, and return the number of bytes."""
        try:
            data = self._sock.receive(most)
        except OSError as error:
            self._fail(error)
            return 0
        if data:
            self._protocol.data_received(data)
        elif data is not None:
            self._has_seen_end = True
            if not self._protocol.eof_received():
                self.close()
        return len(data or b"")

    def flush(self) -> None:
        """Send what the socket has room for now."""
        if self._unsent and not self._is_lost:
            try:
                del self._unsent[: self._sock.send(bytes(self._unsent))]
            except OSError as error:
                self._fail(error)
                return
            if self._is_full and len(self._unsent) <= _LOW_WATER_BYTES:
                self._is_full = False
                self._protocol.resume_writing()
            if not self._unsent and self._is_closing:
                self._lose(None)

    @property
    def written(self) -> bytes:
        """All bytes that were sent or wait for room."""
        return self.written_from(0)

    def written_from(self, begin: int) -> bytes:
        """Return what ``written`` has from this offset on."""
        sent_bytes = len(self._sock.sent)
        return bytes(self._sock.sent[begin:] + self._unsent[max(begin - sent_bytes, 0) :])

    @property
    def written_bytes(self) -> int:
        """The number of bytes that were sent or wait for room."""
        return len(self._sock.sent) + len(self._unsent)

    # -- what the proxy does --

    def pause_reading(self) -> None:
        """See ``asyncio.Transport``, as for all methods."""
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False

    def is_reading(self) -> bool:
        return not (self._is_paused or self._is_closing)

    def write(self, data: Any) -> None:  # noqa: ANN401 - as in asyncio  # noqa: D102
        if self._is_closing:
            return
        if not self._unsent:
            try:
                data = data[self._sock.send(data) :]
            except OSError as error:
                self._fail(error)
                return
        self._unsent += data
        if not self._is_full and len(self._unsent) > HIGH_WATER_BYTES:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_sent_end = True

    def set_protocol(self, protocol: Any) -> None:  # noqa: ANN401 - of the client or the broker  # noqa: D102
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._unsent:
                self._lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._lose(None)

    def _fail(self, error: OSError) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._loop.call_soon(lambda: self._protocol.connection_lost(error))


class MemorySockets(PipeSockets):
    """What ``Sockets`` are, for sockets in memory.

    Attributes:
        known: All sockets, by their numbers.
        reads: The number of the socket and the size of each read. The size is 0 if the read raised.
    """

    def __init__(self, pipe_bytes: int, has_long_body: Callable[[int], bool]) -> None:
        super().__init__()
        self.pipe_bytes = pipe_bytes
        self._has_long_body = has_long_body
        self.known: dict[int, Socket] = {}
        self.reads: list[tuple[int, int]] = []
        self._watched: dict[int, None] = {}

    def begin_turn(self) -> list[tuple[int, int]]:
        """Return a new list, and use it as ``reads`` from now on."""
        self.reads = []
        return self.reads

    def fileno(self) -> int:
        """See ``Sockets``, as for all methods."""
        return -1

    def close(self) -> None:
        self._watched.clear()

    def watch(self, fd: int) -> None:
        assert fd not in self._watched
        self._watched[fd] = None

    def forget(self, fd: int) -> None:
        del self._watched[fd]

    def ready(self) -> list[int]:
        return [fd for fd in self._watched if self.known[fd].is_readable]

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:
        assert not has_more or self._has_long_body(fd), "the system waits for bytes that may not come"
        return super().write(fd, begin, end, has_more=has_more)

    def send(self, fd: int, data: bytes) -> int:
        return self.known[fd].send(data)

    def receive(self, fd: int, most: int) -> bytes | None:
        try:
            data = self.known[fd].receive(most)
        except OSError:
            self.reads.append((fd, 0))
            raise
        if data:
            self.reads.append((fd, len(data)))
        return data
