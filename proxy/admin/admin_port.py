"""The sockets of the admin port: requests are read without blocking, probes are answered on the loop.

A connection waits on the loop until the head of its request has arrived. A probe is then answered at once, by the loop
itself. Any other request gets a thread, at most ``MAX_REQUESTS`` at a time, and ``_DEADLINE_S`` in all. So neither idle
connections nor slow readers keep a probe waiting.

At most ``MAX_WAITING`` connections wait; the oldest makes room for the next, and each is closed after
``_WAIT_TIMEOUT_S``. A waiting connection holds at most ``_MAX_HEAD_BYTES`` and one read.
"""

import asyncio
import io
import logging
import socket
import threading
from collections.abc import Container, Sequence
from contextlib import suppress
from socketserver import BaseServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.types import WSGIApplication

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.background.isolation import repeated, report
from kafka_quota_proxy.proxy.server.acceptor import cannot_listen

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

log = logging.getLogger(__name__)

# Prometheus keeps no more than one open, a probe none.
MAX_WAITING: Final = 256
# A Prometheus server or two, and what operators ask.
MAX_REQUESTS: Final = 8
_WAIT_TIMEOUT_S: Final = 5.0
_SOCKET_TIMEOUT_S: Final = 5.0  # of each read and write of a thread; the deadline is of all
_DEADLINE_S: Final = 30.0
_MAX_HEAD_BYTES: Final = 16_384
_READ_BYTES: Final = 16_384
_BACKLOG: Final = 1_024
# How many are accepted before the loop's other work gets its turn.
_BATCH: Final = 64
# Without a free file descriptor the socket stays readable.
_REST_S: Final = 0.1
_END: Final = (b"\n\r\n", b"\n\n")
_TOO_LARGE: Final = ("431 Request Header Fields Too Large", f"a request's head has at most {_MAX_HEAD_BYTES} bytes\n")
_TOO_MANY: Final = ("503 Service Unavailable", f"{MAX_REQUESTS} requests are being answered already; ask again\n")


class AdminPort:
    """One bound address, served from ``open`` to ``close``. Made and used on the loop's thread.

    Args:
        bind: Where it listens.
        location: The key of the address in the file.
        application: Answers in threads, and probes on the loop.
        probes: Paths whose GET ``application`` answers at once, without I/O.

    Raises:
        StartError: The address cannot be bound.
    """

    def __init__(
        self, bind: Address, location: Sequence[str], application: WSGIApplication, probes: Container[str]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._probes = probes
        self._listener = _listener(bind, location)
        self.address = Address(host=bind.host, port=self._listener.getsockname()[1])
        # What WSGIRequestHandler asks of its server.
        environ = {
            "SERVER_NAME": bind.host,
            "SERVER_PORT": str(self.address.port),
            "GATEWAY_INTERFACE": "CGI/1.1",
            "REMOTE_HOST": "",
            "CONTENT_LENGTH": "",
            "SCRIPT_NAME": "",
        }
        self._site = SimpleNamespace(base_environ=environ, get_app=lambda: application)
        self._waiting: dict[socket.socket, _Waiting] = {}  # the oldest first
        self._answered: dict[socket.socket, asyncio.TimerHandle] = {}  # in threads
        self._rest: asyncio.TimerHandle | None = None

    @repeated
    def open(self) -> None:
        """Take connections from now on."""
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Take no more, and cut off all that there are."""
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for one in list(self._waiting.values()):
            self._drop(one)
        for connection, timer in self._answered.items():
            timer.cancel()
            _cut(connection)

    # -- on the loop

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # gone before its turn
                continue
            except OSError as error:
                log.warning("the admin port takes no connections for now: %s", error)
                self._loop.remove_reader(self._listener)
                self._rest = self._loop.call_later(_REST_S, self.open)
                return
            connection.setblocking(False)
            if len(self._waiting) >= MAX_WAITING:
                self._drop(next(iter(self._waiting.values())))
            one = self._waiting[connection] = _Waiting(connection, str(peer[0]))
            one.timer = self._loop.call_later(_WAIT_TIMEOUT_S, self._drop, one)
            self._loop.add_reader(connection, self._go_on, one)
            self._go_on(one)  # most requests have arrived with their connections

    def _go_on(self, one: "_Waiting") -> None:
        """Read what has arrived, or write what is left of an answer."""
        try:
            if one.answer:
                self._write(one)
            else:
                self._read(one)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(one)
        except Exception as error:  # noqa: BLE001 - it ends one request
            report(error)
            self._drop(one)

    def _read(self, one: "_Waiting") -> None:
        read = one.connection.recv(_READ_BYTES)
        if not read:
            self._drop(one)
            return
        looked_at = max(0, len(one.head) - len(_END[0]))
        one.head += read
        if any(one.head.find(end, looked_at) >= 0 for end in _END):
            self._answer(one)
        elif len(one.head) > _MAX_HEAD_BYTES:
            self._send(one, _plain(*_TOO_LARGE))

    def _answer(self, one: "_Waiting") -> None:
        head = bytes(one.head)
        method, _, target = head.partition(b"\r")[0].decode("latin-1").partition(" ")
        if method == "GET" and target.partition(" ")[0].partition("?")[0] in self._probes:
            answer = io.BytesIO()
            _Request(self._site, io.BytesIO(head), answer, one.peer).handle()
            self._send(one, answer.getvalue())
        elif len(self._answered) >= MAX_REQUESTS:
            self._send(one, _plain(*_TOO_MANY))
        else:
            self._forget(one)
            self._answered[one.connection] = self._loop.call_later(_DEADLINE_S, _cut, one.connection)
            arguments = (one.connection, one.peer, head)
            threading.Thread(target=self._serve, args=arguments, name="admin", daemon=True).start()

    def _send(self, one: "_Waiting", answer: bytes) -> None:
        one.answer = answer
        self._loop.remove_reader(one.connection)
        self._loop.add_writer(one.connection, self._go_on, one)
        self._write(one)

    def _write(self, one: "_Waiting") -> None:
        one.answer = one.answer[one.connection.send(one.answer) :]
        if not one.answer:
            self._drop(one)

    def _forget(self, one: "_Waiting") -> None:
        """Leave the connection to its thread, or to its end."""
        if self._waiting.pop(one.connection, None) is None:
            return
        if one.timer is not None:
            one.timer.cancel()
        self._loop.remove_reader(one.connection)
        self._loop.remove_writer(one.connection)

    @repeated
    def _drop(self, one: "_Waiting") -> None:
        self._forget(one)
        _end(one.connection)

    @repeated
    def _ended(self, connection: socket.socket) -> None:
        timer = self._answered.pop(connection, None)
        if timer is not None:
            timer.cancel()

    # -- in a thread

    def _serve(self, connection: socket.socket, peer: str, head: bytes) -> None:
        try:
            connection.settimeout(_SOCKET_TIMEOUT_S)
            with io.BufferedReader(_Arriving(head, connection)) as incoming, connection.makefile("wb") as outgoing:
                _Request(self._site, incoming, outgoing, peer).handle()
        except OSError:
            log.debug("admin request from %s failed", peer, exc_info=True)
        except Exception as error:  # noqa: BLE001 - as above
            report(error)
        finally:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._ended, connection)
            _end(connection)


class _Waiting:
    """A connection whose request has not arrived yet, or whose answer has not left."""

    __slots__ = ("answer", "connection", "head", "peer", "timer")

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self.connection = connection
        self.peer = peer
        self.head = bytearray()
        self.answer = b""
        self.timer: asyncio.TimerHandle | None = None


class _Arriving(io.RawIOBase):
    """What has been read of a connection already, and then the rest of it."""

    def __init__(self, begun: bytes, connection: socket.socket) -> None:
        self._begun = io.BytesIO(begun)
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        return self._begun.readinto(buffer) or self._connection.recv_into(buffer)


class _Request(WSGIRequestHandler):
    """Has an application answer one request, on files instead of a socket."""

    def __init__(
        self, site: SimpleNamespace, incoming: BinaryIO | io.BufferedReader, outgoing: BinaryIO, peer: str
    ) -> None:
        self.server = cast("BaseServer", site)
        self.client_address = (peer, 0)
        self.rfile = incoming  # type: ignore[assignment]
        self.wfile = outgoing  # type: ignore[assignment]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a line per scrape would drown the log."""

    def get_stderr(self) -> io.StringIO:
        """Return where wsgiref puts its tracebacks, those of clients that leave early among them."""
        return io.StringIO()


def _listener(bind: Address, location: Sequence[str]) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StartError(location, cannot_listen(bind, error)) from error
    return listener


def _plain(status: str, text: str) -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@repeated
def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it may have just ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
    connection.close()
