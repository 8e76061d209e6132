"""Broker connections without a client, kept open until their unanswered fetches are charged.

An orphaned connection costs a file descriptor and nothing else. It counts in no limit of its listener, and of each
response only the length is read.
"""

import asyncio
from time import monotonic_ns
from typing import Final

from kafka_quota_proxy.proxy.background.isolation import isolated
from kafka_quota_proxy.proxy.session.unanswered import Unanswered

# A consumer lets its fetch wait for half a second by default.
LONGEST_S: Final = 30.0
# Each holds a file descriptor that a client might need.
MAX_KEPT: Final = 500
# Unsent requests to a broker that reads nothing take memory.
MAX_UNSENT_BYTES: Final = 64 * 1024

# How an orphaned connection ended.
ANSWERED: Final = "answered"  # charged
CUT_SHORT: Final = "cut_short"  # charged by estimate: it lasted too long, or there were too many
LOST: Final = "lost"  # the broker left, or the proxy stopped: as in Kafka, nothing is charged


class OrphanedConnections:
    """The orphaned connections of one listener; the oldest makes room. ``counts`` are by how they ended."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys((ANSWERED, CUT_SHORT, LOST), 0)
        self._kept: dict[_OrphanedConnection, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, broker: asyncio.Transport, unanswered: Unanswered, *, is_paused: bool) -> None:
        """Read ``broker`` until its responses are charged, then close it. ``is_paused``: reading is paused now."""
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

    def close(self) -> None:
        """Close all now, and keep no more."""
        self._is_closed = True
        for orphan in tuple(self._kept):
            orphan.end(LOST)

    def remove(self, orphan: "_OrphanedConnection", result: str) -> bool:
        """Count the end of an orphan; return False if it was counted before."""
        if orphan not in self._kept:
            return False
        del self._kept[orphan]
        self.counts[result] += 1
        return True


class _OrphanedConnection(asyncio.Protocol):
    """The protocol of the broker's transport."""

    __slots__ = ("_broker", "_owner", "_timer", "_unanswered")

    def __init__(self, owner: OrphanedConnections, broker: asyncio.Transport, unanswered: Unanswered) -> None:
        self._owner = owner
        self._broker = broker
        self._unanswered = unanswered
        self._timer = asyncio.get_running_loop().call_later(LONGEST_S, self.cut_short)

    def fail(self) -> None:
        """End at once after an internal error. Harmless when repeated."""
        self._broker.abort()
        self._timer.cancel()
        self._owner.remove(self, LOST)

    def data_received(self, data: bytes) -> None:
        """Charge the responses."""
        if not self._unanswered.receive(data, now_ms=monotonic_ns() // 1_000_000):
            self.end(LOST)
        elif self._unanswered.is_done:
            self.end(ANSWERED)

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Charge nothing: no response will come."""
        self.end(LOST)

    @isolated
    def cut_short(self) -> None:
        """Charge an estimate: the response takes too long, or others need the room."""
        self.end(CUT_SHORT)

    def end(self, result: str) -> None:
        """Close the transport. Harmless when repeated."""
        if self._owner.remove(self, result):
            self._timer.cancel()
            self._broker.close()
            self._unanswered.close(now_ms=monotonic_ns() // 1_000_000, is_charged=result == CUT_SHORT)
