"""Accepts connections on a listening socket, enforces connection limits, and finds out the address of each client.

Unlike asyncio's own servers, this module closes a connection above a limit before it allocates anything for the
connection. It reads a PROXY protocol header directly from the socket, before the plain or TLS transport is created.

If a quota on new connections (``proxy.quota.connections``) pauses the listener, the connection that exceeded the quota
is held until the pause is over. Later connections wait in the system's backlog.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address
from time import monotonic_ns
from typing import Final, NamedTuple, cast

from kafka_quota_proxy.config.model import Address, ProxyProtocol
from kafka_quota_proxy.protocol.errors import MalformedProxyHeader
from kafka_quota_proxy.protocol.proxy_protocol import MAX_HEADER_BYTES, read_proxy_header
from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.runtime.isolation import alone, repeated, report
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.clients.connection_limits import (
    CONNECTION_CREATION_RATE,
    LOGIN_TIMEOUT,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    CountedConnection,
)
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

log = logging.getLogger(__name__)

# asyncio's default of 100 is too small for clients that all reconnect at once.
BACKLOG: Final = 4096
# How many connections are accepted before the event loop runs other callbacks.
_BATCH: Final = 64
# How long accepting pauses after an error. Without a free file descriptor, for example, a waiting connection can be
# neither accepted nor closed.
_PAUSE_S: Final = 1.0
_HEADER_TIMEOUT_S: Final = 10.0
_HINTS: Final = {
    errno.EADDRINUSE: "stop the process that listens there, or use another port",
    errno.EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE; use a higher one",
}
_UNTRUSTED: Final = "proxy_source"
_PAUSED: Final = "max_connection_creation_rate"


def bind(address: Address) -> list[socket.socket]:
    """Return one listening socket for each IP address to which the host of ``address`` resolves.

    Raises:
        OSError: If an address cannot be bound. The text of the error names the address.
    """
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, sockaddr in dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in found):
            bound.append(socket.create_server(sockaddr[:2], family=family, backlog=BACKLOG))
    except OSError as error:
        for one in bound:
            one.close()
        raise OSError(error.errno, cannot_listen(address, error)) from error
    return bound


def refuse_waiting(sockets: Iterable[socket.socket], listener: ListenerState) -> None:
    """Close the connections that wait in the backlogs of ``sockets``, because no broker can be reached."""
    for one in sockets:
        one.setblocking(False)
        for _ in range(BACKLOG):
            try:
                client, _ = one.accept()
            except OSError:  # there are no more, or no descriptor is left
                break
            client.close()
            listener.counters.disconnect("upstream_refused")


def cannot_listen(address: Address, error: OSError) -> str:
    """Return the text of an error about binding ``address``. It names the address, the cause, and a remedy."""
    hint = _HINTS.get(error.errno or 0, "use an address of this machine")
    # create_server repeats the address.
    return f"cannot listen on {address}: {(error.strerror or str(error)).partition(' (while ')[0]}; {hint}"


class Arrival(NamedTuple):
    """An accepted connection that is not admitted yet, and the connection quota that it was charged to."""

    client: socket.socket
    source: tuple[str, int]
    quota: ListenerQuota
    served_ms: int  # the time from which on it could be served


class Acceptor:
    """Accepts the connections of clients on one listening socket until ``close`` is called.

    ``accept`` returns the protocol that serves a new client. ``quota`` returns the quota to which a new connection is
    charged. It is called for each connection, because the broker behind a port may change, and each broker has its own
    quotas.
    """

    def __init__(
        self,
        bound: socket.socket,
        listener: ListenerState,
        accept: Callable[[], ClientConnection],
        quota: Callable[[], ListenerQuota],
        tasks: asyncio.TaskGroup,
    ) -> None:
        bound.setblocking(False)
        self._bound = bound
        self._listener = listener
        self._accept = accept
        self._quota = quota
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._held: Arrival | None = None  # the connection that caused the pause
        self._awaiting_header: set[asyncio.Task[None]] = set()
        self._loop.add_reader(bound, self._take)

    def close(self) -> None:
        """Stop accepting connections. Close those that are held or have not sent their PROXY protocol header yet."""
        for task in self._awaiting_header:
            task.cancel()
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None
        if self._held is not None:
            self._held.client.close()
        self._loop.remove_reader(self._bound)
        self._bound.close()

    def _take(self) -> None:
        for _ in range(_BATCH):
            try:
                client, peer = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has closed the connection already
                continue
            except OSError as error:
                if self._listener.may_warn("accept"):
                    log.error("listener %s accepts no connections for now: %s", self._listener.name, error)  # noqa: TRY400
                self._pause(_PAUSE_S)
                return
            try:
                self._receive(client, (peer[0], peer[1]))
            except Exception as error:  # noqa: BLE001 - the error ends this connection only
                client.close()
                report(error)
            if self._resume_timer is not None:
                return

    def _receive(self, client: socket.socket, source: tuple[str, int]) -> None:
        """Charge a new connection to the listener's quota. If this pauses the listener, hold the connection."""
        client.setblocking(False)
        now_ms = monotonic_ns() // 1_000_000
        arrival = Arrival(client, source, self._quota(), now_ms)
        pause_ms = arrival.quota.record(now_ms=now_ms)
        if pause_ms:
            if self._listener.may_warn(_PAUSED):
                log.warning("listener %s accepts no connections for %d ms: too many connections to it or its broker",
                            self._listener.name, pause_ms)  # fmt: skip
            self._held = arrival
            self._pause(pause_ms / 1_000)
        else:
            self._enter(arrival)

    def _pause(self, time_s: float) -> None:
        self._loop.remove_reader(self._bound)
        self._resume_timer = self._loop.call_later(time_s, self._resume)

    @repeated
    def _resume(self) -> None:
        if self._resume_timer is None:  # the acceptor was closed in the meantime
            return
        self._resume_timer = None
        self._loop.add_reader(self._bound, self._take)
        if self._held is not None:
            held, self._held = self._held._replace(served_ms=monotonic_ns() // 1_000_000), None
            try:
                self._enter(held)
            except Exception as error:  # noqa: BLE001 - the error ends this connection only
                held.client.close()
                report(error)

    def _enter(self, arrival: Arrival) -> None:
        """Count a connection as open and admit it, unless its address connects too often or the listener is full."""
        if self._listener.settings.proxy_protocol is None and (keep_ms := _keep_ms(arrival, arrival.source[0])):
            self._listener.refused_sockets.keep(arrival.client, keep_ms)
            self._refuse(CONNECTION_CREATION_RATE, arrival.source[0])
            return
        counted = self._listener.open_count.enter(self._listener.settings.max_connections)
        if counted is not None:
            self._tasks.create_task(
                alone(partial(self._admit, arrival, counted), fail=partial(_abandon, arrival.client, counted))
            )
        else:
            arrival.client.close()
            self._refuse(MAX_CONNECTIONS, arrival.source[0])

    async def _admit(self, arrival: Arrival, counted: CountedConnection) -> None:
        """Find out the client's address, and check it. Then create the transport, or refuse the client."""
        listener = self._listener
        client, source = arrival.client, arrival.source
        cause: str | None = None
        keep_ms = 0
        is_handed_over = False
        try:
            expected = listener.settings.proxy_protocol
            if expected is not None:
                source, cause = await self._source_of(client, expected, source)
                if cause is None and (keep_ms := _keep_ms(arrival, source[0])):
                    cause = CONNECTION_CREATION_RATE
            if cause is None and not counted.come_from(source, listener.settings.max_connections_per_ip):
                cause = MAX_CONNECTIONS_PER_IP
            if cause is None:
                protocol = listener.new_protocol(partial(self._welcome, counted), counted.leave)
                await self._loop.connect_accepted_socket(lambda: protocol, client)
                is_handed_over = True
        except OSError:  # the client has closed the connection already
            cause = "client_lost"
        finally:
            if not is_handed_over:
                counted.leave()
                listener.refused_sockets.keep(client, keep_ms)
        if cause is not None:
            self._refuse(cause, source[0])

    def _welcome(self, counted: CountedConnection) -> ClientConnection:
        connection = self._accept()
        connection.counted = counted
        return connection

    async def _source_of(
        self, client: socket.socket, expected: ProxyProtocol, source: tuple[str, int]
    ) -> tuple[tuple[str, int], str | None]:
        """Read the client's address from a PROXY protocol header. Return it, and the cause of a refusal or None."""
        if expected.sources and not any(ip_address(source[0]) in network for network in expected.sources):
            return source, _UNTRUSTED
        timeout_ms = self._listener.settings.login_timeout_ms
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._awaiting_header.add(task)
        try:
            async with asyncio.timeout(_HEADER_TIMEOUT_S if timeout_ms is None else timeout_ms / 1_000):
                return await _read_header(self._loop, client) or source, None
        except TimeoutError:
            return source, LOGIN_TIMEOUT
        except MalformedProxyHeader as error:
            self._listener.counters.protocol_error(error.reason)
            return source, "protocol_error"
        except EOFError:
            return source, "client_closed"
        finally:
            self._awaiting_header.discard(task)

    def _refuse(self, cause: str, host: str) -> None:
        self._listener.counters.disconnect(cause)
        if cause not in ("client_closed", "client_lost"):
            level = logging.WARNING if self._listener.may_warn(cause) else logging.DEBUG
            log.log(level, "closed a connection from %s on listener %s: %s", host, self._listener.name, cause)


def _abandon(client: socket.socket, counted: CountedConnection) -> None:
    counted.leave()
    client.close()


def _keep_ms(arrival: Arrival, host: str) -> int:
    """Charge a new connection to the quota on new connections of its client's IP address, ``host``.

    Return 0 if the address is within its limit. Otherwise the connection must be refused. Then return for how many
    milliseconds to keep its socket open, so that the client does not connect again at once.
    """
    return arrival.quota.record_address(host, served_ms=arrival.served_ms, now_ms=monotonic_ns() // 1_000_000)


async def _read_header(loop: asyncio.AbstractEventLoop, client: socket.socket) -> tuple[str, int] | None:
    """Read a PROXY protocol header, and no byte after it. Return the client's address; None if it contains none."""
    received = b""
    is_readable = asyncio.Event()
    loop.add_reader(client, is_readable.set)
    try:
        while True:
            await is_readable.wait()
            is_readable.clear()
            try:
                peeked = client.recv(MAX_HEADER_BYTES, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                continue
            if not peeked:
                raise EOFError
            header = read_proxy_header(received + peeked)
            # While the header is incomplete, all bytes belong to it.
            received += client.recv(len(peeked) if header is None else header.size_bytes - len(received))
            if header is not None:
                return header.source
    finally:
        loop.remove_reader(client)
