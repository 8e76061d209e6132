"""Two transports around a session: bytes go down, what the session decided goes back up.

Nothing is decided here. Each callback reads the clock once, hands the session what came, and then writes, pauses and
arms the one timer as the session says. Back-pressure is the rest: when one side cannot be written to, the other is not
read.

A muted connection goes on being read until its client sends something, so that a client that leaves is noticed; only
one that sends ahead is paused, and the server looks after those (neither asyncio nor uvloop tells of a lost peer while
reading is paused).
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Final, cast

from protocol.errors import ProtocolError
from proxy.account import Listening, Policy
from proxy.counters import Counters
from proxy.latency import Latency
from proxy.session import Session
from proxy.upstream import Upstream

log = logging.getLogger(__name__)

# A peer that vanished without a word (a lost machine, a cut cable) is given up after 30 + 3 * 5 s.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))

# How long a peer that does not read may keep a connection that is closed.
_LINGER_MS: Final = 30_000
# Who sends rubbish may send a lot of it, and so may a load balancer's health check: one line per cause in this time.
_QUIET_NS: Final = 10_000_000_000


class Port:
    """A listener: what all its connections share, whichever broker they lead to.

    ``greet`` is what stands between a new connection and its ``ClientConnection``, such as TLS; None: nothing does.
    """

    def __init__(self, *, name: str, counters: Counters, dial: Callable[["ClientConnection"], None]) -> None:
        self.name = name
        self.counters = counters
        self.dial = dial
        self.greet: Callable[[Callable[[], ClientConnection]], asyncio.BaseProtocol] | None = None
        self.latency = Latency()
        self.connections: set[ClientConnection] = set()
        self._quiet_until_ns: dict[str, int] = {}

    def protocol(self, accept: Callable[[], "ClientConnection"]) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection; ``accept`` gives its ``ClientConnection``."""
        return accept() if self.greet is None else self.greet(accept)

    def is_news(self, reason: str) -> bool:
        """Whether this cause was not logged just now."""
        now_ns = monotonic_ns()
        is_news = now_ns >= self._quiet_until_ns.get(reason, 0)
        if is_news:
            self._quiet_until_ns[reason] = now_ns + _QUIET_NS
        return is_news


class Gate:
    """The way from a port to one broker: what the connections of that way share."""

    __slots__ = ("listening", "port", "upstream")

    def __init__(self, port: Port, upstream: Upstream, listening: Listening) -> None:
        self.port = port
        self.upstream = upstream
        self.listening = listening

    @property
    def policy(self) -> Policy:
        """What the listener says about its connections; a reload replaces it."""
        return self.listening.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.listening.policy = policy

    def accept(self) -> "ClientConnection":
        """Return the protocol of a new client connection."""
        return ClientConnection(self)


class ClientConnection(asyncio.Protocol):
    """A client's transport, its session and, once the first request has come, the connection to the broker."""

    __slots__ = (
        "_broker",
        "_broker_is_full",
        "_client",
        "_client_is_full",
        "_flows",
        "_has_client_ended",
        "_is_closed",
        "_is_dialling",
        "_reads_broker",
        "_reads_client",
        "_request_ns",
        "_timer",
        "_timer_ms",
        "gate",
        "port",
        "session",
    )

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.port = gate.port
        self.session = Session(gate.listening)
        self._client: asyncio.Transport | None = None
        self._broker: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0  # when it fires
        self._reads_client = True
        self._reads_broker = True
        self._client_is_full = False
        self._broker_is_full = False
        self._is_dialling = False
        self._has_client_ended = False
        self._is_closed = False
        self._flows = False  # both sides are there and are being read
        self._request_ns = 0

    @property
    def is_closed(self) -> bool:
        """Whether the client is gone, or is to go."""
        return self._is_closed

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        address = self._client.get_extra_info("peername") if self._client else None
        return f"{address[0]}:{address[1]}" if address else "a client"

    @property
    def paused_socket(self) -> int | None:
        """The descriptor of a client that is not being read now, and of whose end nobody would tell."""
        if self._reads_client or self._client is None or self._is_closed:
            return None
        return cast(int, self._client.get_extra_info("socket").fileno())

    # -- the client's side --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up a new client. The broker is dialled when the client has sent a request."""
        self._client = cast(asyncio.Transport, transport)
        sock = self._client.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self.port.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent."""
        started_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        try:
            self.session.receive_from_client(data, now_ms=now_ms)
        except ProtocolError as error:
            self._refuse(error, "client")
            return
        out = self.session.to_broker
        if self._flows and len(out) == 1 and not self.session.is_blocked and not self.session.to_client:
            # Nearly always: the bytes go on as they came.
            self._broker.write(out.pop())  # type: ignore[union-attr] # _flows: it is there
        else:
            self._act(now_ms)
        self._request_ns = monotonic_ns() - started_ns

    def eof_received(self) -> bool:
        """Answer what a client asked before it closed its side, then close."""
        self._has_client_ended = True
        self.session.receive_end_from_client()
        self._flows = False
        self._act(monotonic_ns() // 1_000_000)
        return not self._is_closed

    def pause_writing(self) -> None:
        """Do not read the broker while its answers cannot be delivered."""
        self._client_is_full = True
        self._steer()

    def resume_writing(self) -> None:
        """Read the broker again."""
        self._client_is_full = False
        self._steer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the broker when the client has gone."""
        self.close("client_lost" if exc else "client_closed")

    # -- the broker's side --

    def broker_connected(self, transport: asyncio.Transport) -> None:
        """Send what has waited for the connection to the broker."""
        self._is_dialling = False
        if self._is_closed:
            transport.abort()
            return
        self._broker = transport
        self._act(monotonic_ns() // 1_000_000)

    def broker_failed(self, cause: str) -> None:
        """Close: the broker could not be reached."""
        self._is_dialling = False
        self.close(cause)

    def broker_received(self, data: bytes) -> None:
        """Pass on what the broker sent."""
        started_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        session = self.session
        try:
            session.receive_from_broker(data, now_ms=now_ms)
        except ProtocolError as error:
            self._refuse(error, "broker")
            return
        out = session.to_client
        if self._flows and len(out) == 1 and not session.delayed_until_ms and not session.to_broker:
            self._client.write(out.pop())  # type: ignore[union-attr]
        else:
            self._act(now_ms)
        api_key = session.answered
        if api_key >= 0:
            session.answered = -1
            self.port.latency.observe(api_key, monotonic_ns() - started_ns + self._request_ns)

    def broker_full(self, is_full: bool) -> None:
        """Do not read the client while its requests cannot be delivered."""
        self._broker_is_full = is_full
        self._steer()

    def broker_lost(self, exc: Exception | None) -> None:
        """Close: the broker has gone."""
        self._broker = None
        self.close("upstream_lost" if exc else "upstream_closed")

    # -- both --

    def close(self, cause: str) -> None:
        """Close both sides once what is written has been sent. Harmless when they are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        has_passed = not cause.startswith("upstream_") and self._broker is not None and not self.session.to_broker
        self.session.close(now_ms=monotonic_ns() // 1_000_000, has_passed=has_passed)
        self.port.connections.discard(self)
        self.port.counters.disconnect(cause)
        if self._timer is not None:
            self._timer.cancel()
        for transport in (self._client, self._broker):
            if transport is not None and not transport.is_closing():
                # Who does not take what was written is not waited for for ever.
                with suppress(OSError):
                    sock = transport.get_extra_info("socket")
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LINGER_MS)
                transport.close()

    def lose(self) -> None:
        """Let go of a client of which the server has seen that it is gone."""
        if self._client is not None:
            self._client.abort()

    def _act(self, now_ms: int) -> None:
        """Write what the session has for either side, then steer."""
        session = self.session
        out = session.to_broker
        if out:
            if self._broker is not None:
                if len(out) == 1:
                    self._broker.write(out[0])
                else:
                    self._broker.writelines(out)
                out.clear()
            elif not self._is_dialling:
                self._is_dialling = True
                self.port.dial(self)
        out = session.to_client
        if out and self._client is not None:
            if len(out) == 1:
                self._client.write(out[0])
            else:
                self._client.writelines(out)
            out.clear()
        # Nearly always both sides flow and go on flowing; then there is nothing more to do.
        if session.is_blocked or session.delayed_until_ms or not self._flows:
            self._steer()
            wake_at_ms = session.wake_at_ms
            if wake_at_ms > now_ms and (self._timer is None or wake_at_ms < self._timer_ms):
                self._arm(wake_at_ms, now_ms)
            if self._has_client_ended and session.is_idle and not session.to_broker:
                self.close("client_closed")

    def _steer(self) -> None:
        """Read from each side if, and only if, what it sends can be used."""
        reads = not (self.session.is_blocked or self._broker_is_full or self._is_dialling)
        if reads is not self._reads_client and self._client is not None and not self._is_closed:
            self._reads_client = reads
            if reads:
                self._client.resume_reading()
            else:
                self._client.pause_reading()
        reads = not (self._client_is_full or self.session.delayed_until_ms)
        if reads is not self._reads_broker and self._broker is not None and not self._is_closed:
            self._reads_broker = reads
            if reads:
                self._broker.resume_reading()
            else:
                self._broker.pause_reading()
        self._flows = (
            self._reads_client and self._reads_broker and self._broker is not None and not self._has_client_ended
        )

    def _arm(self, wake_at_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_at_ms
        self._timer = asyncio.get_running_loop().call_later((wake_at_ms - now_ms) / 1_000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        now_ms = monotonic_ns() // 1_000_000
        try:
            self.session.handle_timer(now_ms=now_ms)
        except ProtocolError as error:
            self._refuse(error, "peer")
            return
        self._act(now_ms)

    def _refuse(self, error: ProtocolError, who: str) -> None:
        """Close on bytes that are not Kafka's protocol; what came before them is still passed on."""
        self.port.counters.protocol_error(error.reason)
        level = logging.WARNING if self.port.is_news(error.reason) else logging.DEBUG
        log.log(level, "closed %s on listener %s: its %s sent: %s", self.peer, self.port.name, who, error)
        if self.session.to_broker and self._broker is not None:
            self._broker.writelines(self.session.to_broker)
            self.session.to_broker.clear()
        self.close("protocol_error")


class BrokerConnection(asyncio.Protocol):
    """The broker's transport; all it hears goes to its ``ClientConnection``."""

    __slots__ = ("_owner",)

    def __init__(self, owner: ClientConnection) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``ClientConnection.broker_connected``."""
        self._owner.broker_connected(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        """See ``ClientConnection.broker_received``."""
        self._owner.broker_received(data)

    def pause_writing(self) -> None:
        """See ``ClientConnection.broker_full``."""
        self._owner.broker_full(True)

    def resume_writing(self) -> None:
        """See ``ClientConnection.broker_full``."""
        self._owner.broker_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``ClientConnection.broker_lost``."""
        self._owner.broker_lost(exc)
