"""Keeps the connection to a broker open after the client has left, until the client's last fetches are charged.

A fetch is charged by the size of its response, so the proxy must still receive the response. Such an orphaned
connection counts towards no limit of its listener.
"""

import asyncio
from time import monotonic_ns
from typing import Final

from kafka_quota_proxy.proxy.runtime.isolation import isolated
from kafka_quota_proxy.proxy.server.clients.transport_pair import ClosingTransports
from kafka_quota_proxy.proxy.session.unanswered import Unanswered

# By default a consumer lets the broker answer a fetch up to half a second later, so responses come well before this.
LONGEST_S: Final = 30.0
# Each orphaned connection holds a file descriptor that a client might need.
MAX_KEPT: Final = 500
# If a broker reads nothing, the requests that are still unsent take memory.
MAX_UNSENT_BYTES: Final = 64 * 1024

# The ways in which an orphaned connection ends.
ANSWERED: Final = "answered"  # charged
CUT_SHORT: Final = "cut_short"  # charged by an estimate, because it lasted too long or there were too many
LOST: Final = "lost"  # the broker closed, or the proxy stopped; nothing is charged, as in Kafka


class OrphanedConnections:
    """The orphaned connections of one listener, at most ``MAX_KEPT``.

    ``counts`` contains the number of connections that ended with each result: answered, cut short, or lost.
    """

    def __init__(self, closing: ClosingTransports) -> None:
        self.closing = closing
        self.counts = dict.fromkeys((ANSWERED, CUT_SHORT, LOST), 0)
        self._kept: dict[_OrphanedConnection, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, broker: asyncio.Transport, unanswered: Unanswered, *, is_paused: bool) -> None:
        """Read from ``broker`` until all fetches in ``unanswered`` are charged, then close the transport.

        ``is_paused`` says whether reading from ``broker`` is paused. If so, it is resumed.
        """
        orphan = _OrphanedConnection(self, broker, unanswered)
        self._kept[orphan] = None
        if self._is_closed or broker.is_closing():
            orphan.end(LOST)
            return
        if broker.get_write_buffer_size() > MAX_UNSENT_BYTES:
            orphan.end(CUT_SHORT)
            return
        if len(self._kept) > MAX_KEPT:
            next(iter(self._kept)).cut_short()
        broker.set_protocol(orphan)
        if is_paused:
            broker.resume_reading()

    def holders(self) -> list[tuple[int, "_OrphanedConnection"]]:
        """Return each orphaned connection, after the number of bytes that it holds in memory."""
        return [(orphan.held_bytes, orphan) for orphan in self._kept]

    def close(self) -> None:
        """Close all connections that were kept open after their clients had left. Keep no more from now on."""
        self._is_closed = True
        for orphan in tuple(self._kept):
            orphan.end(LOST)

    def remove(self, orphan: "_OrphanedConnection", result: str) -> bool:
        """Remove an orphaned connection and count how it ended. Return False if it was removed before."""
        if orphan not in self._kept:
            return False
        del self._kept[orphan]
        self.counts[result] += 1
        return True


class _OrphanedConnection(asyncio.Protocol):
    """The protocol of a connection to a broker whose client has left."""

    __slots__ = ("_broker", "_owner", "_timer", "_unanswered")

    def __init__(self, owner: OrphanedConnections, broker: asyncio.Transport, unanswered: Unanswered) -> None:
        self._owner = owner
        self._broker = broker
        self._unanswered = unanswered
        self._timer = asyncio.get_running_loop().call_later(LONGEST_S, self.cut_short)

    @property
    def held_bytes(self) -> int:
        """How many bytes of requests and responses the connection holds in memory."""
        return self._broker.get_write_buffer_size() + self._unanswered.held_bytes

    def abort(self) -> None:
        """End at once with an estimated charge, because connections hold too much memory."""
        self.end(CUT_SHORT)
        self._broker.abort()

    def fail(self) -> None:
        """Abort the transport at once after an internal error. May be called again."""
        self._broker.abort()
        self._timer.cancel()
        self._owner.remove(self, LOST)

    def data_received(self, data: bytes) -> None:
        """Charge each fetch whose response has arrived. After the last one, close the connection."""
        if not self._unanswered.receive(data, now_ms=monotonic_ns() // 1_000_000):
            self.end(LOST)
        elif self._unanswered.is_done:
            self.end(ANSWERED)

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. Fetches that have no response yet are not charged."""
        self.end(LOST)

    @isolated
    def cut_short(self) -> None:
        """End with an estimated charge, because the connection lasts too long or newer ones need the room."""
        self.end(CUT_SHORT)

    def end(self, result: str) -> None:
        """Close the transport, and count how the connection ended: answered, cut short or lost. May be called again."""
        if self._owner.remove(self, result):
            self._timer.cancel()
            self._owner.closing.close(self._broker)
            self._unanswered.close(now_ms=monotonic_ns() // 1_000_000, is_charged=result == CUT_SHORT)
