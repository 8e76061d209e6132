"""The line in front of a bucket: requests wait in it until the bucket owes nothing, first come, first served.

A limit would hold for one connection only if each connection waited for its own requests alone: the waits of thirty
connections pass at the same time, and what they wait for is paid once. So a request that finds its bucket in debt takes
a place here, and one request passes at a time.

A place is kept while its connection is away: a consumer whose fetch has waited for as long as it asked for is answered
without records, is told when to come back, and finds its place then. Places of connections that do not come back are
not counted for long.

The line does no I/O. ``BrokerLines.wake`` is how it says that a connection should look again.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

# How late a connection may come back before its place is no longer counted.
_LATE_MS: Final = 2_000
# Of eight requests the last one counts for one part in the size that is expected of the next.
_PARTS: Final = 8


class Waiter(Protocol):
    """The connection of a request that waits."""

    def take_turn(self) -> None:
        """Look again whether the request may pass. Must not be called from within a session's own call."""


class BrokerLines:
    """What all lines at one broker share: how to wake a connection, and which lines are not empty.

    Attributes:
        wake: Called with each waiter that should look again, soon but not at once. Without a loop they are kept in
            ``woken``.
    """

    __slots__ = ("_lines", "wake", "woken")

    def __init__(self) -> None:
        self.woken: list[Waiter] = []
        self.wake: Callable[[Waiter], None] = self.woken.append
        self._lines: set[Line] = set()

    def add(self, line: "Line") -> None:
        """Remember a line in which a request waits."""
        self._lines.add(line)

    def discard(self, line: "Line") -> None:
        """Forget a line in which no request waits."""
        self._lines.discard(line)

    def wake_all(self) -> None:
        """Have every request that waits look again: its limit may be another now."""
        for line in list(self._lines):
            line.wake_all()


class Place:
    """A connection's place in the line of one bucket, from its first wait until its request passes.

    Attributes:
        line: Where it is.
        owner: The connection.
        rank: Lower ranks pass first.
        due: How many requests will have passed when its turn comes, if all that are in front of it come back.
        back_ms: When its connection is expected back; of one that is away.
        is_waiting: Its request waits; else its connection is away.
        is_listed: The line's heap has it.
        is_woken: Its connection is about to look again.
    """

    __slots__ = ("back_ms", "due", "is_listed", "is_waiting", "is_woken", "line", "owner", "rank")

    def __init__(self, line: "Line", owner: Waiter | None, rank: int, due: int) -> None:
        self.line = line
        self.owner = owner
        self.rank = rank
        self.due = due
        self.back_ms = 0
        self.is_waiting = False
        self.is_listed = False
        self.is_woken = False

    def __lt__(self, other: "Place") -> bool:
        return self.rank < other.rank


class Line:
    """The places in front of one bucket."""

    __slots__ = ("_away", "_heap", "_last_rank", "_lines", "_look_ms", "_served", "_waiting", "mean_amount")

    def __init__(self, lines: BrokerLines) -> None:
        self._lines = lines
        self._heap: list[Place] = []  # of those that wait; some have gone meanwhile
        self._waiting = 0
        self._away: set[Place] = set()
        self._look_ms = 0
        self._last_rank = 0
        self._served = 0
        self.mean_amount = 0.0  # of the last requests

    def __len__(self) -> int:
        return self._waiting + len(self._away)

    def first(self) -> Place | None:
        """Return the place whose turn is next; None where no request waits."""
        heap = self._heap
        while heap and not heap[0].is_waiting:
            heappop(heap).is_listed = False
        return heap[0] if heap else None

    def take(self, owner: Waiter | None) -> Place:
        """Return a place behind all others; it is to ``wait``."""
        self._last_rank += 1
        return Place(self, owner, self._last_rank, self._served + len(self))

    def wait(self, place: Place) -> None:
        """Let the request of ``place`` wait for its turn, where it does not already."""
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
        """Keep the place of a connection whose request waits for something else until about ``back_ms``."""
        place.is_woken = False
        place.back_ms = back_ms
        if place.is_waiting:
            self._stop_waiting(place)
        self._away.add(place)

    def leave(self, place: Place) -> None:
        """Give a place back: its request passes, or will never come."""
        self._away.discard(place)
        self._served += 1
        if place.is_waiting:
            self._stop_waiting(place)
        self.wake_first()

    def ahead(self, place: Place | None) -> int:
        """Return how many requests pass before that of ``place``; None: before one that comes now."""
        return len(self) if place is None else max(0, place.due - self._served)

    def sweep(self, *, now_ms: int) -> None:
        """Stop counting connections that have not come back in time; costs nothing more than once a second."""
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + 1_000
            late = [place for place in self._away if place.back_ms + _LATE_MS <= now_ms]
            self._away.difference_update(late)
            self._served += len(late)

    def note(self, amount: int) -> None:
        """Learn how much a request of this bucket is."""
        self.mean_amount += (amount - self.mean_amount) / _PARTS if self.mean_amount else amount

    def end_request(self, amount: int) -> None:
        """Take it that a request has been charged ``amount``: the next may have its turn."""
        self.note(amount)
        self.wake_first()

    def wake_first(self) -> None:
        """Have the request whose turn is next look whether it may pass."""
        place = self.first()
        if place is not None:
            self._wake(place)

    def wake_all(self) -> None:
        """Have all that wait look again."""
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
