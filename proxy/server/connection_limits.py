"""How many connections a listener takes, and how long each may stay. No clock: the time comes as a number.

Nothing here is touched by a request. A connection is looked at when one of its limits may have come, and else once a
minute, in case a reload brought new limits.
"""

from collections.abc import Hashable
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

_LOOK_MS: Final = 60_000
_LOOK_AGAIN_MS: Final = 1_000
# How often within an idle timeout somebody looks whether anything was asked: the close comes late by as much.
_LOOKS_PER_IDLE_TIMEOUT: Final = 4
# Connections that began together, as after a restart, do not end together: the last tenth of their age is spread.
_SPREAD: Final = 10
_GOLDEN: Final = 0.6180339887498949

_T = TypeVar("_T", bound=Hashable)


class Occupancy:
    """How many connections there are now, in all and from each address; who has no connection takes no memory."""

    __slots__ = ("_by_host", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_host: dict[str, int] = {}

    def enter(self, most: int | None) -> "Place | None":
        """Give a connection its place; None where there are ``most`` already."""
        if most is not None and self.total >= most:
            return None
        self.total += 1
        return Place(self)

    def _enter_from(self, host: str, most: int | None) -> bool:
        count = self._by_host.get(host, 0)
        if most is not None and count >= most:
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


class Place:
    """The place of one connection. ``source`` is whose it is, address and port; None before that is known."""

    __slots__ = ("_occupancy", "source")

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy: Occupancy | None = occupancy
        self.source: tuple[str, int] | None = None

    def come_from(self, source: tuple[str, int], most: int | None) -> bool:
        """Take it that the connection comes from there; say whether it may, with at most so many from one address."""
        if self._occupancy is None or not self._occupancy._enter_from(source[0], most):  # noqa: SLF001 - its own
            return False
        self.source = source
        return True

    def leave(self) -> None:
        """Give the place back. Harmless when it has been."""
        if self._occupancy is not None:
            self._occupancy._leave(self.source[0] if self.source else None)  # noqa: SLF001 - its own
            self._occupancy = None


class Spread:
    """Numbers from 0 to 1 of which any few in sequence lie evenly."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0.0

    def next(self) -> float:
        """Return the next one."""
        self._last = (self._last + _GOLDEN) % 1.0
        return self._last


def limit_that_has_come(
    listener: Listener, *, now_ms: int, started_ms: int, active_ms: int, has_begun: bool, spread: float
) -> str | None:
    """Return which limit of its time a connection has reached, None for none.

    Args:
        listener: With the limits.
        now_ms: The time.
        started_ms: When the connection was accepted.
        active_ms: When it was last seen in use.
        has_begun: Whether its client has done what a login timeout waits for.
        spread: Which part of the last tenth of its age it does without, from 0 to 1.
    """
    if _is_over(now_ms - started_ms, None if has_begun else listener.login_timeout_ms):
        return LOGIN_TIMEOUT
    if _is_over(now_ms - active_ms, listener.idle_timeout_ms):
        return IDLE_TIMEOUT
    age_ms = listener.max_connection_age_ms
    if age_ms is not None and now_ms - started_ms >= _own_age_ms(age_ms, spread):
        return MAX_CONNECTION_AGE
    return None


def look_at_ms(
    listener: Listener, *, now_ms: int, started_ms: int, active_ms: int, has_begun: bool, spread: float
) -> int:
    """Return when to ask for the limit again. Arguments as for ``limit_that_has_come``."""
    at_ms = now_ms + _LOOK_MS
    if not has_begun and listener.login_timeout_ms is not None:
        at_ms = min(at_ms, started_ms + listener.login_timeout_ms)
    if listener.idle_timeout_ms is not None:
        step_ms = listener.idle_timeout_ms // _LOOKS_PER_IDLE_TIMEOUT
        at_ms = min(at_ms, now_ms + step_ms, active_ms + listener.idle_timeout_ms)
    if listener.max_connection_age_ms is not None:
        at_ms = min(at_ms, started_ms + _own_age_ms(listener.max_connection_age_ms, spread))
    return max(at_ms, now_ms + _LOOK_AGAIN_MS)


def _is_over(time_ms: int, limit_ms: int | None) -> bool:
    return limit_ms is not None and time_ms >= limit_ms


def _own_age_ms(age_ms: int, spread: float) -> int:
    return age_ms - int(age_ms // _SPREAD * spread)


def who_holds_too_much(held: list[tuple[int, _T]], max_buffered_bytes: int) -> list[_T]:
    """Return who is to go, so that the others hold no more together than they may: first who holds the most.

    Args:
        held: Bytes, and who holds them.
        max_buffered_bytes: What all may hold.
    """
    too_much_bytes = sum(size_bytes for size_bytes, _ in held) - max_buffered_bytes
    found: list[_T] = []
    for size_bytes, holder in sorted(held, key=itemgetter(0), reverse=True):
        if too_much_bytes <= 0:
            break
        too_much_bytes -= size_bytes
        found.append(holder)
    return found


class Watch(Generic[_T]):
    """Things to be looked at at their time, to the second; a second in which nothing is due costs nothing."""

    __slots__ = ("_due", "_next_s")

    def __init__(self, *, now_ms: int) -> None:
        self._due: dict[int, set[_T]] = {}  # by the second
        self._next_s = now_ms // 1_000

    def add(self, thing: _T, at_ms: int) -> int:
        """Remember to look at ``thing`` at ``at_ms`` or up to a second later; return what ``discard`` wants to know."""
        second = max(-(-at_ms // 1_000), self._next_s)
        self._due.setdefault(second, set()).add(thing)
        return second

    def discard(self, thing: _T, second: int) -> None:
        """Forget ``thing``, which was added for that second. Harmless if it has been taken."""
        due = self._due.get(second)
        if due is not None:
            due.discard(thing)

    def take(self, *, now_ms: int) -> list[_T]:
        """Return what is due now, once."""
        taken: list[_T] = []
        now_s = now_ms // 1_000
        for second in range(self._next_s, now_s + 1):
            taken += self._due.pop(second, ())
        self._next_s = max(self._next_s, now_s + 1)
        return taken
