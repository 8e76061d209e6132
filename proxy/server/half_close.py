"""The last moments of a drained connection: our side is closed, the client's is still open.

The client receives the end of our stream after the last response. Until it closes its own side, this protocol reads
what it still sends: closing a socket with unread bytes resets the connection, and a reset can destroy responses that
the client has not read yet (RFC 1122, 4.2.2.13).
"""

import asyncio
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.proxy.background.isolation import isolated

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.connection import ClientConnection

# How long the client may take to close its side.
_WAIT_S: Final = 2.0
# How often that time is renewed while the client is still taking what was written.
_MAX_WAITS: Final = 15


class HalfClosedClient(asyncio.Protocol):
    """The protocol of the client's transport after ``ClientConnection`` has closed its side."""

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
        """Close, or wait again while the client takes what was written before."""
        if waits == 0 or not self._client.get_write_buffer_size():
            self._owner.close(self._cause)
        else:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self._give_up, waits - 1)

    def cancel(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def fail(self) -> None:
        """See ``ClientConnection.fail``."""
        self._owner.fail()

    def data_received(self, data: bytes) -> None:
        """Forward requests without a response (acks=0); drop the others, which the client repeats elsewhere."""
        if self._owner.session.awaits_no_answers and not self._owner.is_closed:
            self._owner.data_received(data)

    @isolated
    def resume_writing(self) -> None:
        """See ``ClientConnection.resume_writing``."""
        self._owner.resume_writing()

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """See ``ClientConnection.connection_lost``."""
        self._owner.connection_lost(exc)
