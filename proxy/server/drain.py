"""Schedules when each connection is drained while the proxy stops.

If all connections closed at once, all clients would reconnect at once. So the connections are drained one after the
other within the first half of the timeout. The second half is left for slow responses. This module reads no clock.
"""

from typing import Final

# The longest time between the drains of two connections, so that a few connections do not take half of the time.
_MAX_APART_MS: Final = 5


class DrainSchedule:
    """Determines when the connections are drained during one shutdown.

    ``ends_ms`` is the time at which all connections must have ended.
    """

    __slots__ = ("_connections", "_spread_ms", "_started_ms", "ends_ms")

    def __init__(self, connections: int, *, now_ms: int, timeout_ms: int) -> None:
        self._connections = connections
        self._started_ms = now_ms
        self._spread_ms = min(timeout_ms // 2, connections * _MAX_APART_MS)
        self.ends_ms = now_ms + timeout_ms

    def due(self, *, now_ms: int) -> int:
        """Return how many of the connections should have been drained by now."""
        passed_ms = now_ms - self._started_ms
        if passed_ms >= self._spread_ms:
            return self._connections
        return 1 + self._connections * passed_ms // self._spread_ms
