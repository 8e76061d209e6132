"""Runs the proxy in one process with one event loop."""

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import chain
from typing import Final

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import Address, ProxyConfig
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.security import ClientTls, UpstreamTls
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.rules.keeper import wall_ms
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import kept_up
from kafka_quota_proxy.proxy.runtime.isolation import watch as watch_loop
from kafka_quota_proxy.proxy.server.active_rules import ActiveRules, PreparedFile, free
from kafka_quota_proxy.proxy.server.brokers.dialer import BrokerDialer
from kafka_quota_proxy.proxy.server.brokers.known_brokers import KnownBrokers
from kafka_quota_proxy.proxy.server.clients.acceptor import Acceptor, bind, refuse_waiting
from kafka_quota_proxy.proxy.server.clients.relay import Relay
from kafka_quota_proxy.proxy.server.clients.relay_sockets import make_sockets
from kafka_quota_proxy.proxy.server.clients.tls_handshake import TlsHandshakes
from kafka_quota_proxy.proxy.server.clients.unlimited_log import UnlimitedLog
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.loop_lag import LoopLag
from kafka_quota_proxy.proxy.server.replication_limits import ReplicationLimits
from kafka_quota_proxy.proxy.server.shutdown import drain_connections
from kafka_quota_proxy.proxy.server.sweeps import Sweeps
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext
from kafka_quota_proxy.proxy.server.tls.contexts import watch as watch_tls
from kafka_quota_proxy.proxy.session.counters import Counters
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles
from kafka_quota_proxy.proxy.usage.log import usage_log

log = logging.getLogger(__name__)

# How long clients wait until the rules of a quota topic, or of the brokers, are read. After that, clients are
# served without these rules.
_FIRST_RULES_S: Final = 15.0

_LOG_UNLIMITED_EVERY_S: Final = 0.1

# How soon a broker that cannot be reached is asked again who it is.
_ASK_AGAIN_S: Final = 1.0

Work = Callable[[], Coroutine[None, None, None]]


def _to_stdout(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Server:
    """The running proxy. ``wall_ms`` returns the Unix time in ms, which decides when rules begin and expire.

    ``announce`` gets a line for each listener when it listens. This is no record of the log, because scripts wait for
    it at any level.

    Raises:
        TlsFileError: If a certificate or key file cannot be used.
    """

    def __init__(
        self,
        config: ProxyConfig,
        *,
        wall_ms: Callable[[], int] = wall_ms,
        announce: Callable[[str], None] = _to_stdout,
    ) -> None:
        self.started_with: Final = config
        self._announce = announce
        self.rules = ActiveRules(config, wall_ms=wall_ms)
        self.quota_manager = self.rules.quota_manager
        self.replication = ReplicationLimits(config, self._keep_up)
        self.brokers = KnownBrokers(self.rules, self.replication.throttle)
        self.usage = usage_log(
            config,
            brokers=self.brokers.metered,
            replicas=self.replication.metered,
        )
        self.testing = OnDemandThrottles(wall_ms) if config.testing else None
        self.listeners: list[ListenerState] = []
        self.tls: dict[ClientTls | UpstreamTls, TlsContext] = {}
        self.handshakes: list[TlsHandshakes] = []
        for listener in config.listeners:
            state = ListenerState(
                settings=listener, counters=Counters(), dial=lambda client: self._dialer.start(client)
            )
            state.testing = self.testing
            self.listeners.append(state)
            if listener.client_tls is not None:
                handshakes = TlsHandshakes(state, listener.client_tls, self._tls_context(listener.client_tls))
                self.handshakes.append(handshakes)
                state.handshake = handshakes.new_protocol
            self.brokers.connect(state, self._tls_context(listener.upstream_tls) if listener.upstream_tls else None)
        self._unlimited_log = UnlimitedLog(self.rules.tables)
        self._sweeps = Sweeps(self.listeners, lambda: self.config, lambda: self.brokers.quotas)
        self.loop_lag = LoopLag()
        self.is_listening = False
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._acceptors: list[Acceptor] = []
        self._tasks: asyncio.TaskGroup
        self._dialer: BrokerDialer

    @property
    def config(self) -> ProxyConfig:
        """The configuration in force."""
        return self.rules.config

    @property
    def is_draining(self) -> bool:
        """Whether the proxy accepts no more connections, and waits for the open ones to end."""
        return self._stopping.is_set()

    async def reload(self, file: ProxyConfig) -> ProxyConfig:
        """Do what ``apply`` does, but let the event loop serve clients while the rules are prepared in a thread.

        Return the configuration that was in force then.
        """
        async with self.rules.unchanged():
            prepared = await in_thread(partial(self.rules.prepare, file), name="reload")
            self._put_in_force(prepared)
        config, last = prepared.config, [prepared]
        del prepared
        await in_thread(partial(free, last), name="reload")
        return config

    def apply(self, file: ProxyConfig) -> None:
        """Apply a changed configuration file from the next request on. Listeners and connections stay open."""
        self._put_in_force(self.rules.prepare(file))

    def _put_in_force(self, file: PreparedFile) -> None:
        config = file.config
        self.rules.put_in_force(file)
        self.replication.update(config.replication)
        self.brokers.update({listener.name: listener for listener in config.listeners}, file.changed, config)
        if self.testing is not None:  # each test that resets the proxy expects its own warnings
            self._unlimited_log.begin()
            self._newly_unlimited()  # these were seen under the earlier rules

    def _newly_unlimited(self) -> list[Mapping[Tags, QuotaKind]]:
        found: list[Mapping[Tags, QuotaKind]] = []
        for quotas in self.brokers.quotas:
            if quotas.newly_unlimited:
                found.append(quotas.newly_unlimited)
                quotas.newly_unlimited = {}
        return found

    async def _log_unlimited(self) -> None:
        """Log soon which clients no rule limits, because a test that fails reads the log next."""
        while True:
            await asyncio.sleep(_LOG_UNLIMITED_EVERY_S)
            self._unlimited_log.write(self._newly_unlimited())

    def stop(self) -> None:
        """Start to drain all connections, after which ``run`` returns. A second call closes those that are left."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def run(self, *, companion: Work | None = None) -> None:
        """Open the listeners, then serve clients until ``stop`` is called.

        ``companion`` runs as well, and is started again if it fails. It watches the configuration file, for example.

        Raises:
            StartError: If a listener's address cannot be bound, or the store of quotas cannot be used.
        """
        bound: list[list[socket.socket]] = []
        watch_loop(asyncio.get_running_loop())
        try:
            for index, listener in enumerate(self.config.listeners):
                try:
                    bound.append(bind(listener.bind))
                except OSError as error:
                    raise StartError(("listeners", index, "bind"), error.strerror or str(error)) from error
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    await self._serve(bound, companion)
            finally:
                await self.quota_manager.stop()
                if self.usage is not None:
                    await self.usage.stop(self._hurry)
        finally:
            for one in chain.from_iterable(bound):
                one.close()

    async def _serve(self, bound: list[list[socket.socket]], companion: Work | None) -> None:
        background = await self._first_rules()
        # The rules, and everything else that exists now, live long. Exempt these objects from garbage collection.
        gc.collect()
        gc.freeze()
        self._dialer = BrokerDialer(self._tasks, self.config.upstream_bind)
        relay = self._start_relay()
        introductions = self._listen(bound)
        background += self._start_background(companion)
        self.replication.watch(self.config.replication)
        await self._stopping.wait()
        for task in introductions:
            task.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        for one in chain.from_iterable(bound):
            one.close()
        for cluster in self.brokers.clusters.values():
            cluster.close()
        for listener in self.listeners:
            listener.refused_sockets.close()
        await drain_connections(self.listeners, self.handshakes, self.config.drain_timeout_ms, self._hurry)
        for listener in self.listeners:
            listener.orphans.close()
        self._dialer.cancel()
        if relay is not None:
            asyncio.get_running_loop().remove_reader(relay.sockets.fileno())
            relay.sockets.close()
        self.brokers.close()
        self.replication.stop()
        for task in background:
            task.cancel()

    async def _first_rules(self) -> list[asyncio.Task[None]]:
        """Wait for the rules of the source. Return the task that keeps the rules up to date."""
        manager, source = self.quota_manager, self.quota_manager.source
        await _read(manager.read(self.brokers.follow), self._stopping, self._tasks)
        if source is None:
            return [self._keep_up(manager.run)]
        self.apply(self.config)
        started = [self._keep_up(manager.run)]
        await _await_rules(source, self._stopping, self._tasks)
        return started

    def _start_relay(self) -> Relay | None:
        """Start the relay of all listeners. Return None where it is not built."""
        sockets = make_sockets()
        if sockets is None:
            return None
        relay = Relay(sockets)
        asyncio.get_running_loop().add_reader(relay.sockets.fileno(), relay.run)
        for listener in self.listeners:
            listener.relay = relay
        return relay

    def _listen(self, bound: list[list[socket.socket]]) -> list[asyncio.Task[None]]:
        """Serve the clients of all listeners. Return tasks of those whose brokers must say first who they are."""
        introductions: list[asyncio.Task[None]] = []
        for cluster in self.brokers.clusters.values():
            cluster.tasks = self._tasks
        for listener, sockets in zip(self.listeners, bound, strict=True):
            settings = listener.settings
            if self.brokers.is_introduced(listener):
                self._accept(listener, sockets)
            else:
                introductions.append(self._keep_up(partial(self._introduce, listener, sockets)))
            address = Address(host=settings.bind.host, port=sockets[0].getsockname()[1])
            self._announce(f"listening on {address} ({listener.name}) -> {settings.upstream or settings.cluster}")
        self.is_listening = True
        return introductions

    async def _introduce(self, listener: ListenerState, sockets: list[socket.socket]) -> None:
        """Find out who a listener's broker is, then serve its clients. They wait in the backlog until then.

        While no broker can be reached, close them, as they would be closed after a dial that failed.
        """
        while not await self.brokers.introduce(listener):
            refuse_waiting(sockets, listener)
            await asyncio.sleep(_ASK_AGAIN_S)
        self._accept(listener, sockets)

    def _accept(self, listener: ListenerState, sockets: list[socket.socket]) -> None:
        entrance = self.brokers.entrances[listener]
        self._acceptors += (Acceptor(one, listener, entrance.accept, entrance.arrivals, self._tasks) for one in sockets)

    def _start_background(self, companion: Work | None) -> list[asyncio.Task[None]]:
        started = [
            self._keep_up(self.loop_lag.measure),
            self._keep_up(self._sweeps.sweep),
            self._keep_up(self._sweeps.expire_buckets),
            self._keep_up(lambda: watch_tls(self.tls.values())),
            self._keep_up(self.brokers.prober.run),
            *(self._keep_up(cluster.run) for cluster in self.brokers.clusters.values()),
        ]
        if self.testing is not None:
            started.append(self._keep_up(self._log_unlimited))
        if companion is not None:
            started.append(self._keep_up(companion))
        if self.usage is not None:
            self.usage.start()
            started.append(self._keep_up(self.usage.run))
        return started

    def _keep_up(self, work: Work) -> asyncio.Task[None]:
        return self._tasks.create_task(kept_up(work))

    def _tls_context(self, settings: ClientTls | UpstreamTls) -> TlsContext:
        """Return the TLS context for these settings. Listeners with equal settings share one context."""
        context = self.tls.get(settings)
        if context is None:
            context = self.tls[settings] = TlsContext(settings)
        return context


async def _read(source: Coroutine[None, None, None], stopping: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
    """Wait until ``source`` has read the rules that are on this machine, or until the server stops.

    Raises:
        StartError: If the store cannot be used.
    """
    # This is not a task of the group, so that its failure is raised here and nowhere else.
    reading = asyncio.ensure_future(source)
    stopped = tasks.create_task(stopping.wait())
    await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if reading.done():
        reading.result()
    else:
        reading.cancel()


async def _await_rules(source: RuleSource, stopping: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
    """Wait until ``source`` has read its rules, some seconds have passed, or the server stops."""
    waits = [tasks.create_task(event.wait()) for event in (source.may_serve, stopping)]
    await asyncio.wait(waits, timeout=_FIRST_RULES_S, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if not source.has_read and not stopping.is_set():
        within = "" if source.may_serve.is_set() else f" within {_FIRST_RULES_S:.0f} s"
        no_change = "" if source.writer is None else ", and no quota can be changed until it is read"
        log.warning(
            "%s: not read to its end%s: clients are served with what is known%s", source.name, within, no_change
        )
