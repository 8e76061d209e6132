"""Implements a TLS transport. It lies between a plain transport and the application protocol that uses TLS.

The code calls the plain transport "below" and the application protocol "above". This module is used instead of the TLS
support of asyncio for three reasons. When a handshake fails, this module sends the alert that names the cause. Without
this alert, Kafka clients would retry for ever. All TLS connections share one read buffer, which saves memory. And this
module decrypts twice as fast as asyncio.

``close`` sends ``close_notify``, and does not wait until the peer sends one too (RFC 8446, 6.1). A peer that is the
first to send ``close_notify`` still receives the responses to its requests.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.runtime.isolation import INTERNAL_ERROR, isolated
from kafka_quota_proxy.proxy.server.tls.contexts import SaidNothingError
from kafka_quota_proxy.proxy.server.tls.record_bounds import RecordBounds

# Without Final, so that compiled code reads what tests set.
HANDSHAKE_TIMEOUT_S = 10.0

# An OpenSSL memory BIO never shrinks, so data is written to it in slices.
_SLICE_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
# The buffers for the encrypted and the decrypted bytes of one read. They are used within one callback only, so all
# connections share them.
_WIRE: Final = memoryview(bytearray(256 * 1024))
_PLAIN: Final = memoryview(bytearray(512 * 1024))


class TlsTransport:
    """One TLS connection. It is the protocol of the transport below, and the transport of the protocol above.

    It has the methods of ``asyncio.BufferedProtocol`` and ``asyncio.Transport``, which a compiled class cannot inherit.

    Args:
        context: Holds the certificate to present, and the certificates to trust.
        server_hostname: The name or address that the broker's certificate must be for; None if the proxy is the server.
        welcome: Called after the handshake to create the protocol above. If it raises a ``ProtocolError``, the
            handshake counts as failed.
        fail: Called once, with this transport and the error, if an error ends the connection. If the transport's
            ``is_up`` is False at that time, the handshake has failed.
    """

    __slots__ = (
        "_above",
        "_below",
        "_bounds",
        "_fail",
        "_has_ended",
        "_has_peer_ended",
        "_has_received",
        "_has_reported_end",
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
        self._incoming = ssl.MemoryBIO()
        self._bounds = RecordBounds()
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
        self._has_received = False
        self._has_ended = False  # the proxy's side, of both TLS and the transport below
        self._has_peer_ended = False
        self._has_reported_end = False
        self.error: Exception | None = None

    # -- callbacks of the transport below --

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake, and limit its time."""
        self._below = cast(asyncio.Transport, transport)
        timeout = TimeoutError(f"no TLS handshake in {HANDSHAKE_TIMEOUT_S:g} s")
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._end_with, timeout)
        self._handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read of encrypted bytes. All TLS connections share this buffer."""
        return _WIRE

    def buffer_updated(self, nbytes: int) -> None:
        """Process the ``nbytes`` encrypted bytes that were just read into the start of the read buffer."""
        self.data_received(_WIRE[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Continue the handshake or, after it, decrypt the bytes and pass them to the application protocol."""
        if self._is_closing or self._has_peer_ended:
            return
        if self.is_up and self._reads:
            self._decrypt(data)
        else:
            self._incoming.write(data)
            self._bounds.add(data)
            if not self.is_up:
                self._has_received = True
                self._handshake()

    @isolated
    def eof_received(self) -> bool:
        """Return True, which keeps the connection open, only if the peer has sent ``close_notify``.

        Otherwise return False, which closes the connection, because an attacker may have cut the stream.
        """
        if not self.is_up:
            self._end_with(self._hung_up())
        return self._has_peer_ended and not self._is_closing

    @isolated
    def pause_writing(self) -> None:
        """Pass the event to the application protocol, if the handshake has succeeded."""
        if self.is_up:
            self._above.pause_writing()

    @isolated
    def resume_writing(self) -> None:
        """Pass the event to the application protocol, if the handshake has succeeded."""
        if self.is_up:
            self._above.resume_writing()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the event to the protocol above."""
        self._end_above(exc)

    def fail(self) -> None:
        """Abort the connection after an internal error. This may be called more than once."""
        self.abort()
        self._end_above(RuntimeError(INTERNAL_ERROR))

    # -- methods for the protocol above --

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as the base class has it
        """Return information about the connection. For the name ``ssl_object``, this is the ``ssl.SSLObject``."""
        if name == "ssl_object":
            return self._tls
        return self._below.get_extra_info(name, default) if hasattr(self, "_below") else default

    def is_closing(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """Return how many encrypted bytes wait in the write buffer of the plain transport."""
        return self._below.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt the data and send it."""
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
        """Return True, because each direction of a TLS connection can be closed on its own."""
        return True

    def write_eof(self) -> None:
        """Flush what was written, and close the direction towards the peer. Reading continues."""
        if self._is_closing or self._has_ended:
            return
        with suppress(ssl.SSLError):  # raised if the peer's close_notify has not come
            self._tls.unwrap()
        self._flush()
        self._has_ended = True
        self._below.write_eof()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the application protocol, which receives the decrypted bytes."""
        self._above = cast(asyncio.Protocol, protocol)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt all pieces together, because separate pieces would become separate TLS records."""
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """Stop reading from the peer."""
        self._reads = False
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read from the peer again."""
        self._reads = True
        self._below.resume_reading()
        if self._incoming.pending or self._has_peer_ended:
            # Do this after this call, because the caller is not prepared to receive data now.
            asyncio.get_running_loop().call_soon(self._catch_up)

    def close(self) -> None:
        """Flush what was written, then close the connection. This may be called more than once."""
        if self._is_closing:
            return
        self._is_closing = True
        self._cancel_timer()
        if self.is_up and not self._has_ended:
            with suppress(ssl.SSLError):  # raised if the peer's close_notify has not come
                self._tls.unwrap()
        self._flush()
        self._below.close()

    def abort(self) -> None:
        """Close the connection at once, and drop the bytes that are not sent yet."""
        self._is_closing = True
        self._cancel_timer()
        if hasattr(self, "_below"):
            self._below.abort()

    # -- internal methods --

    def _handshake(self) -> None:
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
        above.connection_made(cast(asyncio.Transport, self))
        self._catch_up()

    @isolated
    def _catch_up(self) -> None:
        """Decrypt what arrived with the handshake or while reading was paused, and pass it to the protocol above."""
        if self._reads and not self._is_closing:
            self._decrypt(b"")

    def _decrypt(self, data: bytes | memoryview) -> None:
        """Decrypt all records that are now complete, and pass their content to the protocol above."""
        size = 0
        error: ssl.SSLError | None = None
        for at in range(0, len(data) or 1, _SLICE_BYTES):
            piece = memoryview(data)[at : at + _SLICE_BYTES]
            self._incoming.write(piece)
            self._bounds.add(piece)
            size, error = self._read_records(size)
            if error is not None or self._has_peer_ended:
                break
        if size and not self._is_closing:
            self._above.data_received(bytes(_PLAIN[:size]))
        if error is not None:
            self._end_with(error)
            return
        self._flush()
        if self._has_peer_ended and self._reads and not (self._is_closing or self._has_reported_end):
            self._has_reported_end = True
            if not self._above.eof_received():
                self.close()

    def _read_records(self, size: int) -> tuple[int, ssl.SSLError | None]:
        """Decrypt into the shared buffer, after the ``size`` bytes that it already holds.

        Return how many bytes the buffer then holds, and the error that stopped the decryption, or None.
        """
        incoming, open_bytes = self._incoming, self._bounds.open_bytes
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment] # typeshed: bytes
        try:
            while incoming.pending > open_bytes:
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
            if not self._has_ended:  # otherwise the data answers a key update, which the peer no longer needs
                self._below.write(data)

    @isolated
    def _end_with(self, error: Exception) -> None:
        """Close the connection after an error. During the handshake, first send the alert that names the cause."""
        if self._is_closing:
            return
        self._is_closing = True
        self._note(error)
        if self.is_up:
            self._below.abort()  # a graceful close would never end if the peer does not read
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
        self.error = error  # after ``_fail``; if that raises, the loss of the transport reports the error again

    def _hung_up(self) -> ConnectionResetError:
        error = ConnectionResetError if self._has_received else SaidNothingError
        return error("it closed the connection during the TLS handshake")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
