"""Serves the sockets of the admin port.

The event loop reads the head of each request. It answers probes (health checks) itself, and starts a thread for any
other request. So a probe waits neither for idle connections nor for clients that read a response slowly.

The event loop serves a connection while it reads the head of a request or answers a probe, for at most
``_WAIT_TIMEOUT_S``. It serves at most ``MAX_WAITING`` connections at a time: to make room for a new one, it closes the
oldest. At most ``max_requests`` threads run at a time, each for at most ``_DEADLINE_S``. To make room for a new one, it
cuts off the client that has let its thread wait longest, if its thread waits for it now. So slow clients take no places
from others.
"""

import asyncio
import io
import logging
import socket
import threading
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from socketserver import BaseServer
from types import SimpleNamespace
from typing import BinaryIO, Final, NamedTuple, cast
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.types import WSGIApplication

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.admin.request_socket import RequestSocket
from kafka_quota_proxy.proxy.admin.status.event_streams import EventStreams
from kafka_quota_proxy.proxy.rules.codec import MAX_BODY_BYTES
from kafka_quota_proxy.proxy.runtime.isolation import repeated, report
from kafka_quota_proxy.proxy.server.clients.acceptor import cannot_listen

log = logging.getLogger(__name__)

# Prometheus keeps at most one connection open, and a probe keeps none open.
MAX_WAITING: Final = 256
# Enough for two Prometheus servers and some operators.
MAX_REQUESTS: Final = 8
# A test may ask for throttles from many threads at once.
MAX_TEST_REQUESTS: Final = 64
_WAIT_TIMEOUT_S: Final = 5.0
_SOCKET_TIMEOUT_S: Final = 5.0  # for each single read or write of a thread
_DEADLINE_S: Final = 30.0
# A client that lets its thread wait for so long in all gives way to a new one. Others rarely do so over any network.
_SLOW_S: Final = 0.1
_MAX_HEAD_BYTES: Final = 16_384
_READ_BYTES: Final = 16_384
# The rest of a refused request is taken in up to this size. Otherwise its client might see a reset in place of the
# response.
_MAX_REST_BYTES: Final = 8 * MAX_BODY_BYTES
_BACKLOG: Final = 1_024
# How many connections are accepted before other callbacks get their turn.
_BATCH: Final = 64
# How long accepting pauses after an error. Without a free file descriptor the socket would stay readable all the time.
_REST_S: Final = 0.1
_OK: Final = b"HTTP/1.0 200 "
_END: Final = (b"\n\r\n", b"\n\n")
_TOO_LARGE: Final = (
    "431 Request Header Fields Too Large",
    f"the head of a request may have at most {_MAX_HEAD_BYTES} bytes\n",
)


class AdminPort:
    """Listens on one address, and answers HTTP requests once ``open`` is called. Use it on the event loop's thread.

    Args:
        bind: The address to listen on.
        location: The path of keys that leads to this address in the configuration file, for error messages.
        application: The WSGI application. It runs on the event loop for probes, and in threads for other requests.
        probes: The paths of the probes, which the application must answer without I/O.
        max_requests: How many other requests are answered at a time. A further one takes the place of a slow client's.
            If there is none, it is refused.
        streams: The streams of events, by path. The application must answer these paths without I/O. If its status is
            200, the stream takes over the connection.

    Attributes:
        address: The listening address. If ``bind`` has port 0, this address has the port that the system chose.

    Raises:
        StartError: The address cannot be bound.
    """

    def __init__(
        self,
        bind: Address,
        location: tuple[str, ...],
        application: WSGIApplication,
        probes: Container[str],
        max_requests: int = MAX_REQUESTS,
        streams: Mapping[str, EventStreams] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams = streams or {}
        self._probes = probes
        self._max_requests = max_requests
        self._listener = _listener(bind, location)
        self.address = Address(host=bind.host, port=self._listener.getsockname()[1])
        # The variables that WSGIRequestHandler reads from its server object.
        environ = {
            "SERVER_NAME": bind.host,
            "SERVER_PORT": str(self.address.port),
            "GATEWAY_INTERFACE": "CGI/1.1",
            "REMOTE_HOST": "",
            "CONTENT_LENGTH": "",
            "SCRIPT_NAME": "",
        }
        self._site = SimpleNamespace(base_environ=environ, get_app=lambda: application)
        self._waiting: dict[socket.socket, _Waiting] = {}  # in the order of their arrival
        self._answered: dict[socket.socket, _Answered] = {}  # connections that threads answer now
        self._rest: asyncio.TimerHandle | None = None

    @repeated
    def open(self) -> None:
        """Start accepting connections."""
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Stop accepting connections, and close all open ones."""
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for one in list(self._waiting.values()):
            self._drop(one)
        for answered in self._answered.values():
            answered.timer.cancel()
            _cut(answered.client.connection)
        for streams in self._streams.values():
            streams.close()

    # -- on the event loop --

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has left
                continue
            except OSError as error:
                log.warning("the admin port accepts no connections for now: %s", error)
                self._loop.remove_reader(self._listener)
                self._rest = self._loop.call_later(_REST_S, self.open)
                return
            connection.setblocking(False)
            one = _Waiting(connection, str(peer[0]))
            self._watch(one)
            self._continue(one)  # most requests have arrived by the time their connections are accepted

    def _watch(self, one: "_Waiting") -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._drop(next(iter(self._waiting.values())))
        self._waiting[one.connection] = one
        one.timer = self._loop.call_later(_WAIT_TIMEOUT_S, self._drop, one)
        self._loop.add_reader(one.connection, self._continue, one)

    def _continue(self, one: "_Waiting") -> None:
        """Read more of a request, or write more of its response, because the socket of the connection is ready."""
        try:
            if one.answer:
                self._write(one)
            elif one.left_bytes:
                self._skip(one)
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
        searched = max(0, len(one.head) - len(_END[0]))
        one.head += read
        if any(one.head.find(end, searched) >= 0 for end in _END):
            self._answer(one)
        elif len(one.head) > _MAX_HEAD_BYTES:
            one.left_bytes = _MAX_REST_BYTES
            self._send(one, _plain(*_TOO_LARGE))

    def _skip(self, one: "_Waiting") -> None:
        read = one.connection.recv(min(_READ_BYTES, one.left_bytes))
        one.left_bytes -= len(read)
        if not read or not one.left_bytes:
            self._drop(one)

    def _answer(self, one: "_Waiting") -> None:
        head = bytes(one.head)
        one.left_bytes = 0 if head.startswith(b"GET ") else _MAX_REST_BYTES
        method, _, target = head.partition(b"\r")[0].decode("latin-1").partition(" ")
        path = target.partition(" ")[0].partition("?")[0] if method == "GET" else ""
        if path in self._streams:
            self._stream(one, self._streams[path], self._answer_to(one, head))
        elif path in self._probes:
            self._send(one, self._answer_to(one, head))
        elif self._has_room():
            self._forget(one)
            timer = self._loop.call_later(_DEADLINE_S, _cut, one.connection)
            request = RequestSocket(head, one.connection)
            answered = self._answered[one.connection] = _Answered(one, request, timer)
            threading.Thread(target=self._serve, args=(answered,), name="admin", daemon=True).start()
        else:
            text = f"{self._max_requests} requests are being answered; try again\n"
            self._send(one, _plain("503 Service Unavailable", text))

    def _has_room(self) -> bool:
        """Return whether a thread may be started, after a slow client has been cut off where that is necessary."""
        if len(self._answered) >= self._max_requests:
            slowest = max(self._answered.values(), key=lambda one: one.request.waiting_s())
            if slowest.request.waiting_s() < _SLOW_S:
                return False
            self._forget_answered(slowest)
            _cut(slowest.client.connection)
        return True

    def _answer_to(self, one: "_Waiting", head: bytes) -> bytes:
        answer = io.BytesIO()
        _Request(self._site, io.BytesIO(head), answer, one.peer).handle()
        return answer.getvalue()

    def _stream(self, one: "_Waiting", streams: EventStreams, answer: bytes) -> None:
        if answer.startswith(_OK):
            self._forget(one)
            streams.add(one.connection, answer)
        else:
            self._send(one, answer)

    def _send(self, one: "_Waiting", answer: bytes) -> None:
        one.answer = answer
        self._loop.remove_reader(one.connection)
        self._loop.add_writer(one.connection, self._continue, one)
        self._write(one)

    def _write(self, one: "_Waiting") -> None:
        one.answer = one.answer[one.connection.send(one.answer) :]
        if not one.answer and one.left_bytes:
            self._loop.remove_writer(one.connection)
            self._loop.add_reader(one.connection, self._continue, one)
            one.connection.shutdown(socket.SHUT_WR)
        elif not one.answer:
            self._drop(one)

    def _forget(self, one: "_Waiting") -> None:
        """Stop watching a connection on the event loop, without closing it."""
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
    def _finished(self, answered: "_Answered") -> None:
        client = answered.client
        if self._forget_answered(answered) and client.left_bytes:
            client.connection.setblocking(False)
            self._watch(client)
        else:
            client.connection.close()

    def _forget_answered(self, answered: "_Answered") -> bool:
        answered.timer.cancel()
        return self._answered.pop(answered.client.connection, None) is not None

    # -- in a thread --

    def _serve(self, answered: "_Answered") -> None:
        try:
            connection, peer = answered.client.connection, answered.client.peer
            connection.settimeout(_SOCKET_TIMEOUT_S)
            with io.BufferedReader(answered.request) as incoming, io.BufferedWriter(answered.request) as outgoing:
                _Request(self._site, incoming, outgoing, peer).handle()
        except OSError:
            log.debug("admin request from %s failed", answered.client.peer, exc_info=True)
        except Exception as error:  # noqa: BLE001 - as above
            report(error)
        finally:
            with suppress(OSError):
                answered.client.connection.shutdown(socket.SHUT_WR)
            try:
                self._loop.call_soon_threadsafe(self._finished, answered)
            except RuntimeError:  # the loop is closed
                answered.client.connection.close()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A connection that the event loop serves. Its request is not complete yet, or its response is not fully sent.

    After the response, at most ``left_bytes`` more bytes of the request are read, and nothing is done with them.
    """

    connection: socket.socket
    peer: str
    head: bytearray = field(default_factory=bytearray)
    answer: bytes = b""
    left_bytes: int = 0
    timer: asyncio.TimerHandle | None = None


class _Answered(NamedTuple):
    """A request that a thread answers. ``timer`` cuts it off at the deadline."""

    client: "_Waiting"
    request: RequestSocket
    timer: asyncio.TimerHandle


class _Request(WSGIRequestHandler):
    """Runs the WSGI application for one request. It reads from ``incoming`` and writes the response to ``outgoing``."""

    def __init__(
        self,
        site: SimpleNamespace,
        incoming: BinaryIO | io.BufferedReader,
        outgoing: BinaryIO | io.BufferedWriter,
        peer: str,
    ) -> None:
        self.server = cast("BaseServer", site)
        self.client_address = (peer, 0)
        self.rfile = incoming  # type: ignore[assignment]
        self.wfile = outgoing  # type: ignore[assignment]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Do nothing, because a log line for each scrape of the metrics would flood the log."""

    def get_stderr(self) -> io.StringIO:
        """Return a stream that takes wsgiref's tracebacks and that nothing reads."""
        return io.StringIO()


def _listener(bind: Address, location: tuple[str, ...]) -> socket.socket:
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
    with suppress(OSError):  # it may have just ended
        connection.shutdown(socket.SHUT_RDWR)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
    connection.close()
