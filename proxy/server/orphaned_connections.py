"""Broker connections whose client is gone while a fetch was unanswered: kept open until that is charged.

Without its client such a connection costs a file descriptor and nothing else: it has no place on its listener, counts
in no limit, and of its answers no more is read than how long they are.
"""

import asyncio
from time import monotonic_ns
from typing import Final

from kafka_quota_proxy.proxy.background.isolation import isolated
from kafka_quota_proxy.proxy.session.unanswered import Unanswered

# How long one is kept: a consumer has its fetch wait half a second for records.
LONGEST_S: Final = 30.0
# Each is a file descriptor that a client might want.
MAX_KEPT: Final = 500
# What is on its way to a broker that takes nothing is memory.
MAX_UNSENT_BYTES: Final = 64 * 1024

# What became of them.
ANSWERED: Final = "answered"  # and charged
CUT_SHORT: Final = "cut_short"  # charged what was expected: it lasted too long, or there were too many
LOST: Final = "lost"  # the broker left, or the proxy ended: as with Kafka, nothing is charged


class OrphanedConnections:
    """Those of one listener; the oldest makes room.

    Attributes:
        counts: How many have ended, by what became of them.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys((ANSWERED, CUT_SHORT, LOST), 0)
        self._kept: dict[_OrphanedConnection, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, broker: asyncio.Transport, unanswered: Unanswered, *, is_paused: bool) -> None:
        """Read ``broker`` until its answers are charged, then close it. ``is_paused``: it is not being read."""
        late = _OrphanedConnection(self, broker, unanswered)
        self._kept[late] = None
        if self._is_closed or broker.is_closing():
            late.end(LOST)
            return
        if broker.get_write_buffer_size() > MAX_UNSENT_BYTES:
            late.end(CUT_SHORT)
            return
        if len(self._kept) > MAX_KEPT:
            next(iter(self._kept)).cut_short()
        broker.set_protocol(late)
        if is_paused:
            broker.resume_reading()

    def close(self) -> None:
        """Close all of them now, and keep no more."""
        self._is_closed = True
        for late in tuple(self._kept):
            late.end(LOST)

    def forget(self, late: "_OrphanedConnection", result: str) -> bool:
        """Count the end of one; return whether it was not counted before."""
        if late not in self._kept:
            return False
        del self._kept[late]
        self.counts[result] += 1
        return True


class _OrphanedConnection(asyncio.Protocol):
    """The broker's transport of one."""

    __slots__ = ("_broker", "_owner", "_timer", "_unanswered")

    def __init__(self, owner: OrphanedConnections, broker: asyncio.Transport, unanswered: Unanswered) -> None:
        self._owner = owner
        self._broker = broker
        self._unanswered = unanswered
        self._timer = asyncio.get_running_loop().call_later(LONGEST_S, self.cut_short)

    def fail(self) -> None:
        """End it at once, for a fault of this program. Harmless when repeated."""
        self._broker.abort()
        self._timer.cancel()
        self._owner.forget(self, LOST)

    def data_received(self, data: bytes) -> None:
        """Charge what is answered."""
        if not self._unanswered.receive(data, now_ms=monotonic_ns() // 1_000_000):
            self.end(LOST)
        elif self._unanswered.is_done:
            self.end(ANSWERED)

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """Take it that no answer comes."""
        self.end(LOST)

    @isolated
    def cut_short(self) -> None:
        """Charge what was expected: the answer takes too long, or there is no room to wait for it."""
        self.end(CUT_SHORT)

    def end(self, result: str) -> None:
        """Close it. Harmless when repeated."""
        if self._owner.forget(self, result):
            self._timer.cancel()
            self._broker.close()
            self._unanswered.close(now_ms=monotonic_ns() // 1_000_000, is_charged=result == CUT_SHORT)
