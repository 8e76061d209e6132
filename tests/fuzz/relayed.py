"""One client's connection with its listener, on sockets in memory, with or without a relay."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, Final

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, QuotaRule, RelayKind
from kafka_quota_proxy.protocol.partial_frame import SMALL_BYTES
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.runtime import isolation
from kafka_quota_proxy.proxy.server import listener_state
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.dialer import BrokerConnection, PendingDial
from kafka_quota_proxy.proxy.server.clients import connection as connection_module
from kafka_quota_proxy.proxy.server.clients import orphaned_connections
from kafka_quota_proxy.proxy.server.clients import relay as relay_module
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.clients.relay import _SPLICED_BYTES, Relay
from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.route import Route
from kafka_quota_proxy.proxy.session.client_account import Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from tests.fuzz.messages import PRINCIPALS
from tests.fuzz.relay_network import HIGH_WATER_BYTES, Clock, Loop, MemorySockets, Socket, Transport

CLIENT: Final = 3
BROKER: Final = 4
_ADDRESS: Final = Address(host="127.0.0.1", port=9092)
_CLOCKED: Final[tuple[ModuleType, ...]] = (connection_module, listener_state, orphaned_connections, relay_module)
# A turn reads at least a byte, or ends something.
_MOST_TURNS: Final = 10_000


class Proxied:
    """A connection of one client through the proxy to one broker.

    With a relay, ``settle`` reads what has arrived, and returns the sizes of all reads. Without one, ``follow`` reads
    the same sizes in the same order, as the event loop might.
    """

    def __init__(
        self, settings: Listener, policy: Policy, rules: tuple[QuotaRule, ...], clock: Clock, pipe_bytes: int
    ) -> None:
        self._clock = clock
        self.loop = Loop(clock)
        self.config = ProxyConfig(listeners=(), quotas=rules, principals=PRINCIPALS, max_throttle_time_ms=25_000)
        self.listener = ListenerState(settings=settings, counters=Counters(), dial=self._dial)
        self.listener.policy = policy
        self.sockets = MemorySockets(pipe_bytes, self._has_long_body)
        self.listener.relay = Relay(self.sockets)
        self.uses_relay = settings.relay is RelayKind.AUTO
        self.quotas = BrokerQuotas(self.config)
        self.route = Route(self.listener, Upstream(_ADDRESS, lambda: Broker(self.quotas)))
        self.connection: ClientConnection = self.route.accept()
        self.connection.request_ns = -1  # nothing has been read
        self.state = self.connection.state
        self.client_socket = Socket(CLIENT)
        # A request that waits for a response is tried again after each read. So what it may do depends on where the
        # broker's bytes are cut, and not more than one message is read at once.
        self.broker_socket = Socket(
            BROKER, may_join=lambda: not (self.uses_relay and self.state.blocked_by is not None)
        )
        self.sockets.known = {CLIENT: self.client_socket, BROKER: self.broker_socket}
        self.client = Transport(self.loop, self.client_socket, self.connection)
        self.broker: Transport | None = None
        self.dials = True  # whether the broker accepts the connection
        self.has_blocked = False  # whether a request waited since this was set to False
        self.has_collected = False  # whether many bytes of an incomplete frame were kept
        self.connection.connection_made(self.client)

    def _dial(self, connection: ClientConnection) -> PendingDial:
        self.loop.call_soon(self._connect)
        return PendingDial()

    def _connect(self) -> None:
        if self.connection.is_closed:
            return
        if not self.dials:
            self.connection.broker_failed("upstream_refused")
            return
        protocol = BrokerConnection(self.connection)
        self.broker = Transport(self.loop, self.broker_socket, protocol)
        protocol.connection_made(self.broker)
        self.connection.broker_connected(self.broker)

    def _has_long_body(self, fd: int) -> bool:
        """Return whether a long body is to be sent to a socket next."""
        return (self.state.request_left if fd == BROKER else self.state.responses.left) >= _SPLICED_BYTES

    @property
    def transports(self) -> dict[int, Transport]:
        """The transports by the number of their sockets."""
        return {CLIENT: self.client} if self.broker is None else {CLIENT: self.client, BROKER: self.broker}

    def socket(self, fd: int) -> Socket:
        """Return the client's or the broker's socket."""
        return self.sockets.known[fd]

    def act(self, step: Callable[[], object]) -> None:
        """Call a method of the connection or a transport, as a callback of the event loop."""
        self.loop.enter()
        try:
            step()
        finally:
            asyncio._set_running_loop(None)
        # A read takes no time here. The checks of idle clients need some.
        self.connection.request_ns = self.connection.request_ns or 1
        self.has_blocked |= self.state.blocked_by is not None
        self.has_collected |= any(
            pieces is not None and len(pieces) >= SMALL_BYTES
            for pieces in (self.state.requests._pieces, self.state.responses._pieces)
        )

    def settle(self) -> list[list[tuple[int, int]]]:
        """Read everything that is to be read. Return the reads of each turn: the socket and the number of bytes."""
        turns: list[list[tuple[int, int]]] = []
        relay = self.listener.relay
        assert relay is not None
        for _ in range(_MOST_TURNS):
            self.act(self.loop.run_ready)
            reads = self.sockets.begin_turn()
            readable = [fd for fd, transport in self.transports.items() if transport.is_to_read]
            if self.sockets.ready():
                self.act(relay.run)
            elif readable:
                self.act(partial(self._read, readable[-1]))
            else:
                return turns
            turns.append(reads)
        raise AssertionError("the relay reads for ever")

    def follow(self, turns: list[list[tuple[int, int]]]) -> None:
        """Read what a connection with a relay has read in ``settle``."""
        self.act(self.loop.run_ready)
        for reads in turns:
            for fd, size_bytes in reads:
                assert self.transports[fd].is_to_read, "the relay reads what the event loop would not read"
                self.act(partial(self._read, fd, size_bytes))
                assert self.sockets.reads.pop() == (fd, size_bytes)
            self.act(self.loop.run_ready)
        assert not any(one.is_to_read for one in self.transports.values()), "the relay does not read all"

    def _read(self, fd: int, size_bytes: int = 0) -> None:
        count = self.transports[fd].read(size_bytes or BUFFER_BYTES)
        self.sockets.reads.append((fd, count))

    def flush(self) -> None:
        """Let the transports send what their sockets have room for."""
        for transport in self.transports.values():
            transport.flush()

    def check_time_limits(self) -> None:
        """Check the time limits of the connection if they are due."""
        for check in self.listener.timer_wheel.take(now_ms=self._clock.now_ms):
            check.check(self._clock.now_ms)

    def update(self, rules: tuple[QuotaRule, ...]) -> None:
        """Apply other rules."""
        self.quotas.update(ProxyConfig(listeners=(), quotas=rules, principals=PRINCIPALS))

    # -- what is compared and checked --

    def outcome(self) -> dict[str, object]:
        """Return what must be the same over both paths at each time."""
        connection, state, counters = self.connection, self.state, self.listener.counters
        return {
            "closed": connection.is_closed,
            "disconnects": counters.disconnects,
            "errors": counters.protocol_errors,
            "frames": counters.frames,
            "unknown APIs": counters.unknown_apis,
            "logins": counters.logins,
            "reads": (connection.transports.reads_client, connection.transports.reads_broker),
            "full": (connection.transports.is_client_full, connection.transports.is_broker_full),
            "transports": [(one.is_closing(), one.has_sent_end, one.written_bytes) for one in self.transports.values()],
            "waits": (state.blocked_by is not None, state.delayed_until_ms, connection.session.muted_until_ms),
            "left": (state.request_left, state.responses.left, len(state.in_flight)),
            "timers": self.loop.timers_ms,
            "uncounted latency": state.answered,
            "orphans": self.listener.orphans.counts,
            "charges": [
                (bucket.kind, bucket.usage.amount, bucket.reserved.amount, bucket.holders, bucket.silent_until_ms)
                for manager in self.quotas.managers
                for bucket in manager
            ],
        }

    def check(self) -> None:
        """Assert that buffers are bounded, and that only open connections are watched."""
        for transport in self.transports.values():
            # A read of BUFFER_BYTES may add to a full buffer, and release a read that was kept.
            assert self.has_collected or transport.get_write_buffer_size() <= HIGH_WATER_BYTES + 2 * BUFFER_BYTES
        relay = self.listener.relay
        assert relay is not None
        assert not relay.ends or not self.connection.is_closed, "the relay reads a closed connection"
        assert list(self.sockets._watched) == list(relay.ends)
        assert not self.sockets._pipe, "bytes for another connection are left in the pipe"

    def check_end(self) -> None:
        """Assert that nothing of a connection is left after its end."""
        assert self.connection.is_closed
        assert not self.listener.connections
        assert not self.listener.broker_count
        assert not len(self.listener.orphans)
        assert not self.loop.timers_ms
        assert not self.route.context.service.served
        for manager in self.quotas.managers:
            for bucket in manager:
                assert (bucket.reserved.amount, bucket.holders) == (0, 0)


@contextmanager
def clocked(clock: Clock) -> Iterator[None]:
    """Let the connection and the relay use this clock, and log nothing but internal errors, until the block ends."""
    before: list[Any] = [module.monotonic_ns for module in _CLOCKED]
    log = logging.getLogger(listener_state.__name__)
    errors = dict(isolation.internal_errors)
    log.disabled = True
    try:
        for module in _CLOCKED:
            module.monotonic_ns = clock.monotonic_ns  # type: ignore[attr-defined]
        yield
    finally:
        for module, function in zip(_CLOCKED, before, strict=True):
            module.monotonic_ns = function  # type: ignore[attr-defined]
        log.disabled = False
    assert isolation.internal_errors == errors, "an internal error; see the log"
