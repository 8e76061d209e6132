"""Connections to brokers: dialled for clients, and probed where no client comes."""

import asyncio
import logging
import ssl
from contextlib import suppress
from time import monotonic
from typing import Final

from proxy.connection import BrokerConnection, ClientConnection
from proxy.tls import broker_fault
from proxy.tls_transport import TlsTransport
from proxy.upstream import Upstream, local_address

log = logging.getLogger(__name__)

# Brokers listen with a backlog of 50 (socket.listen.backlog.size) and drop what is above; a dropped SYN costs its
# client a second. A storm of clients must not become a storm of dials.
_MAX_DIALS: Final = 32
_DIAL_TIMEOUT_S: Final = 10.0
_PROBE_EVERY_S: Final = 2.0
_WARN_EVERY_S: Final = 10.0
_REFUSAL_S: Final = 0.2


class Dialler:
    """Dials, not too many at once.

    Args:
        tasks: What its tasks belong to.
        source: The address of this machine to dial from; None: the system's choice.
    """

    def __init__(self, tasks: asyncio.TaskGroup, source: str | None) -> None:
        self._tasks = tasks
        self._local_addr = local_address(source)
        self._turns = asyncio.Semaphore(_MAX_DIALS)
        self._running: set[asyncio.Task[None]] = set()

    def start(self, connection: ClientConnection) -> None:
        """Begin to dial the broker of a client's connection, which is told of the outcome."""
        task = self._tasks.create_task(self._dial(connection))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Dial no more."""
        for task in self._running:
            task.cancel()

    async def _dial(self, connection: ClientConnection) -> None:
        upstream = connection.gate.upstream
        address = upstream.address
        try:
            # The wait for a turn counts: behind an upstream that does not answer, clients come faster than dials end.
            async with asyncio.timeout(_DIAL_TIMEOUT_S), self._turns:
                if connection.is_closed:
                    return
                if upstream.tls is None:
                    await asyncio.get_running_loop().create_connection(
                        lambda: BrokerConnection(connection), address.host, address.port, local_addr=self._local_addr
                    )
                else:
                    await self._dial_tls(connection, upstream, upstream.tls.context)
        except TimeoutError:
            _failed(upstream, f"no answer in {_DIAL_TIMEOUT_S:.0f} s; is a firewall in between?")
            connection.broker_failed("upstream_timeout")
        except ssl.SSLError as error:
            _failed(upstream, broker_fault(error, upstream.tls, address.host))
            connection.broker_failed("upstream_tls")
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that is no name in DNS, such as kafka..local
            what = "TLS address" if upstream.tls else "address"
            _failed(upstream, f"{error}; is the broker running, and is this its {what}?")
            connection.broker_failed("upstream_refused")
        else:
            upstream.failures = 0
            upstream.is_reachable = True

    async def _dial_tls(self, connection: ClientConnection, upstream: Upstream, context: ssl.SSLContext) -> None:
        address = upstream.address
        done = asyncio.get_running_loop().create_future()

        def welcome(_: ssl.SSLObject) -> BrokerConnection:
            done.set_result(None)
            return BrokerConnection(connection)

        def fail(_: TlsTransport, error: Exception) -> None:
            if not done.done():
                done.set_exception(error)
            elif isinstance(error, ssl.SSLError):
                # In TLS 1.3 the broker sees our certificate when we are through with the handshake.
                _failed(upstream, broker_fault(error, upstream.tls, address.host))

        transport = TlsTransport(context, server_hostname=address.host, welcome=welcome, fail=fail)
        await asyncio.get_running_loop().create_connection(
            lambda: transport, address.host, address.port, local_addr=self._local_addr
        )
        try:
            await done
        except asyncio.CancelledError:
            transport.abort()
            raise


async def probe(upstream: Upstream, source: str | None) -> None:
    """Keep ``is_reachable`` true to life, also when no client comes; until cancelled."""
    local_addr = local_address(source)
    while True:
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await _knock(upstream, local_addr)
            upstream.is_reachable = True
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            upstream.is_reachable = False
        await asyncio.sleep(_PROBE_EVERY_S)


async def _knock(upstream: Upstream, local_addr: tuple[str, int] | None) -> None:
    """Connect, with a handshake where there is to be one, and leave.

    Raises:
        OSError: This cannot be done; ``ssl.SSLError`` is one.
    """
    reader, writer = await asyncio.open_connection(
        upstream.address.host,
        upstream.address.port,
        local_addr=local_addr,
        ssl=upstream.tls.context if upstream.tls else None,
    )
    try:
        if upstream.tls is not None:
            # A broker that refuses our certificate says so now, in TLS 1.3, or hangs up; else it says nothing.
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFUSAL_S):
                    await reader.read(1)
                raise ConnectionResetError("it hung up behind the TLS handshake")
    finally:
        writer.transport.abort()


def _failed(upstream: Upstream, reason: str) -> None:
    upstream.is_reachable = False
    upstream.failures += 1
    if monotonic() - upstream.last_warning_s >= _WARN_EVERY_S:
        upstream.last_warning_s = monotonic()
        log.warning("cannot reach upstream %s (%d times): %s", upstream.address, upstream.failures, reason)
