"""Sends requests to a broker again and again, and measures the time and the proxy's charge of each."""

import select
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kafka_quota_proxy.proxy.quota.request_time import Service, ServiceClock, charged_ns
from tests.end_to_end.support.frames import RawClient, request

# A request is charged from its last piece on, because a proxy forwards a request in pieces.
_LAST_PIECE_BYTES: Final = 65_536
_READ_BYTES: Final = 1_048_576
_PATIENCE_S: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A repeated request. ``depth`` requests are in flight on each connection."""

    name: str
    api_key: int
    api_version: int
    body: bytes
    connections: int = 1
    depth: int = 1
    pause_ms: float = 0
    may_wait: bool = False

    def frame(self, client_id: str) -> bytes:
        """Return the request frame with this client-id."""
        return request(self.api_key, self.api_version, 1, client_id, self.body)


@dataclass(slots=True)
class Seen:
    """The measurements of one load in one round."""

    elapsed_ns: list[int] = field(default_factory=list)
    charged_ns: list[int] = field(default_factory=list)


class _Connection:
    """A connection, its unanswered requests, and the response that is being received."""

    def __init__(self, port: int, client_id: str) -> None:
        self.client = RawClient(port, client_id=client_id, timeout_s=_PATIENCE_S)
        self.awaited = 0  # responses that have not begun
        self.unfinished = 0  # responses that have not ended
        self.services: deque[Service] = deque()  # that of the oldest unanswered request, if any
        self._head = bytearray()
        self._left = 0

    def feed(self, data: memoryview, on_answer: Callable[["_Connection", int], None]) -> int:
        """Receive bytes. Calls back at the start of each response, and returns the number of complete ones."""
        at = ended = 0
        while at < len(data):
            if not self._left:
                take = 4 - len(self._head)
                self._head += data[at : at + take]
                at += take
                if len(self._head) < 4:
                    break
                self._left = struct.unpack(">i", self._head)[0]
                self._head.clear()
                on_answer(self, 4 + self._left)
            take = min(self._left, len(data) - at)
            self._left -= take
            at += take
            ended += not self._left
        return ended


class Sender:
    """Sends loads to one broker, and charges them like a proxy in front of it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clock = ServiceClock()

    def send(self, load: Load, client_id: str, *, seconds: float) -> Seen:
        """Send for this time as ``client_id``, and wait for the last responses."""
        return _Run(self, load, client_id).send(seconds)


class _Run:
    def __init__(self, sender: Sender, load: Load, client_id: str) -> None:
        self._clock = sender.clock
        self._load = load
        self._frame = load.frame(client_id)
        self._cut = max(0, len(self._frame) - _LAST_PIECE_BYTES)
        self._seen = Seen()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        connections = [_Connection(sender.port, client_id) for _ in range(load.connections)]
        self._connections = {connection.client.socket.fileno(): connection for connection in connections}

    def send(self, seconds: float) -> Seen:
        connections = self._connections
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        with select.epoll() as poll:
            for number, connection in connections.items():
                poll.register(number, select.EPOLLIN)
                for _ in range(self._load.depth):
                    self._pass_on(connection)
            while any(connection.unfinished for connection in connections.values()):
                ready = poll.poll(_PATIENCE_S)
                if not ready:
                    raise SystemExit(f"{self._load.name}: no answer within {_PATIENCE_S} s")
                for number, _ in ready:
                    self._read(connections[number], end_ns)
        for connection in connections.values():
            connection.client.close()
        return self._seen

    def _read(self, connection: _Connection, end_ns: int) -> None:
        count = connection.client.socket.recv_into(self._buffer)
        if not count:
            raise SystemExit(f"{self._load.name}: the broker closed the connection")
        for _ in range(connection.feed(self._buffer[:count], self._charge)):
            connection.unfinished -= 1
            if self._load.pause_ms:
                time.sleep(self._load.pause_ms / 1_000)
            if time.monotonic_ns() < end_ns:
                self._pass_on(connection)

    def _charge(self, connection: _Connection, response_bytes: int) -> None:
        spent = self._clock.end(connection.services.popleft(), now_ns=time.monotonic_ns())
        charged = charged_ns(self._load.api_key, spent, request_bytes=len(self._frame), response_bytes=response_bytes)
        self._seen.elapsed_ns.append(spent.elapsed_ns)
        self._seen.charged_ns.append(charged)
        connection.awaited -= 1
        if connection.awaited:
            self._begin(connection)

    def _pass_on(self, connection: _Connection) -> None:
        sendall = connection.client.socket.sendall
        if self._cut:
            sendall(self._frame[: self._cut])
        connection.awaited += 1
        connection.unfinished += 1
        if connection.awaited == 1:
            self._begin(connection)
        sendall(self._frame[self._cut :] if self._cut else self._frame)

    def _begin(self, connection: _Connection) -> None:
        now_ns = time.monotonic_ns()
        connection.services.append(self._clock.begin(may_wait=self._load.may_wait, now_ns=now_ns))
