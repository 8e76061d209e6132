"""Taking connections from a bound socket: who may come in, and whose connection it is.

The loop's own servers accept whatever comes and know no bound. Here a connection above a limit is closed before
anything is allocated for it, and the PROXY protocol's header is taken off the socket before a transport, plain or TLS,
reads the first byte of the connection proper.

Quotas on the creation of connections (``proxy.quota.connections``) come first. Where accepting pauses, the connection
that went over the limit is held until the pause is over, and what comes after it waits in the system's backlog.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from time import monotonic_ns
from typing import Final, NamedTuple, cast

from kafka_quota_proxy.config.model import Address, ProxyProtocol
from kafka_quota_proxy.protocol.errors import MalformedProxyHeader
from kafka_quota_proxy.protocol.proxy_protocol import MAX_HEADER_BYTES, read_proxy_header
from kafka_quota_proxy.proxy.background.isolation import alone, repeated, report
from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.server.connection import ClientConnection
from kafka_quota_proxy.proxy.server.connection_limits import (
    CONNECTION_CREATION_RATE,
    LOGIN_TIMEOUT,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    Place,
)
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

log = logging.getLogger(__name__)

# asyncio's own default is 100: too small for clients that all come back at once.
BACKLOG: Final = 4096
# How many are accepted before others get their turn.
_BATCH: Final = 64
# Out of file descriptors there is no way to turn to a client, nor to close the connection that waits.
_REST_S: Final = 1.0
_HEADER_TIMEOUT_S: Final = 10.0
_HINTS: Final = {
    errno.EADDRINUSE: "stop what listens there, or write another port",
    errno.EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE; write a higher one",
}
_UNTRUSTED: Final = "proxy_source"
_PAUSED: Final = "max_connection_creation_rate"


def bind(address: Address) -> list[socket.socket]:
    """Listen on all that the host of an address stands for.

    Raises:
        OSError: Not possible; its text names the address.
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


def cannot_listen(address: Address, error: OSError) -> str:
    """Return what cannot be bound, why, and what to do."""
    hint = _HINTS.get(error.errno or 0, "write an address of this machine")
    # create_server says the address again.
    return f"cannot listen on {address}: {(error.strerror or str(error)).partition(' (while ')[0]}; {hint}"


class Arrival(NamedTuple):
    """A connection that was accepted, and when it was recorded for its listener."""

    client: socket.socket
    source: tuple[str, int]
    quota: ListenerQuota
    came_ms: int


class Acceptor:
    """Lets the clients of one bound socket in, from when it is made to ``close``.

    Args:
        bound: Listens already.
        listener: Its state.
        accept: Gives the protocol of a new connection.
        quota: Gives what limits how fast connections come; asked anew for each, for a broker's port may change hands.
        tasks: Where clients wait until they have said whose connection it is.
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
        self._rest: asyncio.TimerHandle | None = None
        self._held: Arrival | None = None  # until the pause is over that it brought about
        self._awaiting_header: set[asyncio.Task[None]] = set()
        self._loop.add_reader(bound, self._take)

    def close(self) -> None:
        """Take no more; who has not said yet whose connection it is will not be taken either."""
        for task in self._awaiting_header:
            task.cancel()
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
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
            except ConnectionError:  # gone before its turn
                continue
            except OSError as error:
                if self._listener.may_warn("accept"):
                    log.error("listener %s takes no connections for now: %s", self._listener.name, error)  # noqa: TRY400
                self._pause(_REST_S)
                return
            try:
                self._receive(client, (peer[0], peer[1]))
            except Exception as error:  # noqa: BLE001 - it ends one connection
                client.close()
                report(error)
            if self._rest is not None:
                return

    def _receive(self, client: socket.socket, source: tuple[str, int]) -> None:
        """Let a connection in, or hold it until the pause is over that it brings about."""
        client.setblocking(False)
        now_ms = monotonic_ns() // 1_000_000
        arrival = Arrival(client, source, self._quota(), now_ms)
        pause_ms = arrival.quota.record(now_ms=now_ms)
        if pause_ms:
            if self._listener.may_warn(_PAUSED):
                log.warning("listener %s takes no connections for %d ms: it is over its rate, or its broker is",
                            self._listener.name, pause_ms)  # fmt: skip
            self._held = arrival
            self._pause(pause_ms / 1_000)
        else:
            self._enter(arrival)

    def _pause(self, time_s: float) -> None:
        self._loop.remove_reader(self._bound)
        self._rest = self._loop.call_later(time_s, self._go_on)

    @repeated
    def _go_on(self) -> None:
        if self._rest is None:  # closed meanwhile
            return
        self._rest = None
        self._loop.add_reader(self._bound, self._take)
        if self._held is not None:
            held, self._held = self._held, None
            try:
                self._enter(held)
            except Exception as error:  # noqa: BLE001 - it ends one connection
                held.client.close()
                report(error)

    def _enter(self, arrival: Arrival) -> None:
        """Find a place for a connection, unless its address is known and comes too fast."""
        if self._listener.settings.proxy_protocol is None and (keep_ms := _keep_ms(arrival, arrival.source[0])):
            self._listener.refused_sockets.keep(arrival.client, keep_ms)
            self._refuse(CONNECTION_CREATION_RATE, arrival.source[0])
            return
        place = self._listener.occupancy.enter(self._listener.settings.max_connections)
        if place is not None:
            self._tasks.create_task(
                alone(partial(self._admit, arrival, place), fail=partial(_abandon, arrival.client, place))
            )
        else:
            arrival.client.close()
            self._refuse(MAX_CONNECTIONS, arrival.source[0])

    async def _admit(self, arrival: Arrival, place: Place) -> None:
        """See whose connection it is, and hand it over. Nothing that a client does makes this raise."""
        listener = self._listener
        client, source = arrival.client, arrival.source
        cause: str | None = None
        keep_ms = 0
        is_handed_over = False
        try:
            expected = listener.settings.proxy_protocol
            if expected is not None:
                source, cause = await self._said(client, expected, source)
                if cause is None and (keep_ms := _keep_ms(arrival, source[0])):
                    cause = CONNECTION_CREATION_RATE
            if cause is None and not place.come_from(source, listener.settings.max_connections_per_ip):
                cause = MAX_CONNECTIONS_PER_IP
            if cause is None:
                protocol = listener.new_protocol(partial(self._welcome, place), place.leave)
                await self._loop.connect_accepted_socket(lambda: protocol, client)
                is_handed_over = True
        except OSError:  # gone already
            cause = "client_lost"
        finally:
            if not is_handed_over:
                place.leave()
                listener.refused_sockets.keep(client, keep_ms)
        if cause is not None:
            self._refuse(cause, source[0])

    def _welcome(self, place: Place) -> ClientConnection:
        connection = self._accept()
        connection.place = place
        return connection

    async def _said(
        self, client: socket.socket, expected: ProxyProtocol, source: tuple[str, int]
    ) -> tuple[tuple[str, int], str | None]:
        """Return whose connection it is by its header, or why it is refused."""
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


def _abandon(client: socket.socket, place: Place) -> None:
    place.leave()
    client.close()


def _keep_ms(arrival: Arrival, host: str) -> int:
    """Return for how long a connection is to be kept unserved, now that its address is known."""
    return arrival.quota.record_address(host, arrived_ms=arrival.came_ms, now_ms=monotonic_ns() // 1_000_000)


async def _read_header(loop: asyncio.AbstractEventLoop, client: socket.socket) -> tuple[str, int] | None:
    """Take the header off a connection, and nothing behind it.

    Raises:
        EOFError: The connection has ended.
        OSError: It broke.
        MalformedProxyHeader: It begins with something else.
    """
    come = b""
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
            header = read_proxy_header(come + peeked)
            # What is not enough for a header belongs to it.
            come += client.recv(len(peeked) if header is None else header.size_bytes - len(come))
            if header is not None:
                return header.source
    finally:
        loop.remove_reader(client)
