"""Passes the bodies of requests and responses from socket to socket. They do not become Python objects.

The event loop reads each socket into a new object. A relay reads all sockets of its connections into one buffer
instead. It gives the session the first bytes of each request and response, as the event loop would. If the session
forwards them unchanged, the rest of the request or response is sent from the buffer. A long rest does not even enter
the buffer: the system moves it from one socket to the other (splice(2)).

The transports keep their sockets: a relay only reads and writes them. It leaves all other work to the transports, for
example to write what the system's buffers have no room for.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.runtime.isolation import end_after
from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES, Sockets

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection

# How many bytes of a request or response the session gets at first. A head rarely has more, and objects of up to 512
# bytes are allocated faster.
_HEAD_BYTES: Final = 448
# If at least this many bytes of a body are left, they are spliced, which takes system calls of its own.
_SPLICED_BYTES: Final = 32 * 1024
# How many bytes are read at once after a spliced body, so that most of the next body is left to splice.
_SHORT_READ_BYTES: Final = 4096
# How many short requests are relayed at once. Then the session bounds the work for the rest.
_MOST_HEADS: Final = 512
# After this time the other work of the event loop has its turn.
_RUN_NS: Final = 2_000_000


class Relay:
    """Reads the sockets of all connections that are relayed.

    ``run`` reads those that are readable. The event loop calls it when ``sockets.fileno()`` is readable.
    """

    __slots__ = ("_ready", "ends", "sockets")

    def __init__(self, sockets: Sockets) -> None:
        self.sockets = sockets
        self.ends: dict[int, RelayEnd] = {}
        self._ready: list[int] = []  # the sockets that the next run reads first

    def attach(self, connection: ClientConnection, client: asyncio.Transport, broker: asyncio.Transport) -> RelayPair:
        """Read both sockets of a connection from now on. Neither may be read by its transport any more."""
        return RelayPair(ClientEnd(self, connection, client), BrokerEnd(self, connection, broker))

    def run(self) -> None:
        """Read the sockets that are readable now, and pass on what they had.

        If that takes long, the next run goes on with the rest of them, which no busy socket can overtake.
        """
        ends = self.ends
        ready = self._ready = self._ready or self.sockets.ready()[::-1]
        until_ns = monotonic_ns() + _RUN_NS
        while ready:
            end = ends.get(ready.pop())
            if end is not None:
                try:
                    end.read()
                except Exception as error:  # noqa: BLE001 - the other connections go on
                    end_after(error, end.connection)
                if monotonic_ns() >= until_ns:
                    break


class RelayEnd:
    """One socket of a relayed connection."""

    __slots__ = ("connection", "fd", "is_read", "peer", "relay", "sockets", "splices", "state", "transport")

    peer: RelayEnd

    def __init__(self, relay: Relay, connection: ClientConnection, transport: asyncio.Transport) -> None:
        self.relay = relay
        self.sockets = relay.sockets
        self.connection = connection
        self.state = connection.state
        self.transport = transport
        self.fd: int = transport.get_extra_info("socket").fileno()
        self.is_read = False
        self.splices = False  # whether the last body was long, so that the next one probably is, too

    def set_reading(self, reads: bool) -> None:
        """Start or stop reading the socket."""
        if reads is not self.is_read:
            ends = self.relay.ends
            if reads:
                ends[self.fd] = self
                self.sockets.watch(self.fd)
            elif ends.get(self.fd) is self:  # otherwise the number belongs to another socket by now
                del ends[self.fd]
                self.sockets.forget(self.fd)
            self.is_read = reads

    def read(self) -> None:
        """Read the socket once, and pass on what it had."""
        if self.transport.is_closing():
            return
        left = self.bytes_to_splice()
        if left:
            self._splice(left)
            return
        try:
            count: int = self.sockets.read(self.fd, _SHORT_READ_BYTES if self.splices else BUFFER_BYTES)
        except OSError as error:
            self.lose(error)
            return
        if count > 0:
            self.pass_on(count)
            if self.splices and self.is_read:
                left = self.bytes_to_splice()
                if left:
                    self._splice(left)
        elif count == 0:
            self.connection.transports.leave_relay()  # the transport reads the end of the stream

    def _splice(self, left: int) -> None:
        """Move the next bytes, at most ``left``, from this socket to the other."""
        sockets, peer = self.sockets, self.peer
        try:
            count: int = sockets.splice_in(self.fd, left)
        except OSError as error:
            self.lose(error)
            return
        if count > 0:
            try:
                sent: int = sockets.splice_out(peer.fd, count)
            except OSError as error:
                sockets.take_spliced(count)
                peer.lose(error)
                return
            if sent < count:
                peer.transport.write(sockets.take_spliced(count - sent))
            self.pass_body(count)
        elif count == 0:
            self.connection.transports.leave_relay()

    def bytes_to_splice(self) -> int:
        """Return how many of the next bytes may be spliced, or 0 if they should be read."""
        raise NotImplementedError

    def pass_body(self, count: int) -> None:
        """Note that the next ``count`` bytes from this socket were sent to the other."""
        raise NotImplementedError

    def pass_on(self, count: int) -> None:
        """Pass on the first ``count`` bytes of the buffer."""
        raise NotImplementedError

    def lose(self, error: OSError) -> None:
        """Close the connection, because the socket cannot be read or written any more."""
        raise NotImplementedError

    def send(self, begin: int, end: int, *, has_more: bool = False) -> bool:
        """Send a part of the buffer. What the system has no room for is left to the transport.

        Args:
            begin: The offset of the first byte.
            end: The offset after the last byte.
            has_more: Whether more bytes are spliced soon, so that the system may send them in one packet with these.

        Return False if the socket is lost, which has closed the connection.
        """
        if begin == end:
            return True
        try:
            sent: int = self.sockets.write(self.fd, begin, end, has_more=has_more)
        except OSError as error:
            self.lose(error)
            return False
        if begin + sent < end:
            self.transport.write(self.sockets.part(begin + sent, end))
        return True

    def may_send(self) -> bool:
        """Return whether nothing is to be written before what is sent now."""
        return not self.transport.get_write_buffer_size()


class ClientEnd(RelayEnd):
    """The client's socket."""

    __slots__ = ()

    def lose(self, error: OSError) -> None:
        """Close the connection, because the client is lost."""
        self.connection.connection_lost(error)
        self.transport.abort()

    def bytes_to_splice(self) -> int:
        """Return how many bytes of a long request are left, if nothing else has to be done with them."""
        left = self.state.request_left
        if left < _SPLICED_BYTES or self.connection.flow_to_broker is None or not self.peer.may_send():
            return 0
        return 0 if self.state.is_rest_doubted else left

    def pass_body(self, count: int) -> None:
        """Note that ``count`` bytes of a request went to the broker."""
        now_ns = self.state.now_ns = monotonic_ns()
        self.state.requests.pass_body(count, now_ns // 1_000_000)
        self.connection.request_ns = abs(self.connection.request_ns)  # so ``TimeChecks`` sees that the client has sent

    def pass_on(self, count: int) -> None:
        """Pass on requests."""
        connection = self.connection
        at = 0
        if connection.flow_to_broker is not None and self.peer.may_send():
            at = self._pass_unchanged(count)
        if at < count and not connection.is_closed:
            connection.data_received(self.sockets.part(at, count))

    def _pass_unchanged(self, count: int) -> int:
        """Pass on requests until one is changed, held or answered. Return the offset of the bytes after it."""
        connection, state, broker, sockets = self.connection, self.state, self.peer, self.sockets
        requests, to_broker = state.requests, state.to_broker
        started_ns = state.now_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        at = heads = 0
        while at < count and heads < _MOST_HEADS:
            heads += 1
            left = state.request_left
            if left:
                if state.is_rest_doubted:
                    break
                if left > count - at:
                    left = count - at
                requests.pass_body(left, now_ms)
                at += left
                continue
            head: bytes = sockets.part(at, at + _HEAD_BYTES if at + _HEAD_BYTES < count else count)
            try:
                requests.receive(head, now_ms=now_ms)
            except ProtocolError as error:
                if broker.send(0, at):
                    connection.close_on(error, "client")
                return count
            if len(to_broker) != 1 or to_broker[0] is not head or state.blocked_by is not None or state.to_client:
                if not broker.send(0, at):
                    return count
                connection.flush(now_ms)
                connection.request_ns = monotonic_ns() - started_ns
                return at + len(head)
            to_broker.clear()
            at += len(head)
            self.splices = state.request_left >= _SPLICED_BYTES
        broker.send(0, at, has_more=state.request_left >= _SPLICED_BYTES)
        connection.request_ns = monotonic_ns() - started_ns
        return at


class BrokerEnd(RelayEnd):
    """The broker's socket."""

    __slots__ = ()

    def lose(self, error: OSError) -> None:
        """Close the connection, because the broker is lost."""
        self.connection.broker_lost(error)
        self.transport.abort()

    def bytes_to_splice(self) -> int:
        """Return how many bytes of a long response are left, if nothing else has to be done with them."""
        left = self.state.responses.body_left
        if left < _SPLICED_BYTES or self.connection.flow_to_client is None or not self.peer.may_send():
            return 0
        return left

    def pass_body(self, count: int) -> None:
        """Note that ``count`` bytes of a response went to the client."""
        state = self.state
        now_ns = state.now_ns = monotonic_ns()
        state.responses.pass_body(count, now_ns // 1_000_000)
        if state.to_broker or state.to_client:
            self.connection.flush(now_ns // 1_000_000)

    def pass_on(self, count: int) -> None:
        """Pass on responses."""
        connection = self.connection
        at = 0
        if connection.flow_to_client is not None and self.peer.may_send():
            at = self._pass_unchanged(count)
        if at < count and not connection.is_closed:
            connection.broker_received(self.sockets.part(at, count))

    def _pass_unchanged(self, count: int) -> int:
        """Pass on responses until one is changed or held, or lets a request go on. Return the offset after it."""
        connection, state, client, sockets = self.connection, self.state, self.peer, self.sockets
        responses, to_client = state.responses, state.to_client
        started_ns = state.now_ns = monotonic_ns()
        now_ms = started_ns // 1_000_000
        at = 0
        while at < count:
            left = responses.body_left
            if left:
                if left > count - at:
                    left = count - at
                responses.pass_body(left, now_ms)
                at += left
                if state.to_broker or to_client:
                    if client.send(0, at):
                        connection.flush(now_ms)
                    self._observe(started_ns)
                    return at if not connection.is_closed else count
                continue
            head: bytes = sockets.part(at, at + _HEAD_BYTES if at + _HEAD_BYTES < count else count)
            try:
                responses.receive(head, now_ms=now_ms)
            except ProtocolError as error:
                if client.send(0, at):
                    connection.close_on(error, "broker")
                return count
            if len(to_client) != 1 or to_client[0] is not head or state.delayed_until_ms or state.to_broker:
                if not client.send(0, at):
                    return count
                connection.flush(now_ms)
                self._observe(started_ns)
                return at + len(head)
            to_client.clear()
            at += len(head)
            self.splices = responses.left >= _SPLICED_BYTES
        client.send(0, at, has_more=responses.left >= _SPLICED_BYTES)
        self._observe(started_ns)
        return at

    def _observe(self, started_ns: int) -> None:
        """Count the latency of a response that has begun since ``started_ns``."""
        api_key = self.state.answered
        if api_key >= 0:
            self.state.answered = -1
            connection = self.connection
            elapsed_ns = monotonic_ns() - started_ns + abs(connection.request_ns)
            connection.listener.latency.observe(api_key, elapsed_ns)


class RelayPair:
    """Both ends of a relayed connection."""

    __slots__ = ("broker", "client")

    def __init__(self, client: ClientEnd, broker: BrokerEnd) -> None:
        self.client = client
        self.broker = broker
        client.peer, broker.peer = broker, client
