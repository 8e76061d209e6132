"""Keeps the state that all connections of one listener share."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, cast

from kafka_quota_proxy.config.model import Listener, RelayKind
from kafka_quota_proxy.proxy.server.brokers.queue import ListenerPriorities
from kafka_quota_proxy.proxy.server.clients.connection_limits import ConnectionCount, TimerWheel, spread
from kafka_quota_proxy.proxy.server.clients.latency import Latency
from kafka_quota_proxy.proxy.server.clients.orphaned_connections import OrphanedConnections
from kafka_quota_proxy.proxy.server.clients.refused_sockets import RefusedSockets
from kafka_quota_proxy.proxy.server.clients.relay import Relay
from kafka_quota_proxy.proxy.server.clients.time_checks import TimeChecks
from kafka_quota_proxy.proxy.server.clients.transport_pair import ClosingTransports
from kafka_quota_proxy.proxy.session.client_account import Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.brokers.dialer import PendingDial
    from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection

log = logging.getLogger(__name__)

# A client that sends garbage may repeat it often, and so may a load balancer's health check. So warn once in this
# time.
_WARN_EVERY_NS: Final = 10_000_000_000
# Each connection that is not counted may still hold two file descriptors, which clients might need.
MAX_OUTLIVED: Final = 500


class ListenerState:
    """Holds the state that all connections of one listener share.

    Attributes:
        settings: The listener's section of the configuration file. A reload replaces ``settings`` and ``policy``.
        handshake: Returns the protocol of a new TLS connection (``TlsHandshakes.new_protocol``); None for plaintext.
        priorities: The users' levels in the fair call queue; None if the listener does not use the queue.
        open_count: Counts each connection from the time it is accepted until its transport is closed, or ``outlive``.
        outlived: The open connections that are not counted any more, because their clients have gone.
        broker_count: How many connections to brokers are open.
        relay: Reads the sockets of connections if ``uses_relay`` is set. None where it is not built.
        testing: Throttles responses on demand, for tests. None if the configuration does not allow it.
        uses_relay: Whether new connections without TLS are relayed.
    """

    def __init__(
        self, *, settings: Listener, counters: Counters, dial: Callable[["ClientConnection"], "PendingDial"]
    ) -> None:
        self.name = settings.name
        self.counters = counters
        self.dial = dial
        self.policy: Policy
        self.testing: OnDemandThrottles | None = None
        self.handshake: Callable[[Callable[[], ClientConnection], Callable[[], None]], asyncio.BaseProtocol] | None = (
            None
        )
        self.priorities: ListenerPriorities | None = None
        self.update(settings)
        self.latency = Latency()
        self.connections: dict[ClientConnection, None] = {}  # in order of arrival
        self.open_count = ConnectionCount()
        self.outlived: set[ClientConnection] = set()
        self.refused_sockets = RefusedSockets()
        self.closing = ClosingTransports()
        self.orphans = OrphanedConnections(self.closing)
        self.broker_count = 0
        self.relay: Relay | None = None
        self.timer_wheel: TimerWheel[TimeChecks] = TimerWheel(now_ms=monotonic_ns() // 1_000_000)
        self.spread = spread()
        self._next_warning_ns: dict[str, int] = {}

    def update(self, settings: Listener) -> None:
        """Apply the listener's settings from a reloaded configuration file."""
        self.settings = settings
        self.uses_relay = settings.relay is RelayKind.AUTO
        queue = settings.fair_call_queue
        if queue is None:
            self.priorities = None
        elif self.priorities is None:
            self.priorities = ListenerPriorities(queue)
        else:
            self.priorities.update(queue)

    def new_protocol(
        self, accept: Callable[[], "ClientConnection"], abandon: Callable[[], None]
    ) -> asyncio.BaseProtocol:
        """Return the protocol for a new connection from a client.

        Without TLS, ``accept`` is called at once and returns the protocol. With TLS, the protocol first does the
        handshake. When this has ended, ``accept`` is called, or ``abandon`` if the handshake has failed.
        """
        # A compiled class cannot have asyncio.Protocol as its base. The event loop only calls its methods.
        return cast(asyncio.BaseProtocol, accept()) if self.handshake is None else self.handshake(accept, abandon)

    def outlive(self, connection: "ClientConnection") -> None:
        """Count a connection no longer, because its client has gone. It stays open for what waits (acks=0).

        If ``MAX_OUTLIVED`` connections are open without being counted, this one stays counted. May be called again.
        """
        if len(self.outlived) < MAX_OUTLIVED and connection.counted is not None:
            self.outlived.add(connection)
            connection.counted.leave()
            connection.state.account.leave_count()

    def remove(self, connection: "ClientConnection") -> None:
        """Forget a connection, because it is closed. May be called again."""
        self.connections.pop(connection, None)
        self.outlived.discard(connection)

    def may_warn(self, cause: str) -> bool:
        """Return whether to log a warning with this cause now. Each cause is logged at most once in ten seconds."""
        now_ns = monotonic_ns()
        if now_ns < self._next_warning_ns.get(cause, 0):
            return False
        self._next_warning_ns[cause] = now_ns + _WARN_EVERY_NS
        return True

    def log_closed(self, peer: str, cause: str, reason: str) -> None:
        """Log why a connection was closed: as a warning, or at DEBUG if ``cause`` led to a warning a short time ago."""
        level = logging.WARNING if self.may_warn(cause) else logging.DEBUG
        log.log(
            level, "closed %s on listener %s: %s", peer, self.name, reason,
            extra={"event": "connection_closed", "address": peer, "listener": self.name, "cause": cause},
        )  # fmt: skip
