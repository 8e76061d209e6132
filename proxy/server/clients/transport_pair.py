"""Manages the two transports of a client's connection: one to the client and, once it is connected, one to a broker."""

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from kafka_quota_proxy.proxy.runtime.isolation import INTERNAL_ERROR

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
    from kafka_quota_proxy.proxy.server.clients.relay import RelayPair

# TCP_KEEPALIVE is the name of TCP_KEEPIDLE on macOS.
_KEEPIDLE: Final[int] = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0))
# A peer that vanishes silently (a crashed machine, a cut cable) is detected after 30 + 3 * 5 s.
_KEEPALIVE: Final = ((_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_USER_TIMEOUT: Final[int] = getattr(socket, "TCP_USER_TIMEOUT", 0)  # Linux has it
# How long a closed transport waits for a peer that does not read.
_LINGER_MS: Final = 30_000


class ClosingTransports:
    """The transports of one listener that are closed, and hold memory until their peers have read what was written."""

    __slots__ = ("_kept_bytes",)

    def __init__(self) -> None:
        self._kept_bytes: dict[asyncio.Transport, int] = {}

    def close(self, transport: asyncio.Transport, *, kept_bytes: int = 0) -> None:
        """Close a transport after writing its buffer. Until then, its protocol keeps ``kept_bytes`` in memory."""
        transport.close()
        if transport.get_write_buffer_size():
            self._kept_bytes[transport] = kept_bytes

    def holders(self) -> list[tuple[int, asyncio.Transport]]:
        """Return each transport that still has bytes to write, after the number of bytes that it holds in memory."""
        held: list[tuple[int, asyncio.Transport]] = []
        for transport, kept_bytes in tuple(self._kept_bytes.items()):
            size_bytes = transport.get_write_buffer_size()
            if size_bytes:
                held.append((size_bytes + kept_bytes, transport))
            else:
                del self._kept_bytes[transport]
        return held


class TransportPair:
    """Holds the transports of one client's connection: ``client`` and, once it is connected, ``broker``.

    It also records which of them are being read, and whether the write buffer to the broker is full. A relay may read
    their sockets instead of them; ``may_enter_relay`` says whether that is still to be found out.
    """

    __slots__ = (
        "_relayed", "broker", "client", "is_broker_full", "may_enter_relay", "reads_broker", "reads_client",
    )  # fmt: skip

    def __init__(self) -> None:
        self.client: asyncio.Transport | None = None
        self.broker: asyncio.Transport | None = None
        self.reads_client = True
        self.reads_broker = True
        self.is_broker_full = False
        self.may_enter_relay = True
        self._relayed: RelayPair | None = None  # None unless a relay reads both

    def connect_client(self, transport: asyncio.BaseTransport) -> None:
        """Take over the client's transport, and turn on TCP keepalive."""
        self.client = cast(asyncio.Transport, transport)
        _keep_alive(self.client)

    def connect_broker(self, transport: asyncio.Transport) -> None:
        """Take over the broker's transport, and turn on TCP keepalive.

        Without keepalive, a client that has closed its side and waits for a vanished broker would be kept for ever.
        """
        self.broker = transport
        _keep_alive(transport)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait in the write buffers of both transports."""
        return sum(one.get_write_buffer_size() for one in (self.client, self.broker) if one is not None)

    @property
    def unread_bytes(self) -> int:
        """How many bytes wait until the client reads them."""
        return 0 if self.client is None else self.client.get_write_buffer_size()

    def read_client(self, *, reads: bool) -> None:
        """Begin to read from the client, or pause that. Call it only for a change. Without a client nothing changes."""
        if self.client is not None:
            self.reads_client = reads
            if self._relayed is not None:
                self._relayed.client.set_reading(reads)
            elif reads:
                self.client.resume_reading()
            else:
                self.client.pause_reading()

    def read_broker(self, *, reads: bool) -> None:
        """Begin to read from the broker, or pause that, as for the client."""
        if self.broker is not None:
            self.reads_broker = reads
            if self._relayed is not None:
                self._relayed.broker.set_reading(reads)
            elif reads:
                self.broker.resume_reading()
            else:
                self.broker.pause_reading()

    def enter_relay(self, connection: "ClientConnection") -> None:
        """Let the listener's relay read both sockets, which are being read, unless something speaks against it."""
        self.may_enter_relay = False
        client, broker, relay = self.client, self.broker, connection.listener.relay
        context = connection.state.context
        if relay is None or not connection.listener.uses_relay:
            return
        if context.addresses is not None or context.queue is not None:
            return  # responses are rewritten, or requests are queued: then most need whole frames
        if client is not None and broker is not None and not _is_encrypted(client) and not _is_encrypted(broker):
            client.pause_reading()
            broker.pause_reading()
            self._relayed = relay.attach(connection, client, broker)
            self._relayed.client.set_reading(True)
            self._relayed.broker.set_reading(True)

    def leave_relay(self) -> None:
        """Let the transports read the sockets from now on. May be called again."""
        self.may_enter_relay = False
        relayed, self._relayed = self._relayed, None
        if relayed is not None:
            for end, reads in ((relayed.client, self.reads_client), (relayed.broker, self.reads_broker)):
                end.set_reading(False)
                if reads and not end.transport.is_closing():
                    end.transport.resume_reading()

    def close(self, closing: ClosingTransports, kept_bytes: int, *, keeps_broker: bool) -> None:
        """Flush and close both transports, or only the client's if ``keeps_broker`` is True.

        This call does not wait. A peer that reads nothing more is disconnected after ``_LINGER_MS``, and without Linux
        also a peer that has not read everything by then. Until the remaining bytes are read, they count in ``closing``,
        with the ``kept_bytes`` of the session.
        """
        for transport in (self.client, self.broker):
            if transport is not None and not transport.is_closing():
                if _USER_TIMEOUT:
                    with suppress(OSError):
                        sock = transport.get_extra_info("socket")
                        sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, _LINGER_MS)
                if transport is not self.broker or not keeps_broker:
                    closing.close(transport, kept_bytes=kept_bytes)
                    kept_bytes = 0
                    if not _USER_TIMEOUT and transport.get_write_buffer_size():
                        asyncio.get_running_loop().call_later(_LINGER_MS / 1_000, transport.abort)


def write(transport: asyncio.Transport, pieces: list[bytes]) -> None:
    """Write all ``pieces`` to the transport, and empty the list."""
    if len(pieces) == 1:
        transport.write(pieces[0])
    else:
        transport.writelines(pieces)
    pieces.clear()


def cause_of_loss(side: str, error: Exception | None) -> str:
    """Return the cause to count for a lost transport. ``side`` is "client", or "upstream" for the broker."""
    if error is None:
        return f"{side}_closed"
    # uvloop closes the transport of a callback that raises.
    return f"{side}_lost" if isinstance(error, OSError) else INTERNAL_ERROR


def _keep_alive(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    with suppress(OSError):  # macOS refuses options of a connection that the peer has just ended
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _is_encrypted(transport: asyncio.Transport) -> bool:
    return transport.get_extra_info("ssl_object") is not None
