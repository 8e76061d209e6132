"""Dials brokers for clients, and probes regularly which brokers can be reached."""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, cast

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.runtime.isolation import alone, isolated
from kafka_quota_proxy.proxy.server.brokers.broker import Upstream, local_address
from kafka_quota_proxy.proxy.server.brokers.faults import fault_of
from kafka_quota_proxy.proxy.server.brokers.probe import try_broker
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.tls.transport import TlsTransport

# Brokers listen with a backlog of 50 (socket.listen.backlog.size) and drop more; a dropped SYN costs its client a
# second. A storm of clients must not become a storm of dials. The bound holds per broker, because a broker that drops
# every SYN keeps its dials until they time out.
_MAX_DIALS: Final = 32
_DIAL_TIMEOUT_S: Final = 10.0
_PROBE_EVERY_S: Final = 2.0
_PROBES_PER_S: Final = 10.0


class BrokerConnection(asyncio.Protocol):
    """The protocol of a connection to a broker. It passes every event to the client's ``ClientConnection``."""

    __slots__ = ("_owner", "_transport")

    def __init__(self, owner: ClientConnection) -> None:
        self._owner = owner
        self._transport: asyncio.BaseTransport | None = None

    def fail(self) -> None:
        """Abort the transport after an internal error, and close the client's connection too."""
        if self._transport is not None:
            cast(asyncio.Transport, self._transport).abort()
        self._owner.fail()

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, so that ``fail`` can abort it even before the dial has ended."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass the bytes from the broker to ``ClientConnection.broker_received``."""
        self._owner.broker_received(data)

    @isolated
    def pause_writing(self) -> None:
        """Report to the client's connection that the write buffer to the broker is full."""
        self._owner.broker_full(True)

    @isolated
    def resume_writing(self) -> None:
        """Report to the client's connection that the write buffer to the broker has room."""
        self._owner.broker_full(False)

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss of the transport to ``ClientConnection.broker_lost``."""
        self._owner.broker_lost(exc)


class BrokerDialer:
    """Connects clients to their brokers, and limits how many dials to one address run at the same time.

    ``source`` is the address of this machine to dial from. If it is None, the system chooses the address.
    """

    def __init__(self, tasks: asyncio.TaskGroup, source: str | None) -> None:
        self._tasks = tasks
        self._local_addr = local_address(source)
        self._slots: defaultdict[Address, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_MAX_DIALS))
        self._dials: set[PendingDial] = set()
        self._is_over = False

    def start(self, connection: ClientConnection) -> "PendingDial":
        """Begin a dial to the client's broker. It ends with a call of ``broker_connected`` or ``broker_failed``."""
        dial = PendingDial()
        if self._is_over:
            asyncio.get_running_loop().call_soon(connection.close, "shutdown")
            return dial
        broker = BrokerConnection(connection)
        dial.task = self._tasks.create_task(alone(partial(self._dial, dial, connection, broker), fail=broker.fail))
        self._dials.add(dial)
        dial.task.add_done_callback(lambda _: self._dials.discard(dial))
        return dial

    def cancel(self) -> None:
        """Cancel all dials, and start no more. A client that was accepted at the end of a drain may ask for one yet."""
        self._is_over = True
        for dial in self._dials:
            dial.give_up()

    async def _dial(self, dial: "PendingDial", connection: ClientConnection, broker: BrokerConnection) -> None:
        async with self._slots[connection.route.upstream.address]:
            dial.is_waiting = False
            await self._connect(connection, broker)

    async def _connect(self, connection: ClientConnection, broker: BrokerConnection) -> None:
        upstream = connection.route.upstream
        address = upstream.address
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                if upstream.tls is None:
                    transport, _ = await asyncio.get_running_loop().create_connection(
                        lambda: broker, address.host, address.port, local_addr=self._local_addr
                    )
                else:
                    transport = await self._dial_tls(broker, upstream, upstream.tls.context)
        except (OSError, UnicodeError) as error:  # TimeoutError and SSLError are OSErrors
            upstream.failed(fault_of(error, address, upstream.tls, after_s=_DIAL_TIMEOUT_S))
            is_tls = isinstance(error, ssl.SSLError)
            is_late = isinstance(error, TimeoutError)
            connection.broker_failed(f"upstream_{'timeout' if is_late else 'tls' if is_tls else 'refused'}")
        else:
            upstream.dialled()
            # Call this only after the timeout has ended. If the timeout fires while the dial completes, uvloop closes
            # the transport without a call to its protocol.
            connection.broker_connected(transport)

    async def _dial_tls(
        self, broker: BrokerConnection, upstream: Upstream, context: ssl.SSLContext
    ) -> asyncio.Transport:
        address = upstream.address
        done = asyncio.get_running_loop().create_future()

        def welcome(_: ssl.SSLObject) -> BrokerConnection:
            done.set_result(None)
            return broker

        def fail(_: TlsTransport, error: Exception) -> None:
            if not done.done():
                done.set_exception(error)
            elif isinstance(error, ssl.SSLError):
                # In TLS 1.3 the broker checks our certificate after our side of the handshake is done.
                upstream.failed(fault_of(error, address, upstream.tls, after_s=_DIAL_TIMEOUT_S, is_connected=True))

        transport = TlsTransport(context, server_hostname=address.host, welcome=welcome, fail=fail)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: cast(asyncio.BaseProtocol, transport),
                address.host,
                address.port,
                local_addr=self._local_addr,
            )
            await done
        except BaseException:
            done.cancel()
            transport.abort()
            raise
        return cast(asyncio.Transport, transport)


class PendingDial:
    """A client's dial to its broker. While it ``is_waiting``, others to the same address have to end first."""

    __slots__ = ("is_waiting", "task")

    def __init__(self) -> None:
        self.is_waiting = True
        self.task: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        """Cancel the dial without notifying the client's connection."""
        if self.task is not None:
            self.task.cancel()


class Prober:
    """Tries regularly whether brokers can be reached, and records it in each ``Upstream``.

    ``upstreams`` returns those to try. ``source`` is the address of this machine to dial from, or None.
    """

    def __init__(self, upstreams: Callable[[], Collection[Upstream]], source: str | None) -> None:
        self._upstreams = upstreams
        self._source = source
        self._present: set[Upstream] = set()  # reached at the last attempt
        self._attempts: dict[Upstream, asyncio.Task[None]] = {}
        self._is_running = False

    def add(self, upstream: Upstream) -> None:
        """Try a new broker at once. ``run`` does so with those that are added before it is called."""
        if self._is_running:
            self._start(upstream)

    async def run(self) -> None:
        """Try each broker every two seconds, or less often if there are many, until cancelled."""
        self._is_running = True
        try:
            while True:
                upstreams = self._upstreams()
                for upstream in upstreams:
                    self._start(upstream)
                await asyncio.sleep(max(_PROBE_EVERY_S, len(upstreams) / _PROBES_PER_S))
        finally:
            self._is_running = False
            for attempt in self._attempts.values():
                attempt.cancel()
            await asyncio.gather(*self._attempts.values(), return_exceptions=True)  # until their sockets are closed

    def _start(self, upstream: Upstream) -> None:
        last = self._attempts.get(upstream)
        if last is None or last.done():
            work = alone(partial(self._try, upstream))
            self._attempts[upstream] = asyncio.get_running_loop().create_task(work)

    async def _try(self, upstream: Upstream) -> None:
        address = upstream.address
        peer, fault = await try_broker(address, self._source, upstream.tls)
        if upstream.address != address:  # the broker has moved meanwhile
            return
        if fault is None:
            upstream.reached()
            upstream.led_to(peer, is_back=upstream not in self._present)
            self._present.add(upstream)
        else:
            self._present.discard(upstream)
            upstream.failed(fault, is_probe=True)
