"""Listeners, dials and sweeps: everything of the proxy that is not one connection.

One process, one loop. ``Server.run`` opens the listeners and serves until ``stop``; ``apply`` puts a new configuration
in force without touching a connection.
"""

import asyncio
import gc
import logging
import select
import sys
from collections.abc import Callable, Coroutine
from time import monotonic, monotonic_ns
from typing import Final

from config.model import Address, Listener, ProxyConfig
from proxy.account import Listening, Policy
from proxy.connection import BrokerConnection, ClientConnection, Port
from proxy.counters import Counters
from proxy.quota.broker import BrokerQuotas
from proxy.throttle_log import ThrottleLog

log = logging.getLogger(__name__)

# Brokers listen with a backlog of 50 (socket.listen.backlog.size) and drop what is above; a dropped SYN costs its
# client a second. A storm of clients must not become a storm of dials.
_MAX_DIALS: Final = 32
_DIAL_TIMEOUT_S: Final = 10.0
# asyncio's own default is 100: too small for clients that all come back at once.
_BACKLOG: Final = 4096
_EXPIRY_EVERY_S: Final = 30.0
_SWEEP_EVERY_S: Final = 1.0
_PROBE_EVERY_S: Final = 2.0
_WARN_EVERY_S: Final = 10.0


class Upstream:
    """One broker's address: its quota state, and whether it could be reached when last tried."""

    def __init__(self, address: Address, quotas: BrokerQuotas) -> None:
        self.address = address
        self.quotas = quotas
        self.is_reachable = False
        self.failures = 0  # dials that failed since the last that did not
        self.last_warning_s = float("-inf")


class Server:
    """The running proxy."""

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self.upstreams: dict[Address, Upstream] = {}
        self.ports: list[Port] = []
        self.is_listening = False
        self._stopping = asyncio.Event()
        self._dials = asyncio.Semaphore(_MAX_DIALS)
        self._dialling: set[asyncio.Task[None]] = set()
        self._tasks: asyncio.TaskGroup
        self._throttle_log = ThrottleLog()
        for listener in config.listeners:
            upstream = self.upstreams.get(listener.upstream)
            if upstream is None:
                quotas = BrokerQuotas(config, shaping=listener.shaping)
                upstream = self.upstreams[listener.upstream] = Upstream(listener.upstream, quotas)
            listening = Listening(_policy(config, listener), upstream.quotas, Counters())
            self.ports.append(
                Port(name=listener.name, upstream=upstream.address, listening=listening, dial=self._start_dial)
            )

    def apply(self, config: ProxyConfig) -> None:
        """Put the rules and policies of ``config`` in force, from the next request on. Listeners stay as they are."""
        by_name = {listener.name: listener for listener in config.listeners}
        shapings = {listener.upstream: listener.shaping for listener in config.listeners}
        for port in self.ports:
            listener = by_name.get(port.name)
            if listener is not None:
                port.listening.policy = _policy(config, listener)
        for upstream in self.upstreams.values():
            upstream.quotas.update(config, shaping=shapings.get(upstream.address))
        self.config = config

    def stop(self) -> None:
        """Stop serving: close listeners and connections, and let ``run`` return."""
        self._stopping.set()

    async def run(self, *, beside: Callable[[], Coroutine[None, None, None]] | None = None) -> None:
        """Serve until ``stop``.

        Args:
            beside: what is to run for as long as the server does; its failure is the server's.

        Raises:
            OSError: a listener's address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(
                port.accept, listener.bind.host, listener.bind.port, backlog=_BACKLOG, start_serving=False
            )
            for port, listener in zip(self.ports, self.config.listeners, strict=True)
        ]
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        async with asyncio.TaskGroup() as self._tasks:
            # Not before: a client may send its first request at once, and dials are tasks.
            for port, listener, server in zip(self.ports, self.config.listeners, servers, strict=True):
                await server.start_serving()
                bound = Address(host=listener.bind.host, port=server.sockets[0].getsockname()[1])
                # stdout, not the log: scripts wait for this line.
                sys.stdout.write(f"listening on {bound} ({port.name}) -> {port.upstream}\n")
            sys.stdout.flush()
            self.is_listening = True
            background = [
                self._tasks.create_task(self._sweep()),
                self._tasks.create_task(self._expire()),
                *(self._tasks.create_task(self._probe(upstream)) for upstream in self.upstreams.values()),
                *([self._tasks.create_task(beside())] if beside else []),
            ]
            await self._stopping.wait()
            for server in servers:
                server.close()
            for port in self.ports:
                for connection in tuple(port.connections):
                    connection.close("shutdown")
            for task in (*background, *self._dialling):
                task.cancel()

    # -- dials --

    def _start_dial(self, connection: ClientConnection) -> None:
        task = self._tasks.create_task(self._dial(connection))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, connection: ClientConnection) -> None:
        upstream = self.upstreams[connection.port.upstream]
        address = upstream.address
        try:
            # The wait for a turn counts: behind an upstream that does not answer, clients come faster than dials end.
            async with asyncio.timeout(_DIAL_TIMEOUT_S), self._dials:
                if connection.is_closed:
                    return
                await asyncio.get_running_loop().create_connection(
                    lambda: BrokerConnection(connection), address.host, address.port
                )
        except TimeoutError:
            self._dial_failed(upstream, f"no answer in {_DIAL_TIMEOUT_S:.0f} s; is a firewall in between?")
            connection.broker_failed("upstream_timeout")
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that is no name in DNS, such as kafka..local
            self._dial_failed(upstream, f"{error}; is the broker running, and is this its address?")
            connection.broker_failed("upstream_refused")
        else:
            upstream.failures = 0
            upstream.is_reachable = True

    def _dial_failed(self, upstream: Upstream, reason: str) -> None:
        upstream.is_reachable = False
        upstream.failures += 1
        if monotonic() - upstream.last_warning_s >= _WARN_EVERY_S:
            upstream.last_warning_s = monotonic()
            log.warning("cannot reach upstream %s (%d times): %s", upstream.address, upstream.failures, reason)

    # -- what recurs --

    async def _probe(self, upstream: Upstream) -> None:
        """Keep ``is_reachable`` true to life, also when no client comes."""
        while True:
            try:
                async with asyncio.timeout(_DIAL_TIMEOUT_S):
                    _, writer = await asyncio.open_connection(upstream.address.host, upstream.address.port)
                writer.close()
                upstream.is_reachable = True
            except (OSError, UnicodeError):  # TimeoutError is an OSError
                upstream.is_reachable = False
            await asyncio.sleep(_PROBE_EVERY_S)

    async def _sweep(self) -> None:
        """Each second, say who is throttled and look after clients that are not being read."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            now_ms = monotonic_ns() // 1_000_000
            for port in self.ports:
                throttled = port.listening.counters.newly_throttled
                port.listening.counters.newly_throttled = {}
                self._throttle_log.tell(throttled, now_ms=now_ms)
                _lose_the_lost(port)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_EVERY_S)
            for upstream in self.upstreams.values():
                for _ in upstream.quotas.expire_slices(now_ms=monotonic_ns() // 1_000_000):
                    await asyncio.sleep(0)


def _policy(config: ProxyConfig, listener: Listener) -> Policy:
    return Policy(listener.max_frame_size_bytes, listener.enforcement or config.enforcement, listener.inter_broker)


def _lose_the_lost(port: Port) -> None:
    """Close paused clients whose connection is broken. One that closed its side in order is still owed its answers."""
    poller = select.poll()
    paused: dict[int, ClientConnection] = {}
    for connection in port.connections:
        descriptor = connection.paused_socket
        if descriptor is not None:
            paused[descriptor] = connection
            poller.register(descriptor, 0)  # POLLERR and POLLHUP are always told
    for descriptor, _ in poller.poll(0) if paused else ():
        paused[descriptor].lose()
