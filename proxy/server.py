"""Listeners and sweeps: everything of the proxy that is not one connection.

One process, one loop. ``Server.run`` opens the listeners and serves until ``stop``; ``apply`` puts a new configuration
in force without touching a connection.
"""

import asyncio
import gc
import logging
import select
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic_ns
from typing import Final, cast

from config.model import UNKNOWN, Address, ClientTls, Listener, ProxyConfig, UpstreamTls
from proxy.account import Listening, Policy
from proxy.connection import ClientConnection, Gate, Port
from proxy.counters import Counters
from proxy.dialler import Dialler, probe
from proxy.fleet import Fleet, Front
from proxy.quota.broker import BrokerQuotas
from proxy.throttle_log import ThrottleLog
from proxy.tls import TlsContext
from proxy.tls import watch as watch_tls
from proxy.tls_door import TlsDoor
from proxy.upstream import Upstream

log = logging.getLogger(__name__)

# asyncio's own default is 100: too small for clients that all come back at once.
_BACKLOG: Final = 4096
_EXPIRY_EVERY_S: Final = 30.0
_SWEEP_EVERY_S: Final = 1.0


class Server:
    """The running proxy.

    Raises:
        TlsFileError: A file of certificates or a key cannot be used.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self.config = self.started_with = config
        self.tls: dict[ClientTls | UpstreamTls, TlsContext] = {}
        self.ports: list[Port] = []
        self.fleets: dict[frozenset[Address], Fleet] = {}
        self.is_listening = False
        self._brokers: dict[Address, Upstream] = {}
        self._doors: list[Gate | Front] = []  # of each listener
        self._tls_doors: list[TlsDoor] = []
        self._stopping = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._dialler: Dialler
        self._throttle_log = ThrottleLog()
        for listener in config.listeners:
            port = Port(name=listener.name, counters=Counters(), dial=lambda client: self._dialler.start(client))
            self.ports.append(port)
            if listener.client_tls is not None:
                tls_door = TlsDoor(port, listener.client_tls, self._tls_context(listener.client_tls))
                self._tls_doors.append(tls_door)
                port.greet = tls_door.greet
            self._doors.append(self._door(listener, port))

    @property
    def upstreams(self) -> list[Upstream]:
        """All brokers behind the proxy that are known."""
        return [*self._brokers.values(), *(one for fleet in self.fleets.values() for one in fleet.upstreams)]

    def is_reachable(self) -> bool:
        """Whether clients get on: each broker of a listener's own answers, and of each cluster one at least."""
        fleets = self.fleets.values()
        return all(one.is_reachable for one in self._brokers.values()) and all(fleet.is_reachable for fleet in fleets)

    def apply(self, config: ProxyConfig) -> None:
        """Put the rules and policies of ``config`` in force, from the next request on. Listeners stay as they are."""
        self.config = config
        by_name = {listener.name: listener for listener in config.listeners}
        for port, door in zip(self.ports, self._doors, strict=True):
            listener = by_name.get(port.name)
            if listener is not None:
                door.policy = _policy(config, listener)
        for listener in config.listeners:
            upstream = self._brokers.get(listener.upstream) if listener.upstream else None
            if upstream is not None:
                upstream.quotas.update(config, shaping=listener.shaping)
            fleet = self.fleets.get(frozenset(listener.cluster.bootstrap_servers)) if listener.cluster else None
            if fleet is not None:
                fleet.update(config, listener.shaping)

    def _door(self, listener: Listener, port: Port) -> Gate | Front:
        """Return what lets a listener's clients in; listeners in front of the same brokers share their quotas."""
        config, policy = self.config, _policy(self.config, listener)
        tls = self._tls_context(listener.upstream_tls) if listener.upstream_tls else None
        if listener.cluster is not None:
            servers = frozenset(listener.cluster.bootstrap_servers)
            fleet = self.fleets.get(servers)
            if fleet is None:
                fleet = self.fleets[servers] = Fleet(listener.cluster.bootstrap_servers, config, listener.shaping, tls)
            return fleet.front(port, listener.bind.host, listener.cluster, policy)
        address = cast(Address, listener.upstream)
        upstream = self._brokers.get(address)
        if upstream is None:
            upstream = self._brokers[address] = Upstream(address, BrokerQuotas(config, shaping=listener.shaping), tls)
        return Gate(port, upstream, Listening(policy, upstream.quotas, port.counters))

    def _tls_context(self, settings: ClientTls | UpstreamTls) -> TlsContext:
        """Return the context of these settings: listeners that have the same share it."""
        context = self.tls.get(settings)
        if context is None:
            context = self.tls[settings] = TlsContext(settings)
        return context

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
                partial(port.protocol, door.accept),
                listener.bind.host,
                listener.bind.port,
                backlog=_BACKLOG,
                start_serving=False,
            )
            for port, door, listener in zip(self.ports, self._doors, self.config.listeners, strict=True)
        ]
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        async with asyncio.TaskGroup() as self._tasks:
            source = self.config.upstream_bind
            self._dialler = Dialler(self._tasks, source)
            # Not before: a client may send its first request at once, and dials are tasks.
            for listener, server in zip(self.config.listeners, servers, strict=True):
                await server.start_serving()
                bound = Address(host=listener.bind.host, port=server.sockets[0].getsockname()[1])
                # stdout, not the log: scripts wait for this line.
                sys.stdout.write(f"listening on {bound} ({listener.name}) -> {listener.upstream or listener.cluster}\n")
            sys.stdout.flush()
            self.is_listening = True
            background = [
                self._tasks.create_task(self._sweep()),
                self._tasks.create_task(self._expire()),
                self._tasks.create_task(watch_tls(self.tls.values())),
                *(self._tasks.create_task(probe(upstream, source)) for upstream in self._brokers.values()),
                *(self._tasks.create_task(fleet.run(self._tasks)) for fleet in self.fleets.values()),
                *([self._tasks.create_task(beside())] if beside else []),
            ]
            await self._stopping.wait()
            for server in servers:
                server.close()
            for fleet in self.fleets.values():
                fleet.close()
            for tls_door in self._tls_doors:
                tls_door.close()
            for port in self.ports:
                for connection in tuple(port.connections):
                    connection.close("shutdown")
            self._dialler.cancel()
            for task in background:
                task.cancel()

    # -- what recurs --

    async def _sweep(self) -> None:
        """Each second, say who is throttled and look after clients that are not being read."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            now_ms = monotonic_ns() // 1_000_000
            for port in self.ports:
                throttled = port.counters.newly_throttled
                port.counters.newly_throttled = {}
                self._throttle_log.tell(throttled, now_ms=now_ms)
                _tell_of_unknown_users(port)
                _lose_the_lost(port)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_EVERY_S)
            for upstream in self.upstreams:
                for _ in upstream.quotas.expire_slices(now_ms=monotonic_ns() // 1_000_000):
                    await asyncio.sleep(0)


def _policy(config: ProxyConfig, listener: Listener) -> Policy:
    return Policy(
        listener.max_frame_size_bytes,
        listener.enforcement or config.enforcement,
        listener.inter_broker,
        listener.sasl.oauthbearer_claim,
    )


def _tell_of_unknown_users(port: Port) -> None:
    """Say it once for each mechanism; how often it happens is a metric."""
    while port.counters.newly_unknown:
        log.warning(
            "listener %s: a client has logged in by SASL mechanism %s, and it cannot be told as whom: such clients are "
            "charged as user %s",
            port.name, port.counters.newly_unknown.pop(), UNKNOWN,
        )  # fmt: skip


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
