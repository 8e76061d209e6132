"""In which order, and how fast, connections are closed when the proxy stops. No clock: the time comes as a number.

All at once, their clients would all be back at once, at whichever broker or proxy takes over. They get their turns one
after the other, within the first half of the drain at the latest; the second half is for answers that take their time.
"""

from typing import Final

# Few connections need not wait for a drain to pass: this far apart are their turns at the most.
_MOST_APART_MS: Final = 5


class Drain:
    """One stop: how many connections have had their turn at a time, and when it is over."""

    __slots__ = ("_connections", "_spread_ms", "_started_ms", "ends_ms")

    def __init__(self, connections: int, *, now_ms: int, timeout_ms: int) -> None:
        self._connections = connections
        self._started_ms = now_ms
        self._spread_ms = min(timeout_ms // 2, connections * _MOST_APART_MS)
        self.ends_ms = now_ms + timeout_ms

    def turns(self, *, now_ms: int) -> int:
        """Return how many connections, of all that there were at the start, are to have been closed or told to end."""
        passed_ms = now_ms - self._started_ms
        if passed_ms >= self._spread_ms:
            return self._connections
        return 1 + self._connections * passed_ms // self._spread_ms
