"""The line in front of a bucket: requests wait there until the bucket owes nothing, first come, first served.

If each connection waited only for its own requests, thirty connections would wait at the same time, and together they
would pass thirty times the limit. So a request whose bucket is over its limit takes a place in the line, and one
request passes at a time.

A connection keeps its place while it is away: a fetch that has waited as long as its ``max_wait_ms`` is answered
without records and a time to come back. The place of a connection that does not come back stops counting soon.

The line does no I/O. ``BrokerLines.wake`` tells a connection to look again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Protocol

# A connection that is this late to come back loses its place.
_LATE_MS: Final = 2_000
# A request counts for one part in eight in the size that is expected of the next.
_PARTS: Final = 8


class Waiter(Protocol):
    """The connection of a request that waits."""

    def take_turn(self) -> None:
        """Look again whether the request may pass. Must not be called from within a session's own call."""


class BrokerLines:
    """All lines at one broker: how to wake a connection, and which lines are not empty.

    Attributes:
        wake: Called with each waiter that should look again, soon but not at once. Without an event loop the waiters
            are collected in ``woken``.
    """

    __slots__ = ("_lines", "wake", "woken")

    def __init__(self) -> None:
        self.woken: list[Waiter] = []
        self.wake: Callable[[Waiter], None] = self.woken.append
        self._lines: set[Line] = set()

    def add(self, line: "Line") -> None:
        """Add a line in which a request waits."""
        self._lines.add(line)

    def discard(self, line: "Line") -> None:
        """Remove a line in which no request waits."""
        self._lines.discard(line)

    def wake_all(self) -> None:
        """Wake every waiting request: its limit may have changed."""
        for line in list(self._lines):
            line.wake_all()


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """A connection's place in the line of one bucket, from its first wait until its request passes.

    Attributes:
        line: The line.
        owner: The connection.
        rank: Lower ranks pass first.
        due: How many requests pass before this one, if all connections in front come back.
        back_ms: When the connection should come back, if it is away.
        is_waiting: The request waits; otherwise the connection is away.
        is_listed: The line's heap holds the place.
        is_woken: The connection is about to look again.
    """

    line: "Line"
    owner: Waiter | None
    rank: int
    due: int
    back_ms: int = 0
    is_waiting: bool = False
    is_listed: bool = False
    is_woken: bool = False

    def __lt__(self, other: "Place") -> bool:
        return self.rank < other.rank


class Line:
    """The places in front of one bucket."""

    __slots__ = ("_away", "_heap", "_last_rank", "_lines", "_served", "_sweep_ms", "_waiting", "mean_amount")

    def __init__(self, lines: BrokerLines) -> None:
        self._lines = lines
        self._heap: list[Place] = []  # waiting places, and some that have stopped waiting since
        self._waiting = 0
        self._away: set[Place] = set()
        self._sweep_ms = 0
        self._last_rank = 0
        self._served = 0
        self.mean_amount = 0.0  # of the last requests

    def __len__(self) -> int:
        return self._waiting + len(self._away)

    def first(self) -> Place | None:
        """Return the first waiting place, if a request waits."""
        heap = self._heap
        while heap and not heap[0].is_waiting:
            heappop(heap).is_listed = False
        return heap[0] if heap else None

    def take(self, owner: Waiter | None) -> Place:
        """Return a new place behind all others; call ``wait`` next."""
        self._last_rank += 1
        return Place(self, owner, self._last_rank, self._served + len(self))

    def wait(self, place: Place) -> None:
        """Let the request of ``place`` wait, if it does not wait yet."""
        place.is_woken = False
        if place.is_waiting:
            return
        self._away.discard(place)
        place.is_waiting = True
        self._waiting += 1
        self._lines.add(self)
        if not place.is_listed:
            place.is_listed = True
            heappush(self._heap, place)

    def step_aside(self, place: Place, *, back_ms: int) -> None:
        """Keep the place of a connection that is away until about ``back_ms``."""
        place.is_woken = False
        place.back_ms = back_ms
        if place.is_waiting:
            self._stop_waiting(place)
        self._away.add(place)

    def leave(self, place: Place) -> None:
        """Give up a place: its request passes, or will never come."""
        self._away.discard(place)
        self._served += 1
        if place.is_waiting:
            self._stop_waiting(place)
        self.wake_first()

    def ahead(self, place: Place | None) -> int:
        """Return how many requests pass before that of ``place``; None: before one that arrives now."""
        return len(self) if place is None else max(0, place.due - self._served)

    def sweep(self, *, now_ms: int) -> None:
        """Stop counting connections that are late to come back. Looks once a second at most."""
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + 1_000
            late = [place for place in self._away if place.back_ms + _LATE_MS <= now_ms]
            self._away.difference_update(late)
            self._served += len(late)

    def note(self, amount: int) -> None:
        """Learn the amount of a request."""
        self.mean_amount += (amount - self.mean_amount) / _PARTS if self.mean_amount else amount

    def end_request(self, amount: int) -> None:
        """Learn the amount that a request has charged, and wake the next."""
        self.note(amount)
        self.wake_first()

    def wake_first(self) -> None:
        """Wake the first waiting request."""
        place = self.first()
        if place is not None:
            self._wake(place)

    def wake_all(self) -> None:
        """Wake all waiting requests."""
        for place in sorted(place for place in self._heap if place.is_waiting):
            self._wake(place)

    def _wake(self, place: Place) -> None:
        if place.owner is not None and not place.is_woken:
            place.is_woken = True
            self._lines.wake(place.owner)

    def _stop_waiting(self, place: Place) -> None:
        was_first = self.first() is place
        place.is_waiting = False
        self._waiting -= 1
        if not self._waiting:
            self._lines.discard(self)
        elif was_first:
            self.wake_first()
