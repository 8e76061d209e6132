"""Two transports around a session: bytes go down, what the session decided goes back up.

Nothing is decided here. Each callback reads the clock once, hands the session what came, and then writes, pauses and
arms the one timer as the session says. Back-pressure is the rest: when one side cannot be written to, the other is not
read.

A muted connection goes on being read until its client sends something, so that a client that leaves is noticed; only
one that sends ahead is paused, and the server looks after those (neither asyncio nor uvloop tells of a lost peer while
reading is paused).

A connection that is to end for no fault of its client's leaves: it takes up no further request, answers what it has
taken, closes its own side behind the last answer, and reads on until the client has done the same. Closed with requests
unread, the system would reset it, and the last answers could be lost on their way.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic_ns
from typing import Final, Protocol, cast

from kafka_quota_proxy.config.model import Listener
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.isolation import INTERNAL_ERROR, isolated
from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.server.broker import Upstream
from kafka_quota_proxy.proxy.server.broker_queue import BrokerQueue, ListenerPriorities
from kafka_quota_proxy.proxy.server.connection_limits import (
    CONNECTIONS_QUOTA,
    IDLE_TIMEOUT,
    LOGIN_TIMEOUT,
    Occupancy,
    Place,
    Spread,
    Watch,
    limit_that_has_come,
    look_at_ms,
)
from kafka_quota_proxy.proxy.server.latency import Latency
from kafka_quota_proxy.proxy.server.orphaned_connections import OrphanedConnections
from kafka_quota_proxy.proxy.server.refused_sockets import RefusedSockets
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.client_account import Listening, Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from kafka_quota_proxy.proxy.session.unanswered import Unanswered

log = logging.getLogger(__name__)

# A peer that vanished without a word (a lost machine, a cut cable) is given up after 30 + 3 * 5 s.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))

# How long a peer that does not read may keep a connection that is closed.
_LINGER_MS: Final = 30_000
# How long a client may take to close its side after we have closed ours, behind the last answer.
_PARTING_S: Final = 2.0
# How often that time is given to one who is still taking what we wrote.
_PARTINGS: Final = 15
# Who sends rubbish may send a lot of it, and so may a load balancer's health check: one line per cause in this time.
_QUIET_NS: Final = 10_000_000_000


class PendingDial(Protocol):
    """A dial that has not ended."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its turn."""

    def give_up(self) -> None:
        """Dial no more; the connection hears no outcome."""


class ListenerState:
    """A listener: what all its connections share, whichever broker they lead to.

    ``greet`` is what stands between a new connection and its ``ClientConnection``, such as TLS; None: nothing does.
    """

    def __init__(
        self, *, listener: Listener, counters: Counters, dial: Callable[["ClientConnection"], PendingDial]
    ) -> None:
        self.listener = listener  # a reload replaces it
        self.name = listener.name
        self.counters = counters
        self.dial = dial
        self.greet: Callable[[Callable[[], ClientConnection], Callable[[], None]], asyncio.BaseProtocol] | None = None
        self.calls: ListenerPriorities | None = None  # None: requests go on as they come
        self.follow(listener)
        self.latency = Latency()
        self.connections: set[ClientConnection] = set()
        self.occupancy = Occupancy()  # of connections from when they are accepted until their transport is gone
        self.refused_sockets = RefusedSockets()  # of those who are not served
        self.orphans = OrphanedConnections()  # to those who are gone
        self.broker_count = 0  # transports to brokers
        self.watch: Watch[ClientConnection] = Watch(now_ms=monotonic_ns() // 1_000_000)
        self.spread = Spread()
        self._quiet_until_ns: dict[str, int] = {}

    def follow(self, listener: Listener) -> None:
        """Go on as the file says now."""
        self.listener = listener
        settings = listener.fair_call_queue
        if settings is None:
            self.calls = None
        elif self.calls is None:
            self.calls = ListenerPriorities(settings)
        else:
            self.calls.update(settings)

    def protocol(self, accept: Callable[[], "ClientConnection"], abandon: Callable[[], None]) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection.

        ``accept`` gives its ``ClientConnection``; ``abandon`` is called where it ends without having had one.
        """
        return accept() if self.greet is None else self.greet(accept, abandon)

    def is_news(self, reason: str) -> bool:
        """Whether this cause was not logged just now."""
        now_ns = monotonic_ns()
        is_news = now_ns >= self._quiet_until_ns.get(reason, 0)
        if is_news:
            self._quiet_until_ns[reason] = now_ns + _QUIET_NS
        return is_news


class Route:
    """The way from a port to one broker: what the connections of that way share.

    Args:
        port: The listener.
        upstream: Where it leads.
        policy: What the listener says about its connections.
        addresses: What clients are to hear of brokers' addresses; None: what the broker says.
    """

    __slots__ = ("listening", "port", "upstream")

    def __init__(
        self, port: ListenerState, upstream: Upstream, policy: Policy, addresses: Addresses | None = None
    ) -> None:
        self.port = port
        self.upstream = upstream
        broker = upstream.broker
        self.listening = Listening(
            policy, broker.quotas, port.counters, addresses, leader=broker.leader, service=broker.service
        )
        broker.quotas.turns.wake = _wake_soon
        self.seat()

    @property
    def policy(self) -> Policy:
        """What the listener says about its connections; a reload replaces it."""
        return self.listening.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.listening.policy = policy

    @property
    def upstreams(self) -> list[Upstream]:
        """Where it leads."""
        return [self.upstream]

    def arrivals(self) -> ListenerQuota:
        """Return what limits how fast connections come by this way."""
        return self.listening.quotas.arrivals.listener(self.port.name)

    def seat(self) -> None:
        """Have its connections wait in a queue in front of the broker, if the listener now has one."""
        calls, broker, before = self.port.calls, self.upstream.broker, self.listening.line
        if calls is None:
            self.listening.line = None  # who waits is still let through in his turn
        else:
            if broker.calls is None:
                broker.calls = BrokerQueue(calls.settings)
            self.listening.line = broker.calls.line(calls, before)
        if (before is None) != (calls is None):
            self.listening.quotas.renew()

    def follow_broker(self) -> None:
        """Go by the broker that the way is known to lead to by now."""
        broker, listening = self.upstream.broker, self.listening
        listening.quotas, listening.leader, listening.service = broker.quotas, broker.leader, broker.service
        broker.quotas.turns.wake = _wake_soon
        listening.line = None  # who waits in the other's queue is still let through in his turn
        self.seat()

    def leads(self, upstream: Upstream) -> "Iterator[Route]":
        """Yield itself, if it leads there."""
        if self.upstream is upstream:
            yield self

    def accept(self) -> "ClientConnection":
        """Return the protocol of a new client connection."""
        return ClientConnection(self)


class ClientConnection(asyncio.Protocol):
    """A client's transport, its session and, once the first request has come, the connection to the broker."""

    __slots__ = (
        "_active_ms",
        "_broker",
        "_broker_is_full",
        "_client",
        "_client_is_full",
        "_dial",
        "_flows",
        "_has_client_ended",
        "_is_closed",
        "_is_parting",
        "_leaves",
        "_look_s",
        "_reads_broker",
        "_reads_client",
        "_request_ns",
        "_spread",
        "_started_ms",
        "_timer",
        "_timer_ms",
        "gate",
        "place",
        "port",
        "session",
    )

    def __init__(self, gate: Route) -> None:
        self.gate = gate
        self.port = gate.port
        self.session = Session(gate.listening, owner=self)
        self._client: asyncio.Transport | None = None
        self._broker: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0  # when it fires
        self._reads_client = True
        self._reads_broker = True
        self._client_is_full = False
        self._broker_is_full = False
        self._dial: PendingDial | None = None  # while the broker is being dialled
        self._has_client_ended = False
        self._is_closed = False
        self._flows = False  # both sides are there and are being read
        self._request_ns = 0  # what the last read of the client took; 0: none since somebody looked
        self._leaves = ""  # why it is to end once everything is answered
        self._is_parting = False  # everything is answered, and our side closed
        self.place: Place | None = None
        self._spread = self.port.spread.next()
        self._started_ms = self._active_ms = 0
        self._look_s = 0

    @property
    def is_closed(self) -> bool:
        """Whether the client is gone, or is to go."""
        return self._is_closed

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        source = self.place.source if self.place else None
        return f"{source[0]}:{source[1]}" if source else "a client"

    @property
    def has_begun(self) -> bool:
        """Whether the client has done what a login timeout waits for: it has asked something, and is logged in."""
        has_asked = self._broker is not None or self._dial is not None or self.session.has_waited
        return has_asked and not self.session.is_logging_in

    @property
    @isolated
    def paused_socket(self) -> int | None:
        """The descriptor of a client that is not being read now, and of whose end nobody would tell."""
        if self._reads_client or self._client is None or self._is_closed:
            return None
        return cast(int, self._client.get_extra_info("socket").fileno())

    @property
    @isolated
    def ends_with_its_client(self) -> bool:
        """Whether it is of no use once its client has closed its side: its dial waits, and there is to be an answer."""
        return self._dial is not None and self._dial.is_waiting and not self.session.awaits_no_answers

    @property
    def held_bytes(self) -> int:
        """How much of memory waits here: for a throttle time, for the rest of a frame, or for a peer that is slow."""
        return self._held_bytes() or 0

    @isolated
    def _held_bytes(self) -> int:
        waiting = sum(one.get_write_buffer_size() for one in (self._client, self._broker) if one is not None)
        return waiting + self.session.held_bytes

    # -- the client's side --

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up a new client. The broker is dialled when the client has sent a request."""
        self._client = cast(asyncio.Transport, transport)
        sock = self._client.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self.port.connections.add(self)
        if self.place is not None and self.place.source is not None:
            self.session.peer_host = self.place.source[0]
        self._started_ms = self._active_ms = monotonic_ns() // 1_000_000
        self._look_later(self._started_ms)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent."""
        started_ns = self.session.now_ns = monotonic_ns()
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

    @isolated
    def eof_received(self) -> bool:
        """Answer what a client asked before it closed its side, then close."""
        now_ms = self._now_ms()
        self._has_client_ended = True
        self.session.receive_end_from_client()
        self._flows = False
        self._act(now_ms)
        return not self._is_closed

    @isolated
    def pause_writing(self) -> None:
        """Do not read the broker while its answers cannot be delivered."""
        self._client_is_full = True
        self._now_ms()
        self.session.pause_answers()
        self._steer()

    @isolated
    def resume_writing(self) -> None:
        """Read the broker again, and pass on what waited for that."""
        self._client_is_full = False
        self._now_ms()
        self.session.resume_answers()
        if self.session.is_blocked:
            self.take_turn()
        self._steer()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the broker when the client has gone."""
        if self.place is not None:
            self.place.leave()
        self.close(_cause("client", exc))

    # -- the broker's side --

    def broker_connected(self, transport: asyncio.Transport) -> None:
        """Send what has waited for the connection to the broker."""
        self._dial = None
        if self._is_closed:
            transport.abort()
            return
        self._broker = transport
        self.port.broker_count += 1
        now_ms = self._now_ms()
        self.session.restart_service()
        self._act(now_ms)

    def broker_failed(self, cause: str) -> None:
        """Close: the broker could not be reached."""
        self._dial = None
        self.close(cause)

    def broker_received(self, data: bytes) -> None:
        """Pass on what the broker sent."""
        started_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        session = self.session
        session.now_ns = started_ns
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
        self._forget_broker()
        self.close(_cause("upstream", exc))

    # -- both --

    def close(self, cause: str) -> None:
        """Close both sides once what is written has been sent. Harmless when they are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_parting:
            cause = self._leaves
        has_passed = not cause.startswith("upstream_") and self._broker is not None and not self.session.to_broker
        self._let_go()
        self.port.counters.disconnect(cause)
        unanswered = None
        try:
            unanswered = self.session.close(now_ms=self._now_ms(), has_passed=has_passed)
        finally:
            self._close_transports(unanswered)

    def _close_transports(self, unanswered: Unanswered | None) -> None:
        for transport in (self._client, self._broker):
            if transport is not None and not transport.is_closing():
                # Who does not take what was written is not waited for for ever.
                with suppress(OSError):
                    sock = transport.get_extra_info("socket")
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LINGER_MS)
                if transport is not self._broker or unanswered is None:
                    transport.close()
        if unanswered is not None and self._broker is not None:
            self.port.orphans.keep(self._broker, unanswered, is_paused=not self._reads_broker)
            self._forget_broker()

    def fail(self) -> None:
        """End it at once, for a fault of this program. Harmless when repeated."""
        try:
            self.drop(INTERNAL_ERROR)
        finally:
            self._let_go()
            self._forget_broker()
            if self.place is not None:
                self.place.leave()

    @isolated
    def take_turn(self) -> None:
        """Pass on what waited in the queue in front of the broker."""
        if self._is_closed:
            return
        now_ms = self._now_ms()
        try:
            self.session.resume(now_ms=now_ms)
        except ProtocolError as error:
            self._refuse(error, "client")
            return
        self._act(now_ms)
        self._steer()

    def drop(self, cause: str) -> None:
        """Close both sides now, and forget what was to be written."""
        transports = (self._client, self._broker)
        self.close(cause)
        for transport in transports:
            if transport is not None:
                transport.abort()

    @isolated
    def lose(self) -> None:
        """Let go of a client of which the server has seen that it is gone."""
        if self._client is not None:
            self._client.abort()

    @isolated
    def look(self, now_ms: int) -> None:
        """End it if a limit of its time has come; else be looked at again in time."""
        session = self.session
        # Each read of the client leaves its mark, so that nobody need note the time of it.
        is_owed = session.is_owed
        if is_owed or self._request_ns:
            self._active_ms = now_ms
        if not is_owed:
            self._request_ns = 0
        cause = limit_that_has_come(
            self.port.listener,
            now_ms=now_ms,
            started_ms=self._started_ms,
            active_ms=self._active_ms,
            has_begun=self.has_begun,
            spread=self._spread,
        )
        if cause in (LOGIN_TIMEOUT, IDLE_TIMEOUT) and not session.is_idle:
            self.close(cause)  # in the middle of something that will not end
        elif cause is not None and session.muted_until_ms <= now_ms and not session.is_blocked:
            self.leave(cause)
        if not self._is_closed:
            self._look_later(now_ms)

    @isolated
    def release(self) -> None:
        """Go on with what waits for its throttle time, and let nothing wait from now on."""
        now_ms = self._now_ms()
        try:
            self.session.release(now_ms=now_ms)
        except ProtocolError as error:
            self._refuse(error, "peer")
            return
        self._act(now_ms)

    @isolated
    def leave(self, cause: str) -> None:
        """Take up no further request, and close when all that have been are answered."""
        if self._is_closed or self._leaves:
            return
        self._leaves = cause
        self._flows = False
        now_ms = self._now_ms()
        if not self.session.awaits_no_answers:
            self.session.take_no_more()
        self._act(now_ms)

    def _let_go(self) -> None:
        """Have nothing call it any more. Harmless when repeated."""
        self.port.connections.discard(self)
        self.port.watch.discard(self, self._look_s)
        if self._timer is not None:
            self._timer.cancel()
        if self._dial is not None:
            self._dial.give_up()

    def _forget_broker(self) -> None:
        if self._broker is not None:
            self._broker = None
            self.port.broker_count -= 1

    def _part(self) -> None:
        """Close our side behind the last answer, and wait for the client to close its own."""
        client = self._client
        if client is None or client.is_closing() or not client.can_write_eof():
            self.close(self._leaves)
            return
        self._is_parting = True
        client.set_protocol(_Parting(self))
        client.write_eof()
        if not self._reads_client:
            self._reads_client = True
            client.resume_reading()
        self._await_end(client, _PARTINGS)

    @isolated
    def _await_end(self, client: asyncio.Transport, tries: int) -> None:
        """Close when the client has had its time, and again as long while it takes what was written before."""
        if self._timer is not None:
            self._timer.cancel()
        if tries == 0 or (tries < _PARTINGS and not client.get_write_buffer_size()):
            self.close(self._leaves)
        else:
            self._timer = asyncio.get_running_loop().call_later(_PARTING_S, self._await_end, client, tries - 1)

    def received_late(self, data: bytes) -> None:
        """Drop what has no answer, for its client will send it anew, elsewhere; pass on what never has one."""
        if self._is_closed or not self.session.awaits_no_answers:
            return
        now_ms = self._now_ms()
        try:
            self.session.receive_from_client(data, now_ms=now_ms)
        except ProtocolError as error:
            self._refuse(error, "client")
            return
        self._act(now_ms)

    def _look_later(self, now_ms: int) -> None:
        at_ms = look_at_ms(
            self.port.listener,
            now_ms=now_ms,
            started_ms=self._started_ms,
            active_ms=self._active_ms,
            has_begun=self.has_begun,
            spread=self._spread,
        )
        self._look_s = self.port.watch.add(self, at_ms)

    def _now_ms(self) -> int:
        """Return the time, of which the session is told more exactly: to be called before anything that it does."""
        now_ns = self.session.now_ns = monotonic_ns()
        return now_ns // 1_000_000

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
            elif self._dial is None:
                self._dial = self.port.dial(self)
        out = session.to_client
        if out and self._client is not None:
            if self._is_parting:
                pass
            elif len(out) == 1:
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
            if session.account.refusal:
                self._turn_away(session.account.refusal)
            elif (self._has_client_ended or self._leaves) and not session.to_broker and not self._is_parting:
                self._end_when_answered()

    def _turn_away(self, why: str) -> None:
        """Close who has as many connections as he may have without this one."""
        level = logging.WARNING if self.port.is_news(CONNECTIONS_QUOTA) else logging.DEBUG
        log.log(level, "closed %s on listener %s: %s", self.peer, self.port.name, why)
        self.close(CONNECTIONS_QUOTA)

    def _end_when_answered(self) -> None:
        session = self.session
        if session.is_idle and self._has_client_ended:
            self.close("client_closed")
        elif session.is_idle or (session.awaits_no_answers and session.has_answered):
            self._part()

    def _steer(self) -> None:
        """Read from each side if, and only if, what it sends can be used."""
        is_blocked = self.session.is_blocked and not self._is_parting
        reads = not (is_blocked or self._broker_is_full or self._dial is not None)
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
        is_ending = self._has_client_ended or self._leaves
        self._flows = self._reads_client and self._reads_broker and self._broker is not None and not is_ending

    def _arm(self, wake_at_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_at_ms
        self._timer = asyncio.get_running_loop().call_later((wake_at_ms - now_ms) / 1_000, self._wake)

    @isolated
    def _wake(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        now_ms = self._now_ms()
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


def _cause(side: str, error: Exception | None) -> str:
    """Return why a connection ends whose client, or broker, is lost."""
    if error is None:
        return f"{side}_closed"
    # uvloop closes the transport of a callback that raises.
    return f"{side}_lost" if isinstance(error, OSError) else INTERNAL_ERROR


def _wake_soon(waiter: Waiter) -> None:
    """Have a connection look whether its request may pass, once the session that is at work now is done."""
    asyncio.get_running_loop().call_soon(waiter.take_turn)


class _Parting(asyncio.Protocol):
    """A client's transport in its last moments, until its client has seen that our side is closed."""

    __slots__ = ("_owner",)

    def __init__(self, owner: ClientConnection) -> None:
        self._owner = owner

    def fail(self) -> None:
        """See ``ClientConnection.fail``."""
        self._owner.fail()

    def data_received(self, data: bytes) -> None:
        """See ``ClientConnection.received_late``."""
        self._owner.received_late(data)

    @isolated
    def resume_writing(self) -> None:
        """See ``ClientConnection.resume_writing``."""
        self._owner.resume_writing()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """See ``ClientConnection.connection_lost``."""
        self._owner.connection_lost(exc)


class BrokerConnection(asyncio.Protocol):
    """The broker's transport; all it hears goes to its ``ClientConnection``, which has it once the dial is done."""

    __slots__ = ("_owner", "_transport")

    def __init__(self, owner: ClientConnection) -> None:
        self._owner = owner
        self._transport: asyncio.BaseTransport | None = None

    def fail(self) -> None:
        """See ``ClientConnection.fail``."""
        if self._transport is not None:
            cast(asyncio.Transport, self._transport).abort()
        self._owner.fail()

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport, which is the owner's once the dial is done."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See ``ClientConnection.broker_received``."""
        self._owner.broker_received(data)

    @isolated
    def pause_writing(self) -> None:
        """See ``ClientConnection.broker_full``."""
        self._owner.broker_full(True)

    @isolated
    def resume_writing(self) -> None:
        """See ``ClientConnection.broker_full``."""
        self._owner.broker_full(False)

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """See ``ClientConnection.broker_lost``."""
        self._owner.broker_lost(exc)
