"""Makes requests wait in a line while their bucket is over its limit, and forwards them in the order of arrival.

A bucket measures and limits the usage of a user, a client-id, or both. If each connection waited only for its own
requests, thirty connections would send thirty times the limit. So a request takes a place in the line if its bucket is
over the limit, and one request is forwarded at a time.

A connection keeps its place while it is away, which means that it has no request in the line. For example, a fetch that
has waited for ``max_wait_ms`` is answered without records and with a throttle time. The client should fetch again when
the throttle time is over. If the next fetch is late by ``_LATE_MS``, the connection loses its place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

# How late a connection may come back before it loses its place.
_LATE_MS: Final = 2_000
# The amount of a request counts for an eighth of the mean, which is the expected amount of the next request.
_PARTS: Final = 8
# How many places that no longer wait may stay in the heap, apart from as many as wait.
_MOST_STALE: Final = 16


class Waiter(Protocol):
    """A connection whose request waits in line until its bucket is within the limit."""

    def take_turn(self) -> None:
        """Check again whether the connection's request, which waits in line, may be forwarded.

        Must not be called while another method of this connection runs.
        """


class BrokerLines:
    """All the lines at one broker that have waiting requests.

    Attributes:
        waiting: The lines.
        wake: Makes a connection check again whether its request may be forwarded, soon after the call. By default it
            appends the connection to ``woken``.
    """

    __slots__ = ("waiting", "wake", "woken")

    def __init__(self) -> None:
        self.woken: list[Waiter] = []
        self.wake: Callable[[Waiter], None] = self.woken.append
        self.waiting: dict[Line, None] = {}

    def add(self, line: "Line") -> None:
        """Add the line of a bucket, because a request has begun to wait in it."""
        self.waiting[line] = None

    def discard(self, line: "Line") -> None:
        """Remove the line of a bucket, because no request waits in it any longer."""
        self.waiting.pop(line, None)


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """A connection's place in the line of one bucket, from its first wait until its request is forwarded.

    Attributes:
        line: The line.
        owner: The connection.
        rank: The position in the line. Lower ranks come first.
        due: How many requests must have left the line, since it was created, before it is this request's turn.
        back_ms: When the connection should come back, if it is away.
        is_waiting: Whether the request waits. Otherwise the connection is away.
        is_listed: Whether the place is in the heap of the line.
        is_woken: Whether the connection was woken, and has not yet checked whether its request may be forwarded.
    """

    line: "Line"
    owner: Waiter | None
    rank: int
    due: int
    back_ms: int = 0
    is_waiting: bool = False
    is_listed: bool = False
    is_woken: bool = False

    def __hash__(self) -> int:
        return id(self)  # as without ``__lt__``, for which a compiled class gives up its hash

    def __lt__(self, other: "Place") -> bool:
        return self.rank < other.rank


class Line:
    """The line in front of one bucket: the places of all connections that have a waiting request or are away."""

    __slots__ = ("_away", "_heap", "_last_rank", "_lines", "_served", "_sweep_ms", "_waiting", "mean_amount")

    def __init__(self, lines: BrokerLines) -> None:
        self._lines = lines
        self._heap: list[Place] = []  # all places that wait, and some that no longer wait
        self._waiting = 0
        self._away: set[Place] = set()
        self._sweep_ms = 0
        self._last_rank = 0
        self._served = 0  # how many requests have left the line since it was created
        self.mean_amount = 0.0  # the mean amount of the last requests

    def __len__(self) -> int:
        return self._waiting + len(self._away)

    def __bool__(self) -> bool:
        return self._waiting > 0 or bool(self._away)

    def first(self) -> Place | None:
        """Return the first place that has a waiting request, or None."""
        heap = self._heap
        while heap and not heap[0].is_waiting:
            heappop(heap).is_listed = False
        return heap[0] if heap else None

    def take(self, owner: Waiter | None) -> Place:
        """Return a new place at the end of the line. The caller must call ``wait`` next."""
        self._last_rank += 1
        return Place(self, owner, self._last_rank, self._served + len(self))

    def wait(self, place: Place) -> None:
        """Make the request of ``place`` wait. Does nothing if it already waits."""
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
        """Keep the place of a connection that is expected to send its request again at about the time ``back_ms``.

        Until then, the requests behind this place in the line may be forwarded first.
        """
        place.is_woken = False
        place.back_ms = back_ms
        if place.is_waiting:
            self._stop_waiting(place)
        self._away.add(place)

    def leave(self, place: Place) -> None:
        """Remove ``place`` from the line, because its request is forwarded now or is no longer expected."""
        self._away.discard(place)
        self._served += 1
        if place.is_waiting:
            self._stop_waiting(place)
        self.wake_first()

    def ahead(self, place: Place | None) -> int:
        """Return how many requests come before the request of ``place``, or before a new one if ``place`` is None."""
        return len(self) if place is None else max(0, place.due - self._served)

    def sweep(self, *, now_ms: int) -> None:
        """Remove the places of connections that did not come back in time. Looks for them at most once a second."""
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + 1_000
            late = [place for place in self._away if place.back_ms + _LATE_MS <= now_ms]
            self._away.difference_update(late)
            self._served += len(late)

    def note(self, amount: int) -> None:
        """Update ``mean_amount``, the mean charge of recent requests, with the charge of one more request."""
        self.mean_amount += (amount - self.mean_amount) / _PARTS if self.mean_amount else amount

    def end_request(self, amount: int) -> None:
        """Update ``mean_amount`` with the charge of a request that has ended, and wake the first waiting request."""
        self.note(amount)
        self.wake_first()

    def wake_first(self) -> None:
        """Make the first request that waits in the line check again whether it may be forwarded."""
        place = self.first()
        if place is not None:
            self._wake(place)

    def wake_all(self) -> None:
        """Make all requests that wait in the line check again, in order, whether they may be forwarded."""
        for place in sorted(place for place in self._heap if place.is_waiting):
            self._wake(place)

    def _drop_stale(self) -> None:
        """Forget the places that no longer wait. Each of them would keep a connection and its bytes in memory."""
        for place in self._heap:
            place.is_listed = place.is_waiting
        self._heap = [place for place in self._heap if place.is_waiting]
        heapify(self._heap)

    def _wake(self, place: Place) -> None:
        if place.owner is not None and not place.is_woken:
            place.is_woken = True
            self._lines.wake(place.owner)

    def _stop_waiting(self, place: Place) -> None:
        was_first = self.first() is place
        place.is_waiting = False
        self._waiting -= 1
        if len(self._heap) > _MOST_STALE + 2 * self._waiting:
            self._drop_stale()
        if not self._waiting:
            self._lines.discard(self)
        elif was_first:
            self.wake_first()
