"""Handles a drained connection after the proxy has closed its own side, until the client closes the other side.

Meanwhile this module reads what the client still sends. If a socket is closed while bytes are unread, the connection is
reset. A reset can destroy responses that the client has not read yet (RFC 1122, 4.2.2.13).
"""

import asyncio
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.proxy.runtime.isolation import isolated

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection

# How long the client may take to close its side.
_WAIT_S: Final = 2.0
# How many such times may pass while the client is still reading what was written.
_MAX_WAITS: Final = 15


class HalfClosedClient(asyncio.Protocol):
    """The protocol of a client's transport from the time at which the proxy has closed its own side."""

    __slots__ = ("_cause", "_client", "_owner", "_timer")

    def __init__(self, owner: "ClientConnection", client: asyncio.Transport, cause: str) -> None:
        self._owner = owner
        self._client = client
        self._cause = cause
        client.set_protocol(self)
        client.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self._give_up, _MAX_WAITS - 1)

    @isolated
    def _give_up(self, waits: int) -> None:
        """Close the connection. If the client has not read everything yet, first wait again, up to ``waits`` times."""
        if waits == 0 or not self._client.get_write_buffer_size():
            self._owner.close(self._cause)
        else:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self._give_up, waits - 1)

    def cancel(self) -> None:
        """Stop the timer that closes the connection."""
        self._timer.cancel()

    def fail(self) -> None:
        """Close the connection at once after an internal error."""
        self._owner.fail()

    def data_received(self, data: bytes) -> None:
        """Forward requests that expect no response (acks=0). Drop others: clients repeat them on a new connection."""
        if self._owner.session.takes_unanswered and not self._owner.is_closed:
            self._owner.data_received(data)

    @isolated
    def resume_writing(self) -> None:
        """Pass the event to ``ClientConnection.resume_writing``."""
        self._owner.resume_writing()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the event to ``ClientConnection.connection_lost``."""
        self._owner.connection_lost(exc)
