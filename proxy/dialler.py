"""Connections to brokers: dialled for clients, and probed where no client comes."""

import asyncio
import logging
from time import monotonic
from typing import Final

from proxy.connection import BrokerConnection, ClientConnection
from proxy.upstream import Upstream, local_address

log = logging.getLogger(__name__)

# Brokers listen with a backlog of 50 (socket.listen.backlog.size) and drop what is above; a dropped SYN costs its
# client a second. A storm of clients must not become a storm of dials.
_MAX_DIALS: Final = 32
_DIAL_TIMEOUT_S: Final = 10.0
_PROBE_EVERY_S: Final = 2.0
_WARN_EVERY_S: Final = 10.0


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
                await asyncio.get_running_loop().create_connection(
                    lambda: BrokerConnection(connection), address.host, address.port, local_addr=self._local_addr
                )
        except TimeoutError:
            _failed(upstream, f"no answer in {_DIAL_TIMEOUT_S:.0f} s; is a firewall in between?")
            connection.broker_failed("upstream_timeout")
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that is no name in DNS, such as kafka..local
            _failed(upstream, f"{error}; is the broker running, and is this its address?")
            connection.broker_failed("upstream_refused")
        else:
            upstream.failures = 0
            upstream.is_reachable = True


async def probe(upstream: Upstream, source: str | None) -> None:
    """Keep ``is_reachable`` true to life, also when no client comes; until cancelled."""
    local_addr = local_address(source)
    while True:
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                _, writer = await asyncio.open_connection(
                    upstream.address.host, upstream.address.port, local_addr=local_addr
                )
            writer.close()
            upstream.is_reachable = True
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            upstream.is_reachable = False
        await asyncio.sleep(_PROBE_EVERY_S)


def _failed(upstream: Upstream, reason: str) -> None:
    upstream.is_reachable = False
    upstream.failures += 1
    if monotonic() - upstream.last_warning_s >= _WARN_EVERY_S:
        upstream.last_warning_s = monotonic()
        log.warning("cannot reach upstream %s (%d times): %s", upstream.address, upstream.failures, reason)
