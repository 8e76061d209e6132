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
from heapq import heappop, heappush
from typing import Final, Protocol

# How late a connection may come back before it loses its place.
_LATE_MS: Final = 2_000
# The amount of a request counts for an eighth of the mean, which is the expected amount of the next request.
_PARTS: Final = 8


class Waiter(Protocol):
    """A connection whose request waits in line until its bucket is within the limit."""

    def take_turn(self) -> None:
        """Check again whether the connection's request, which waits in line, may be forwarded.

        Must not be called while another method of this connection runs.
        """


class BrokerLines:
    """All the lines at one broker in which requests wait until their bucket is within its limit.

    Attributes:
        wake: Makes a connection check again whether its request may be forwarded, soon after the call. By default it
            appends the connection to ``woken``.
        woken: The connections that the default ``wake`` was called with.
    """

    __slots__ = ("_lines", "wake", "woken")

    def __init__(self) -> None:
        self.woken: list[Waiter] = []
        self.wake: Callable[[Waiter], None] = self.woken.append
        self._lines: set[Line] = set()

    def add(self, line: "Line") -> None:
        """Add the line of a bucket, because a request has begun to wait in it."""
        self._lines.add(line)

    def discard(self, line: "Line") -> None:
        """Remove the line of a bucket, because no request waits in it any longer."""
        self._lines.discard(line)

    def wake_all(self) -> None:
        """Make all requests that wait for any bucket of the broker check again whether they may be forwarded.

        Call this after limits have changed.
        """
        for line in list(self._lines):
            line.wake_all()


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """A connection's place in the line of requests that wait for one bucket.

    The connection has the place from its first wait until its request is forwarded. It keeps the place while it is
    away: its request was answered with a throttle time, and it is expected to send the request again.

    Attributes:
        line: The line.
        owner: The connection, or None.
        rank: The position in the line. Lower ranks come first.
        due: The number of requests that must have left the line, counted from its creation, before this request comes
            first.
        back_ms: The time at which the connection should send its request again, if it is away.
        is_waiting: Whether the request waits. Otherwise the connection is away.
        is_listed: Whether the place is in the heap of the line.
        is_woken: Whether the connection was told to check whether its request may be forwarded, but has not yet done
            so.
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
    """The line of requests that wait until one bucket is within its limit.

    A connection keeps its place while it is away: its request was answered with a throttle time, and it is expected to
    send the request again. ``len`` counts the waiting requests and the connections that are away.
    """

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

    def first(self) -> Place | None:
        """Return the place of the first request that waits in the line, or None if none waits.

        The places of connections that were told to come back later are skipped.
        """
        heap = self._heap
        while heap and not heap[0].is_waiting:
            heappop(heap).is_listed = False
        return heap[0] if heap else None

    def take(self, owner: Waiter | None) -> Place:
        """Return a new place at the end of the line of requests that wait for a bucket.

        ``owner`` is the connection. The caller must call ``wait`` next.
        """
        self._last_rank += 1
        return Place(self, owner, self._last_rank, self._served + len(self))

    def wait(self, place: Place) -> None:
        """Let the request of ``place`` wait in the line until the bucket is within its limit.

        Does nothing if it already waits.
        """
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
        """Return how many requests in the line come before the request of ``place``.

        If ``place`` is None, return how many come before a new request at the end of the line. Connections that are
        expected to send their requests again are counted, too.
        """
        return len(self) if place is None else max(0, place.due - self._served)

    def sweep(self, *, now_ms: int) -> None:
        """Remove the places of connections that are two seconds late to send their request again.

        Checks this at most once a second, however often it is called.
        """
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + 1_000
            late = [place for place in self._away if place.back_ms + _LATE_MS <= now_ms]
            self._away.difference_update(late)
            self._served += len(late)

    def note(self, amount: int) -> None:
        """Update ``mean_amount``, the mean charge of recent requests, with the charge of one more request."""
        self.mean_amount += (amount - self.mean_amount) / _PARTS if self.mean_amount else amount

    def end_request(self, amount: int) -> None:
        """Update ``mean_amount`` with the charge of a request that has ended, and wake the first request in the line.

        The woken request checks again whether it may be forwarded.
        """
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
