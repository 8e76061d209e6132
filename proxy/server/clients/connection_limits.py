"""Limits how many connections a listener accepts, how long each may stay, and how much memory they may hold.

This module reads no clock. A connection is checked when one of its time limits may have passed, and at least once a
minute, because a reload may have changed the limits.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Final, Generic, TypeVar

from kafka_quota_proxy.config.model import Listener

MAX_CONNECTIONS: Final = "max_connections"
MAX_CONNECTIONS_PER_IP: Final = "max_connections_per_ip"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CONNECTIONS_QUOTA: Final = "connections_quota"
LOGIN_TIMEOUT: Final = "login_timeout"
IDLE_TIMEOUT: Final = "idle_timeout"
MAX_CONNECTION_AGE: Final = "max_connection_age"
MAX_BUFFERED: Final = "max_buffered"

_CHECK_EVERY_MS: Final = 60_000
_CHECK_AGAIN_MS: Final = 1_000
# How many checks there are within one idle timeout. An idle connection is closed up to one check too late.
_CHECKS_PER_IDLE_TIMEOUT: Final = 4
# Connections that began together, as after a restart, must not end together. So each connection ends at a different
# time within the last tenth of the maximum age.
_SPREAD: Final = 10
# The length of one slot of a timer wheel.
_SLOT_MS: Final = 1_000
_GOLDEN_RATIO: Final = 0.6180339887498949

_T = TypeVar("_T")


class ConnectionCount:
    """Counts open connections, in total and by client address."""

    __slots__ = ("_by_host", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_host: dict[str, int] = {}

    def enter(self, maximum: int | None) -> "CountedConnection | None":
        """Count a new connection; return None if ``maximum`` connections are open already."""
        if maximum is not None and self.total >= maximum:
            return None
        self.total += 1
        return CountedConnection(self)

    def _enter_from(self, host: str, maximum: int | None) -> bool:
        count = self._by_host.get(host, 0)
        if maximum is not None and count >= maximum:
            return False
        self._by_host[host] = count + 1
        return True

    def _leave(self, host: str | None) -> None:
        self.total -= 1
        if host is not None:
            count = self._by_host[host] - 1
            if count:
                self._by_host[host] = count
            else:
                del self._by_host[host]


class CountedConnection:
    """A connection that is counted as open. ``source`` is the client's address and port; None until it is known."""

    __slots__ = ("_count", "source")

    def __init__(self, count: ConnectionCount) -> None:
        self._count: ConnectionCount | None = count
        self.source: tuple[str, int] | None = None

    def come_from(self, source: tuple[str, int], maximum: int | None) -> bool:
        """Count the connection for the client's address. Return False if that has ``maximum`` connections already."""
        if self._count is None or not self._count._enter_from(source[0], maximum):  # noqa: SLF001 - its own
            return False
        self.source = source
        return True

    def leave(self) -> None:
        """Stop counting the connection. May be called again."""
        if self._count is not None:
            self._count._leave(self.source[0] if self.source else None)  # noqa: SLF001 - its own
            self._count = None


def spread() -> Iterator[float]:
    """Yield numbers between 0 and 1 without end. However many are taken, they are spread evenly (golden ratio)."""
    number = 0.0
    while True:
        number = (number + _GOLDEN_RATIO) % 1.0
        yield number


class TimeLimits:
    """Compares the age and the idle time of one connection with the time limits of its listener.

    Attributes:
        started_ms: The time at which the connection was accepted.
        login_ms: The time from which on the client has been expected to log in or to send its first request.
        active_ms: The time of the last check that found the connection in use.
    """

    __slots__ = ("_spread", "active_ms", "login_ms", "started_ms")

    def __init__(self, spread: float, *, started_ms: int = 0) -> None:
        self._spread = spread  # how much of the last tenth of the maximum age is cut off, from 0 to 1
        self.start(started_ms)

    def start(self, now_ms: int) -> None:
        """Begin to count all times now."""
        self.started_ms = self.login_ms = self.active_ms = now_ms

    def passed(self, listener: Listener, *, now_ms: int, is_past_login: bool) -> str | None:
        """Return the name of a time limit that the connection has exceeded; None if it has exceeded none."""
        age_ms = now_ms - self.started_ms
        if not is_past_login and _is_over(now_ms - self.login_ms, listener.login_timeout_ms):
            return LOGIN_TIMEOUT
        if _is_over(now_ms - self.active_ms, listener.idle_timeout_ms):
            return IDLE_TIMEOUT
        return MAX_CONNECTION_AGE if _is_over(age_ms, self._max_age_ms(listener)) else None

    def next_check_ms(self, listener: Listener, *, now_ms: int, is_past_login: bool) -> int:
        """Return the time at which to check the connection again, on the clock of ``now_ms``."""
        at_ms = now_ms + _CHECK_EVERY_MS
        if not is_past_login and listener.login_timeout_ms is not None:
            at_ms = min(at_ms, self.login_ms + listener.login_timeout_ms)
        if listener.idle_timeout_ms is not None:
            step_ms = listener.idle_timeout_ms // _CHECKS_PER_IDLE_TIMEOUT
            at_ms = min(at_ms, now_ms + step_ms, self.active_ms + listener.idle_timeout_ms)
        max_age_ms = self._max_age_ms(listener)
        if max_age_ms is not None:
            at_ms = min(at_ms, self.started_ms + max_age_ms)
        return max(at_ms, now_ms + _CHECK_AGAIN_MS)

    def _max_age_ms(self, listener: Listener) -> int | None:
        age_ms = listener.max_connection_age_ms
        return None if age_ms is None else age_ms - int(age_ms // _SPREAD * self._spread)


def _is_over(time_ms: int, limit_ms: int | None) -> bool:
    return limit_ms is not None and time_ms >= limit_ms


class TimerWheel(Generic[_T]):
    """Holds items until the time that was given for each. The items of the same second form a slot."""

    __slots__ = ("_due", "_next")

    def __init__(self, *, now_ms: int) -> None:
        self._due: dict[int, dict[_T, None]] = {}  # by slot
        self._next = now_ms // _SLOT_MS

    def add(self, item: _T, at_ms: int) -> int:
        """Make ``item`` due at ``at_ms`` or up to a second later. Return its slot, which ``discard`` needs."""
        slot = max(-(-at_ms // _SLOT_MS), self._next)
        self._due.setdefault(slot, {})[item] = None
        return slot

    def discard(self, item: _T, slot: int) -> None:
        """Remove ``item`` from a slot, if it is in that slot."""
        due = self._due.get(slot)
        if due is not None:
            due.pop(item, None)

    def take(self, *, now_ms: int) -> list[_T]:
        """Remove and return all items whose time has come."""
        taken: list[_T] = []
        now = now_ms // _SLOT_MS
        for slot in range(self._next, now + 1):
            taken += self._due.pop(slot, ())
        self._next = max(self._next, now + 1)
        return taken


def largest_holders(held: list[tuple[int, _T]], max_buffered_bytes: int) -> list[_T]:
    """Return the largest holders of memory, so that the others together hold at most ``max_buffered_bytes``.

    ``held`` contains pairs of a size in bytes and a holder.
    """
    excess_bytes = sum(size_bytes for size_bytes, _ in held) - max_buffered_bytes
    found: list[_T] = []
    for size_bytes, holder in sorted(held, key=itemgetter(0), reverse=True):
        if excess_bytes <= 0:
            break
        excess_bytes -= size_bytes
        found.append(holder)
    return found
