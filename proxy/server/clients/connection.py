"""Runs one client's connection: the transports to the client and to the broker, one timer, and a session.

The session decides what is forwarded, changed or delayed, and this module does the I/O. While the broker cannot be
written to, the client is not read, and while the client cannot be written to, the broker is not read.

A throttled client is read until it sends its next request, so that its loss is noticed. Then it is not read until the
throttle time is over. Meanwhile the server polls its socket, because the event loop does not report a lost peer then.

A connection is drained when the proxy shuts down, or when the connection reaches its maximum age. It then accepts no
further requests, answers those that it has accepted, and closes the proxy's side (``half_close``). Produce
requests with acks=0 are forwarded until the end, because their client would not notice that they were lost.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.runtime.isolation import INTERNAL_ERROR, end_after, isolated
from kafka_quota_proxy.proxy.server.clients.connection_limits import CONNECTIONS_QUOTA, CountedConnection
from kafka_quota_proxy.proxy.server.clients.half_close import HalfClosedClient
from kafka_quota_proxy.proxy.server.clients.time_checks import TimeChecks
from kafka_quota_proxy.proxy.server.clients.transport_pair import TransportPair, cause_of_loss, write
from kafka_quota_proxy.proxy.session.session import Needs
from kafka_quota_proxy.proxy.session.unanswered import Unanswered

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.brokers.dialer import PendingDial
    from kafka_quota_proxy.proxy.server.route import Route


class ClientConnection:
    """Serves one client: passes its bytes to a ``Session``, and dials the broker when the first request arrives."""

    __slots__ = (
        "_dial", "_half_closed", "_has_client_ended", "_timer", "_timer_ms", "counted", "drain_cause", "flow_to_broker",
        "flow_to_client", "is_closed", "listener", "request_ns", "route", "session", "state", "time_checks",
        "transports",
    )  # fmt: skip

    def __init__(self, route: "Route") -> None:
        self.route = route
        self.listener = route.listener
        self.session = route.session(self)
        self.session.await_broker()
        self.state = self.session.state
        self.time_checks = TimeChecks(self)
        self.counted: CountedConnection | None = None
        self.transports = TransportPair()
        self.flow_to_broker: asyncio.Transport | None = None  # None unless both are open, read and not ending
        self.flow_to_client: asyncio.Transport | None = None
        self._dial: PendingDial | None = None  # None unless the broker is being dialled
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0  # when the timer fires
        self.request_ns = 0  # time spent on the last read from the client; negative once ``TimeChecks`` has seen it
        self._has_client_ended = False
        self.drain_cause = ""  # why the connection is drained; empty if it is not
        self._half_closed: HalfClosedClient | None = None
        self.is_closed = False

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        source = self.counted.source if self.counted else None
        return f"{source[0]}:{source[1]}" if source else "a client"

    @property
    def is_past_login(self) -> bool:
        """Whether the client has sent a request and is not within a SASL login. If so, no login timeout applies."""
        has_dialled = self.transports.broker is not None or self._dial is not None
        has_requested = has_dialled or self.state.account.is_counted or self.state.blocked_by is not None
        return has_requested and not self.session.is_logging_in

    @isolated
    def paused_socket(self) -> int | None:
        """Return the client's file descriptor, to be polled, or None while the client is read."""
        client = self.transports.client
        if client is None or self.transports.reads_client or self.is_closed:
            return None
        return int(client.get_extra_info("socket").fileno())

    @isolated
    def end_paused_client(self) -> None:
        """Drop what the client waits for, because it has closed its side. If the dial is queued, that is everything."""
        if self._dial is None and not self.is_closed:
            self._run(self.session.abandon, "client")
            self.update_reading()
            if self.state.is_ending and self.session.is_idle:
                self.close("client_closed")
        elif self._dial is not None and self._dial.is_waiting and not self.session.awaits_no_answers:
            self.abort_client()

    @isolated
    def held_bytes(self) -> int:
        """Return how many bytes of requests and responses the connection holds in memory."""
        return self.transports.buffered_bytes + self.session.held_bytes

    # -- callbacks of the client's transport --

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving a client. The broker is dialled when the first request arrives."""
        self.transports.connect_client(transport)
        self.listener.connections[self] = None
        if self.counted is not None and self.counted.source is not None:
            self.state.account.peer_host = self.counted.source[0]
        self.time_checks.start(monotonic_ns() // 1_000_000)

    def data_received(self, data: bytes) -> None:
        """Pass bytes from the client to the ``Session``, then write the results to the broker and the client."""
        state = self.state
        started_ns = state.now_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        try:
            self.session.receive_from_client(data, now_ms=now_ms)
        except ProtocolError as error:
            self.close_on(error, "client")
            return
        out = state.to_broker
        broker = self.flow_to_broker
        if broker is not None and len(out) == 1 and state.blocked_by is None and not state.to_client:
            broker.write(out.pop())  # the common case: the bytes are forwarded unchanged
        else:
            self.flush(now_ms)
        self.request_ns = monotonic_ns() - started_ns

    @isolated
    def eof_received(self) -> bool:
        """Answer the requests that the client sent before it closed its side, then close the connection."""
        now_ms = self._now_ms()
        self._has_client_ended = True
        self.transports.leave_relay()
        self.session.receive_end_from_client()
        self.flow_to_broker = self.flow_to_client = None
        self.flush(now_ms)
        self.end_paused_client()
        return not self.is_closed

    @isolated
    def pause_writing(self) -> None:
        """Stop reading the broker, because the write buffer to the client is full."""
        self._now_ms()
        self.session.pause_answers()
        self.update_reading()

    @isolated
    def resume_writing(self) -> None:
        """Read the broker again, because the write buffer to the client has room."""
        self.time_checks.has_read = True
        self._now_ms()
        self.session.resume_answers()
        self.take_turn()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection, because the client's transport is lost."""
        if self.counted is not None:
            self.counted.leave()
        if not self.is_closed:
            self.session.count_abandoned()
        self.close(cause_of_loss("client", exc))

    # -- callbacks of the dial and of the broker's transport --

    def broker_connected(self, transport: asyncio.Transport) -> None:
        """Take over the transport to the broker, and send the requests that waited for the dial."""
        self._dial = None
        if self.is_closed:
            transport.abort()
            return
        self.transports.connect_broker(transport)
        self.listener.broker_count += 1
        self._run(self.session.connect_broker, "client")

    def broker_failed(self, cause: str) -> None:
        """Close the client's transport, because the broker could not be reached."""
        self._dial = None
        self.close(cause)

    def broker_received(self, data: bytes) -> None:
        """Pass bytes from the broker to the ``Session``, then write the results to the client and the broker."""
        started_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        state = self.state
        state.now_ns = started_ns
        try:
            self.session.receive_from_broker(data, now_ms=now_ms)
        except ProtocolError as error:
            self.close_on(error, "broker")
            return
        out = state.to_client
        client = self.flow_to_client
        if client is not None and len(out) == 1 and not state.delayed_until_ms and not state.to_broker:
            client.write(out.pop())
        else:
            self.flush(now_ms)
        api_key = state.answered
        if api_key >= 0:
            state.answered = -1
            self.listener.latency.observe(api_key, monotonic_ns() - started_ns + abs(self.request_ns))

    def broker_full(self, is_full: bool) -> None:
        """Stop reading the client while the write buffer to the broker ``is_full``."""
        self.transports.is_broker_full = is_full
        self.update_reading()

    def broker_lost(self, exc: Exception | None) -> None:
        """Close the client's transport, because the transport to the broker is lost."""
        self._forget_broker()
        self.close(cause_of_loss("upstream", exc))

    # -- timers and turns --

    def take_turn(self) -> None:
        """Resume the waiting request: a quota or the fair call queue lets it go on, or the proxy's answer is ready."""
        if not self.is_closed:
            try:  # as ``isolated`` does, with one call less for each throttled request
                self._run(self.session.resume, "client")
            except Exception as error:  # noqa: BLE001 - the other connections go on
                end_after(error, self)

    @isolated
    def _wake(self) -> None:
        self._timer = None
        if not self.is_closed:
            self._run(self.session.handle_timer, "peer")

    @isolated
    def release(self) -> None:
        """Forward the requests and responses that wait for a throttle time, and throttle nothing from now on.

        The server calls this when it begins to shut down.
        """
        self._run(self.session.release, "peer")

    def _run(self, step: Callable[..., None], sender: str) -> None:
        """Call a ``Session`` method, then ``flush``. If ``sender`` has violated Kafka's protocol, close instead."""
        now_ns = self.state.now_ns = monotonic_ns()
        now_ms = now_ns // 1_000_000
        try:
            step(now_ms=now_ms)
        except ProtocolError as error:
            self.close_on(error, sender)
        else:
            self.flush(now_ms)

    def _now_ms(self) -> int:
        """Give the ``Session`` the current time, which each of its methods needs, and return the time in ms."""
        now_ns = self.state.now_ns = monotonic_ns()
        return now_ns // 1_000_000

    def flush(self, now_ms: int) -> None:
        """Write what the ``Session`` has ready. Dial the broker, set the timer, and close the connection if needed."""
        state, transports = self.state, self.transports
        if state.to_broker:
            if transports.broker is not None:
                write(transports.broker, state.to_broker)
            elif self._dial is None:
                self._dial = self.listener.dial(self)
        if state.to_client and transports.client is not None:
            if self._half_closed is None:
                write(transports.client, state.to_client)
            state.to_client.clear()
        # Usually both sides are read and may go on being read. Then nothing is left to do.
        if state.blocked_by is not None or state.delayed_until_ms or self.flow_to_broker is None:
            needs = self.update_reading()
            wake_at_ms = needs.wake_at_ms
            if wake_at_ms > now_ms and (self._timer is None or wake_at_ms < self._timer_ms):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer_ms = wake_at_ms
                after_s = (wake_at_ms - now_ms) / 1_000
                self._timer = asyncio.get_running_loop().call_later(after_s, self._wake)
            if needs.refusal:
                self.listener.log_closed(self.peer, CONNECTIONS_QUOTA, needs.refusal)
                self.close(CONNECTIONS_QUOTA)
            elif (self._has_client_ended or self.drain_cause) and not state.to_broker and self._half_closed is None:
                self._close_when_answered()

    def update_reading(self) -> Needs:
        """Read each side only while its bytes can be forwarded, and return what the session needs."""
        transports, needs = self.transports, self.session.needs
        if not self.is_closed:
            may_read = needs.reads_client or self._half_closed is not None
            reads_client = may_read and not (transports.is_broker_full or self._dial is not None)
            if reads_client is not transports.reads_client:
                transports.read_client(reads=reads_client)
            if needs.reads_broker is not transports.reads_broker:
                transports.read_broker(reads=needs.reads_broker)
        flows = transports.reads_client and transports.reads_broker and transports.broker is not None
        flows = flows and not (self.is_closed or self._has_client_ended or self.drain_cause)
        self.flow_to_broker = transports.broker if flows else None
        self.flow_to_client = transports.client if flows else None
        if flows and transports.may_enter_relay:
            transports.enter_relay(self)
        return needs

    # -- the end --

    @isolated
    def drain(self, cause: str) -> None:
        """Accept no further requests, and close the connection when every accepted request is answered."""
        if self.is_closed or self.drain_cause:
            return
        self.drain_cause = cause
        self.transports.leave_relay()
        self.flow_to_broker = self.flow_to_client = None
        now_ms = self._now_ms()
        self.session.drain()
        self.flush(now_ms)

    def _close_when_answered(self) -> None:
        """If all requests are answered, close the connection, or half-close it while the client may still send."""
        session, client = self.session, self.transports.client
        if session.is_idle and self._has_client_ended:
            self.close("client_closed")
        elif session.is_idle or (session.takes_unanswered and session.has_answered):
            if client is None or client.is_closing() or not client.can_write_eof():
                self.close(self.drain_cause)
                return
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._half_closed = HalfClosedClient(self, client, self.drain_cause)
            if not self.transports.reads_client:
                self.transports.read_client(reads=True)

    def close(self, cause: str) -> None:
        """Close both transports after writing their buffers. Count ``cause`` as the reason. May be called again."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._half_closed is not None:
            cause = self.drain_cause
        has_passed = not (cause.startswith("upstream_") or self.transports.broker is None or self.state.to_broker)
        self._detach()
        self.listener.counters.disconnect(cause)
        unanswered = None
        try:
            unanswered = self.session.close(now_ms=self._now_ms(), has_passed=has_passed)
        finally:
            self._close_transports(unanswered)

    def _close_transports(self, unanswered: Unanswered | None) -> None:
        transports = self.transports
        transports.close(self.listener.closing, self.session.held_bytes, keeps_broker=unanswered is not None)
        if unanswered is not None and transports.broker is not None:
            self.listener.orphans.keep(transports.broker, unanswered, is_paused=not transports.reads_broker)
            self._forget_broker()

    def abort(self, cause: str) -> None:
        """Close both sides at once, and drop all unwritten bytes. Count the disconnect under ``cause``."""
        transports = (self.transports.client, self.transports.broker)
        self.close(cause)
        for transport in filter(None, transports):
            transport.abort()

    @isolated
    def abort_client(self) -> None:
        """Abort the client's transport, because the server has found that the client is lost."""
        if self.transports.client is not None:
            self.transports.client.abort()

    def fail(self) -> None:
        """Close both sides at once after an internal error. May be called again."""
        try:
            self.abort(INTERNAL_ERROR)
        finally:
            self._detach()
            self._forget_broker()
            if self.counted is not None:
                self.counted.leave()

    def close_on(self, error: ProtocolError, sender: str) -> None:
        """Close the connection, because ``sender`` has violated Kafka's protocol. Forward earlier requests first."""
        self.listener.counters.protocol_error(error.reason)
        self.listener.log_closed(self.peer, error.reason, f"its {sender} sent: {error}")
        if self.state.to_broker and self.transports.broker is not None:
            write(self.transports.broker, self.state.to_broker)
        self.close("protocol_error")

    def _detach(self) -> None:
        """Cancel every timer, check and dial that could call this connection later. May be called again."""
        self.transports.leave_relay()
        self.flow_to_broker = self.flow_to_client = None
        self.listener.remove(self)
        self.time_checks.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._half_closed is not None:
            self._half_closed.cancel()
        if self._dial is not None:
            self._dial.give_up()

    def _forget_broker(self) -> None:
        if self.transports.broker is not None:
            self.transports.broker = self.flow_to_broker = None
            self.listener.broker_count -= 1
