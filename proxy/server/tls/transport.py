"""TLS between a plain transport below and a protocol above, which sees a transport as any other.

The loop's own TLS would do, but for three things. It drops the alert that tells a client why its handshake failed, so
that clients take a refusal for a broken network and come again for ever. It keeps 256 KiB a connection. And it decrypts
at half the speed: here records are read into one buffer for all connections.

``close`` sends ``close_notify`` and does not wait for the peer's (RFC 8446, 6.1). A peer that has sent its own is owed
its answers all the same, as one that has closed its side of a plain connection.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.isolation import INTERNAL_ERROR, isolated

HANDSHAKE_TIMEOUT_S: Final = 10.0

# A memory BIO never gives back what it has grown to, so it is fed with so much at once.
_SLICE_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
# What one read of the socket holds, and what is made of it: used within one callback, so all connections share them.
_WIRE: Final = memoryview(bytearray(256 * 1024))
_PLAIN: Final = memoryview(bytearray(512 * 1024))


class SaidNothingError(ConnectionResetError):
    """Who has connected has left without a byte: a health check, most likely."""


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection: the protocol of the transport below, and the transport of the protocol above.

    Args:
        context: Whose certificate is shown and who is trusted.
        server_hostname: The peer's name or address, which its certificate has to be for; None: we are the server.
        welcome: Gives the protocol above once the handshake is done; what it raises fails the handshake.
        fail: Told once why the handshake failed, or later the encryption; ``is_up`` tells which. After a handshake
            the protocol above loses its connection as well.
    """

    __slots__ = (
        "_above",
        "_below",
        "_fail",
        "_has_ended",
        "_has_heard",
        "_has_peer_ended",
        "_has_told_end",
        "_incoming",
        "_is_closing",
        "_outgoing",
        "_reads",
        "_timer",
        "_tls",
        "_welcome",
        "error",
        "is_up",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        welcome: Callable[[ssl.SSLObject], asyncio.Protocol],
        fail: Callable[["TlsTransport", Exception], None],
    ) -> None:
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._welcome = welcome
        self._fail = fail
        self._below: asyncio.Transport
        self._above: asyncio.Protocol
        self._timer: asyncio.TimerHandle | None = None
        self._reads = True
        self._is_closing = False
        self.is_up = False
        self._has_heard = False
        self._has_ended = False  # our side, of both TLS and the transport below
        self._has_peer_ended = False
        self._has_told_end = False
        self.error: Exception | None = None

    # -- what the transport below tells --

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._below = cast(asyncio.Transport, transport)
        timeout = TimeoutError(f"no TLS handshake in {HANDSHAKE_TIMEOUT_S:g} s")
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._end_with, timeout)
        self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Have the transport read into the shared buffer."""
        return _WIRE

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self.data_received(_WIRE[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Decrypt."""
        if self._is_closing or self._has_peer_ended:
            return
        if self.is_up and self._reads:
            self._decrypt(data)
        else:
            self._incoming.write(data)
            if not self.is_up:
                self._has_heard = True
                self._shake_hands()

    @isolated
    def eof_received(self) -> bool:
        """Stay only where the peer has said before that it would send no more: else somebody may have cut it off."""
        if not self.is_up:
            self._end_with(self._hung_up())
        return self._has_peer_ended and not self._is_closing

    @isolated
    def pause_writing(self) -> None:
        """Pass it on."""
        if self.is_up:
            self._above.pause_writing()

    @isolated
    def resume_writing(self) -> None:
        """Pass it on."""
        if self.is_up:
            self._above.resume_writing()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._end_above(exc)

    def fail(self) -> None:
        """Close at once, for a fault of this program, and tell whom it belongs to. Harmless when repeated."""
        self.abort()
        self._end_above(RuntimeError(INTERNAL_ERROR))

    # -- what the protocol above asks --

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as the base class has it
        """Return what is known of the connection; ``ssl_object`` is the ``ssl.SSLObject``."""
        if name == "ssl_object":
            return self._tls
        return self._below.get_extra_info(name, default) if hasattr(self, "_below") else default

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """Return how many encrypted bytes wait below; here none do."""
        return self._below.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        if self._is_closing or not data:
            return
        try:
            if len(data) <= _RECORD_BYTES:
                self._tls.write(data)
            else:
                self._write_records(memoryview(data))
        except ssl.SSLError as error:
            self._end_with(error)
        else:
            self._below.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        """Whether our side can be closed alone: it can."""
        return True

    def write_eof(self) -> None:
        """Say behind what was written that no more comes, and go on reading."""
        if self._is_closing or self._has_ended:
            return
        with suppress(ssl.SSLError):  # that the peer's close_notify has not come
            self._tls.unwrap()
        self._flush()
        self._has_ended = True
        self._below.write_eof()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand over to another protocol above."""
        self._above = cast(asyncio.Protocol, protocol)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt as one piece, for each piece of its own would be a record of its own."""
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """Take no more from the peer."""
        self._reads = False
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Take more."""
        self._reads = True
        self._below.resume_reading()
        if self._incoming.pending or self._has_peer_ended:
            # Not within this call: its caller is in the middle of something.
            asyncio.get_running_loop().call_soon(self._catch_up)

    def close(self) -> None:
        """Send what was written, then close."""
        if self._is_closing:
            return
        self._is_closing = True
        self._cancel_timer()
        if self.is_up and not self._has_ended:
            with suppress(ssl.SSLError):  # that the peer's close_notify has not come
                self._tls.unwrap()
        self._flush()
        self._below.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._cancel_timer()
        if hasattr(self, "_below"):
            self._below.abort()

    # -- within --

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._end_with(error)
            return
        self._flush()
        try:
            above = self._welcome(self._tls)
        except ProtocolError as error:
            self._end_with(error)
            return
        self._cancel_timer()
        self._above = above
        self.is_up = True
        above.connection_made(self)
        self._catch_up()

    @isolated
    def _catch_up(self) -> None:
        """Read what has come while nobody was to read."""
        if self._reads and not self._is_closing:
            self._decrypt(b"")

    def _decrypt(self, data: bytes | memoryview) -> None:
        """Read the records that ``data`` completes, and hand them over as one piece."""
        size = 0
        error: ssl.SSLError | None = None
        for at in range(0, len(data) or 1, _SLICE_BYTES):
            self._incoming.write(memoryview(data)[at : at + _SLICE_BYTES])
            size, error = self._read_records(size)
            if error is not None or self._has_peer_ended:
                break
        if size and not self._is_closing:
            self._above.data_received(bytes(_PLAIN[:size]))
        if error is not None:
            self._end_with(error)
            return
        self._flush()
        if self._has_peer_ended and self._reads and not (self._is_closing or self._has_told_end):
            self._has_told_end = True
            if not self._above.eof_received():
                self.close()

    def _read_records(self, size: int) -> tuple[int, ssl.SSLError | None]:
        """Read into the shared buffer, behind ``size`` bytes; return how many it holds then, and what went wrong."""
        incoming = self._incoming
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment] # typeshed: bytes
        try:
            while incoming.pending:
                if size > len(_PLAIN) - _RECORD_BYTES:
                    self._above.data_received(bytes(_PLAIN[:size]))
                    size = 0
                count = read(_RECORD_BYTES, _PLAIN[size:])
                if not count:
                    self._has_peer_ended = True
                    break
                size += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return size, error
        return size, None

    def _write_records(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            at += self._tls.write(view[at : at + _RECORD_BYTES])
            if self._outgoing.pending >= _SLICE_BYTES:
                self._below.write(self._outgoing.read())

    def _flush(self) -> None:
        if self._outgoing.pending:
            data = self._outgoing.read()
            if not self._has_ended:  # else it is an answer to a change of keys, which nobody waits for
                self._below.write(data)

    @isolated
    def _end_with(self, error: Exception) -> None:
        """Close; who is still in the handshake gets the alert that says why."""
        if self._is_closing:
            return
        self._is_closing = True
        self._note(error)
        if self.is_up:
            self._below.abort()  # its peer may not read, and then nothing would ever end it
        else:
            self._flush()
            self._below.close()

    def _end_above(self, error: Exception | None) -> None:
        self._is_closing = True
        self._cancel_timer()
        if self.is_up:
            self._above.connection_lost(self.error or error)
        elif self.error is None:
            self._note(error or self._hung_up())

    def _note(self, error: Exception) -> None:
        self._cancel_timer()
        self._fail(self, error)
        self.error = error  # not before: who was not told is told when the transport below is lost

    def _hung_up(self) -> ConnectionResetError:
        error = ConnectionResetError if self._has_heard else SaidNothingError
        return error("it hung up in the TLS handshake")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
