"""A simulated TCP network: connections that deliver bytes late, in segments of any size, or not at all."""

from collections import deque
from collections.abc import Callable
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tests.simulation.scheduler import Event, Scheduler

if TYPE_CHECKING:
    from hashlib import blake2b

    from tests.simulation.taps import Frames

Endpoint = tuple[str, int]

_NS_PER_MS: Final = 1_000_000
# How long a segment of a new connection takes, from and to.
LATENCY_MS: Final = (0.05, 2.0)
_FIRST_PORT: Final = 32_768
_NOTE: Final = Struct(">qqI")
_MOST_SMALL: Final = 100
# Linux gives up a connection whose bytes are not acknowledged after some 15 minutes (tcp_retries2).
_UNANSWERED_MS: Final = 924_000.0
# What the product sets for the keepalive of its sockets: 30 + 3 * 5 s.
_KEEPALIVE_MS: Final = 45_000.0


class Handler:
    """Whoever owns one end of a connection. Each method does nothing where nothing needs to be done."""

    def connected(self, end: "End") -> None:
        """The connection is open."""

    def received(self, end: "End", data: bytes) -> None:
        """Bytes have arrived."""

    def ended(self, end: "End") -> None:
        """The peer has closed its sending side. We may still write."""

    def lost(self, end: "End", is_reset: bool) -> None:
        """The connection is gone, or could not be made. Nothing is called after this."""

    def drained(self, end: "End") -> None:
        """The bytes that wait for the peer have fallen to ``end.low_water_bytes``."""


class End:
    """One end of a TCP connection.

    Attributes:
        local: The address of this end.
        remote: The address of the other end.
        is_open: False before the connection is made, and after it is gone.
        low_water_bytes: When ``unsent_bytes`` falls to it, ``Handler.drained`` is called.
        has_keepalive: Whether this end notices a peer that has vanished.
        user_timeout_ms: How long written bytes may stay unacknowledged.
        received_bytes: How many bytes the handler has been given.
        written_bytes: How many bytes were written.
    """

    __slots__ = (
        "_at_ns", "_eof_told", "_fin_arrived", "_fin_sent", "_fin_wanted", "_in_flight_bytes", "_inbox",
        "_inbox_bytes", "_is_above", "_is_closed", "_is_paused", "_network", "_queue", "_queue_bytes", "_silence",
        "_silence_ms",
        "handler", "has_keepalive", "is_open", "is_timed_out", "link", "local", "low_water_bytes", "peer",
        "received_bytes", "remote", "tap", "user_timeout_ms", "wakes", "written_bytes",
    )  # fmt: skip

    def __init__(self, network: "Network", local: Endpoint, remote: Endpoint) -> None:
        self._network = network
        self.local = local
        self.remote = remote
        self.handler: Handler
        self.peer: End
        self.link: Link
        self.tap: Frames | None = None  # sees what is written
        # If set, it is called instead of ``received`` and ``ended`` when something can be read.
        self.wakes: Callable[[], None] | None = None
        self.is_open = False
        self.is_timed_out = False
        self.low_water_bytes = 0
        self.has_keepalive = False
        self.user_timeout_ms = _UNANSWERED_MS
        self.received_bytes = self.written_bytes = 0
        self._queue: deque[bytes | memoryview] = deque()  # written, and not sent yet
        self._queue_bytes = 0
        self._in_flight_bytes = 0  # sent, and not read by the peer yet
        self._at_ns = 0  # when the last segment arrives
        self._inbox: deque[bytes | memoryview] = deque()
        self._inbox_bytes = 0
        self._is_paused = self._is_above = False
        self._fin_wanted = self._fin_sent = self._fin_arrived = self._eof_told = False
        self._is_closed = False
        self._silence: Event | None = None
        self._silence_ms = 0.0

    @property
    def unsent_bytes(self) -> int:
        """How many written bytes do not fit into the system's send buffer."""
        return max(0, self._queue_bytes - self.link.send_buffer_bytes)

    @property
    def room_bytes(self) -> int:
        """How many more bytes fit into the system's send buffer."""
        return max(0, self.link.send_buffer_bytes - self._queue_bytes)

    @property
    def is_on_the_way(self) -> bool:
        """Whether bytes were written that have not arrived at the peer, or never will."""
        return bool(self._queue_bytes) or self.link.is_cut or self._in_flight_bytes != self.peer._inbox_bytes

    @property
    def unread_bytes(self) -> int:
        """How many bytes have arrived that the handler has not been given."""
        return self._inbox_bytes

    @property
    def has_ended(self) -> bool:
        """Whether the peer has closed its sending side, whether or not the handler was told."""
        return self._fin_arrived

    @property
    def has_shut_down(self) -> bool:
        """Whether this end has closed its sending side, or both."""
        return self._fin_wanted

    @property
    def is_reset(self) -> bool:
        """Whether the connection was made, and is gone without a call of ``close``."""
        return not self.is_open and not self._is_closed

    def write(self, data: bytes) -> None:
        """Send bytes, as soon as the peer has room for them."""
        if not self.is_open or self._fin_wanted or not data:
            if self.is_reset and self.tap is not None:
                self.tap.wrote(data)  # the connection is lost, and the process has not heard of it
            return
        self.written_bytes += len(data)
        if self.tap is not None:
            self.tap.wrote(data)
        self._network.note(data)
        self._queue.append(data)
        self._queue_bytes += len(data)
        self._pump()
        if self.unsent_bytes > self.low_water_bytes:
            self._is_above = True

    def shutdown(self) -> None:
        """Close the sending side after what was written. The peer may still send."""
        if self.is_open and not self._fin_wanted:
            self._fin_wanted = True
            self._pump()

    def close(self) -> None:
        """Close both sides. What was written is still sent. If bytes of the peer are unread, reset the connection."""
        if not self.is_open:
            return
        self._is_closed = True
        self.is_open = False
        if self._inbox_bytes:
            self._reset_peer()
            return
        self._fin_wanted = True
        self._pump()

    def abort(self) -> None:
        """Reset the connection at once. Bytes that wait are dropped."""
        if self.is_open or (self._is_closed and not self._fin_sent):
            self._is_closed = True
            self.is_open = False
            self._reset_peer()

    def pause(self) -> None:
        """Read no more. The peer can send until the buffers are full."""
        self._is_paused = True

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            if self._inbox or self._fin_arrived:
                self._network.scheduler.at_ns(0, self._hand_over)

    # -- the sending side --

    def _pump(self) -> None:
        """Send segments while the peer has room."""
        link, network = self.link, self._network
        if link.is_cut:
            self.watch_silence()
            return
        while self._queue:
            room = link.window_bytes - self._in_flight_bytes
            if room <= 0:
                self.watch_silence()
                break
            size = min(room, link.next_segment_bytes())
            data = self._queue[0]
            if len(data) <= size:
                self._queue.popleft()
            else:
                view = memoryview(data)  # so that the rest is not copied for each segment
                self._queue[0] = view[size:]
                data = view[:size]
            self._queue_bytes -= len(data)
            self._in_flight_bytes += len(data)
            self._at_ns = max(self._at_ns, network.now_ns + link.next_delay_ns())
            network.scheduler.at_ns(self._at_ns, self.peer._arrive, data)
        if self._fin_wanted and not self._queue and not self._fin_sent:
            self._fin_sent = True
            self._at_ns = max(self._at_ns, network.now_ns + link.next_delay_ns())
            network.scheduler.at_ns(self._at_ns, self.peer._arrive_end)
        if self._is_above and self.is_open and self.unsent_bytes <= self.low_water_bytes:
            self._is_above = False
            network.scheduler.at_ns(0, self._tell_drained)

    def _tell_drained(self) -> None:
        if self.is_open:
            self.handler.drained(self)

    def _peer_has_read(self, size_bytes: int) -> None:
        self._in_flight_bytes -= size_bytes
        if self._silence is not None and not self.link.is_cut:
            self._silence.cancel()
            self._silence = None
        if self._queue or self._fin_wanted:
            self._pump()

    def _reset_peer(self) -> None:
        link, network = self.link, self._network
        self._queue.clear()
        self._queue_bytes = 0
        self._inbox.clear()
        self._inbox_bytes = 0
        if not link.is_cut:
            at_ns = max(self._at_ns, network.now_ns + link.next_delay_ns())
            network.scheduler.at_ns(at_ns, self.peer._arrive_reset)

    # -- the receiving side --

    def _arrive(self, data: bytes | memoryview) -> None:
        if self.link.is_cut:
            return
        if not self.is_open:
            if self._is_closed:  # a closed socket answers with a reset (RFC 1122, 4.2.2.13)
                self._reset_peer()
            return
        self._inbox.append(data)
        self._inbox_bytes += len(data)
        self._hand_over()

    def _arrive_end(self) -> None:
        if self.link.is_cut or self._fin_arrived:
            return
        self._fin_arrived = True
        if self.is_open:
            self._hand_over()

    def _arrive_reset(self) -> None:
        if not self.link.is_cut and self.is_open:
            self.lose()

    def lose(self) -> None:
        """End this side as after a reset: bytes that wait are dropped."""
        self.is_open = False
        self._queue.clear()
        self._queue_bytes = 0
        self._inbox.clear()
        self._inbox_bytes = 0
        self.handler.lost(self, True)

    def _hand_over(self) -> None:
        if self.wakes is not None:
            self.wakes()
            return
        while self._inbox and not self._is_paused and self.is_open:
            data = self.take(1 << 18)
            self.handler.received(self, data)
        if self._fin_arrived and not self._inbox and not self._is_paused and self.is_open and not self._eof_told:
            self._eof_told = True
            self.handler.ended(self)

    @property
    def is_readable(self) -> bool:
        """Whether bytes or the end of the stream can be read."""
        return bool(self._inbox) or (self._fin_arrived and not self._eof_told)

    def take(self, most_bytes: int) -> bytes:
        """Read up to ``most_bytes`` that have arrived."""
        inbox = self._inbox
        data = inbox.popleft()
        if len(data) > most_bytes:
            inbox.appendleft(data[most_bytes:])
            data = data[:most_bytes]
        elif inbox and len(data) < most_bytes:
            pieces, size = [data], len(data)
            while inbox and size + len(inbox[0]) <= most_bytes:
                pieces.append(inbox.popleft())
                size += len(pieces[-1])
            data = b"".join(pieces)
        if not isinstance(data, bytes):
            data = bytes(data)
        self._inbox_bytes -= len(data)
        self.received_bytes += len(data)
        peer = self.peer
        if peer._queue:
            at_ns = self._network.now_ns + self.link.latency_ns
            self._network.scheduler.at_ns(at_ns, peer._peer_has_read, len(data))
        else:
            peer._in_flight_bytes -= len(data)  # nothing waits for the room
        return data

    def take_end(self) -> bool:
        """Return whether the stream has ended and the end was not read before. Mark it as read."""
        if self._fin_arrived and not self._inbox and not self._eof_told:
            self._eof_told = True
            return True
        return False

    def peek(self, most_bytes: int) -> bytes:
        """Return up to ``most_bytes`` that have arrived, and leave them."""
        return b"".join(self._inbox)[:most_bytes]

    def watch_silence(self) -> None:
        """Notice a peer that is gone without a word, or reads nothing, when Linux would.

        Called whenever that may have changed. Without a time-out of its own, a socket waits for a reader for ever.
        """
        has_no_room = bool(self._queue) and self.user_timeout_ms < _UNANSWERED_MS
        if not self.is_open or not (self.link.is_cut or has_no_room):
            return
        waits = [_KEEPALIVE_MS] if self.has_keepalive and self.link.is_cut else []
        if self._queue_bytes or self._in_flight_bytes:
            waits.append(self.user_timeout_ms)
        if waits and (self._silence is None or min(waits) < self._silence_ms):
            self._silence_ms = min(waits)
            if self._silence is not None:
                self._silence.cancel()
            self._silence = self._network.scheduler.call_later(self._silence_ms, self._time_out)

    def _time_out(self) -> None:
        if self.is_open:
            self.is_timed_out = True
            self._reset_peer()
            self.lose()


class Link:
    """The way between two ends, and its faults."""

    __slots__ = (
        "_random", "_segments", "ends", "is_cut", "latency_ns", "most_segment_bytes", "send_buffer_bytes",
        "window_bytes",
    )  # fmt: skip

    def __init__(self, random: Random, *, latency_ms: float, window_bytes: int, most_segment_bytes: int) -> None:
        self._random = random
        self.latency_ns = int(latency_ms * _NS_PER_MS)
        self.window_bytes = window_bytes
        self.send_buffer_bytes = window_bytes
        self.most_segment_bytes = most_segment_bytes
        self.is_cut = False
        self._segments = 0
        self.ends: tuple[End, End]

    def next_segment_bytes(self) -> int:
        """Draw the size of the next segment: usually as much as fits.

        After the first ``_MOST_SMALL`` small segments all are large, because more of the same find nothing.
        """
        self._segments += 1
        if self._segments == _MOST_SMALL:
            self.most_segment_bytes = max(self.most_segment_bytes, 65_536)
            self.window_bytes = max(self.window_bytes, 65_536)
        if self._random.random() < 0.8:
            return self.most_segment_bytes
        return self._random.randint(1, self.most_segment_bytes)

    def next_delay_ns(self) -> int:
        """Draw how long the next segment takes."""
        return self.latency_ns + int(self._random.random() * self.latency_ns)

    def most_ms(self, size_bytes: int) -> float:
        """Return how long ``size_bytes`` take at most: each window of them goes one way, and its room comes back."""
        first_window_bytes = self.send_buffer_bytes
        return (1 + size_bytes // first_window_bytes) * 4 * self.latency_ns / _NS_PER_MS

    def cut(self) -> None:
        """Lose every byte from now on, without telling anybody."""
        if not self.is_cut:
            self.is_cut = True
            for end in self.ends:
                if end.is_open:
                    end.watch_silence()

    def reset(self) -> None:
        """End the connection now, at whatever byte it is."""
        for end in self.ends:
            if end.is_open:
                end.lose()


class Listening:
    """An address at which somebody accepts connections, until ``close`` is called."""

    __slots__ = ("_network", "accept", "address")

    def __init__(self, network: "Network", address: Endpoint, accept: Callable[[End], Handler]) -> None:
        self._network = network
        self.address = address
        self.accept = accept

    def close(self) -> None:
        """Refuse connections from now on."""
        self._network.close_listening(self)


class Network:
    """Makes connections between hosts. Faults are methods and attributes that the faults of a world use.

    Attributes:
        unreachable: Hosts whose packets are lost, also those that ask for a connection.
        lost_dials: Each time at which a packet was lost that asks for a connection, in ms, and the host it was sent to.
        links: All links that were made and that are open at one end at least, oldest first.
        digest: Every byte on the wire, in order and with its time.
    """

    def __init__(self, scheduler: Scheduler, random: Random, digest: "blake2b") -> None:
        self.scheduler = scheduler
        self.digest = digest
        self.unreachable: dict[str, None] = {}
        self.lost_dials: list[tuple[float, str]] = []
        self.links: dict[Link, None] = {}
        self.latency_ms = LATENCY_MS
        self.tiny_share = 0.03  # how many links have small windows and segments
        self._random = random
        self._listening: dict[Endpoint, Listening] = {}
        self._next_port = _FIRST_PORT

    def note(self, data: bytes) -> None:
        """Add bytes that are written, and the time, to the digest."""
        self.digest.update(_NOTE.pack(self.now_ns, len(data), crc32(data)))

    @property
    def now_ns(self) -> int:
        """The time."""
        return self.scheduler.clock.now_ns

    def listen(self, address: Endpoint, accept: Callable[[End], Handler]) -> Listening:
        """Accept connections at an address.

        Raises:
            OSError: If somebody listens there already.
        """
        if address in self._listening:
            raise OSError(98, f"Address already in use: {address}")
        listening = self._listening[address] = Listening(self, address, accept)
        return listening

    def close_listening(self, listening: Listening) -> None:
        """Refuse connections to an address from now on."""
        if self._listening.get(listening.address) is listening:
            del self._listening[listening.address]

    def connect(self, source_host: str, address: Endpoint, handler: Handler) -> End:
        """Ask for a connection. Later, ``connected`` or ``lost`` of the handler is called."""
        self._next_port += 1
        end = End(self, (source_host, self._next_port), address)
        end.handler = handler
        link = self._new_link()
        end.link = link
        other = End(self, address, end.local)
        other.link = link
        link.ends = (end, other)
        end.peer, other.peer = other, end
        if source_host in self.unreachable or address[0] in self.unreachable:
            self.lost_dials.append((self.scheduler.clock.now_ms, address[0]))
            self.scheduler.call_later(127_000, self._not_reached, end)
        else:
            self.scheduler.at_ns(self.now_ns + 2 * link.next_delay_ns(), self._meet, end)
        return end

    def _new_link(self) -> Link:
        random = self._random
        is_tiny = random.random() < self.tiny_share
        return Link(
            random,
            latency_ms=random.uniform(*self.latency_ms),
            window_bytes=random.choice((512, 4_096, 16_384)) if is_tiny else random.choice((65_536, 262_144, 1 << 20)),
            most_segment_bytes=random.choice((40, 536)) if is_tiny else random.choice((1_448, 16_384, 65_536, 262_144)),
        )

    def _not_reached(self, end: End) -> None:
        if not end._is_closed:
            end.is_timed_out = True
            end._is_closed = True
            end.handler.lost(end, False)

    def _meet(self, end: End) -> None:
        other = end.peer
        listening = self._listening.get(end.remote)
        if end._is_closed:
            return
        if listening is None:
            end._is_closed = True
            end.handler.lost(end, False)
            return
        end.is_open = other.is_open = True
        self.links[end.link] = None
        if len(self.links) % 256 == 0:
            self._forget_closed()
        other.handler = listening.accept(other)
        end.handler.connected(end)
        other.handler.connected(other)

    def give_up(self, end: End) -> None:
        """Stop asking for a connection that is not open yet."""
        if not end.is_open:
            end._is_closed = True

    def _forget_closed(self) -> None:
        self.links = {link: None for link in self.links if any(end.is_open for end in link.ends)}

    def open_links(self) -> list[Link]:
        """Return the links of which an end is open, oldest first."""
        self._forget_closed()
        return list(self.links)
