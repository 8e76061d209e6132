"""A bounded queue for each level (``FairCallQueue`` and ``CallQueueManager`` in Hadoop). Level 0 is the highest level.

An element that finds its level full enters the next lower level with room. If none of these has room, the element is
refused, or waits outside until its own level or a lower one has room. If a level is empty when it has the turn, the
highest level that is not empty gets the turn instead.
"""

from collections import OrderedDict
from typing import Generic, NamedTuple, Protocol, TypeVar

from kafka_quota_proxy.config.fair_call_queue import CallQueueImpl, FairCallQueue, WithinLevel, places
from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


class Element(Protocol):
    """An element of the queue, which stands for a waiting request, for example a ``dispatcher.Ticket``.

    Its ``level`` and ``identity`` must not change while it is in a queue.
    """

    @property
    def level(self) -> int:
        """The level at which the element enters the queue. A number beyond the last level counts as the last level."""

    @property
    def identity(self) -> str:
        """The user whose request the element stands for, for example a principal."""


E = TypeVar("E", bound=Element)


class Shape(NamedTuple):
    """The size of a queue, and how its levels are served.

    Attributes:
        capacities: The number of places in each level.
        weights: How many turns each level has in a cycle.
        is_round_robin: Whether identities take turns within a level: one element of each leaves, in the order of
            arrival. Otherwise elements leave a level in the order of arrival.
    """

    capacities: tuple[int, ...]
    weights: tuple[int, ...]
    is_round_robin: bool


def shape_of(settings: FairCallQueue) -> Shape:
    """Return the shape of the queue in front of each broker. With ``CallQueueImpl.FIFO`` it has one level."""
    is_round_robin = settings.within_level is WithinLevel.ROUND_ROBIN
    if settings.callqueue_impl is CallQueueImpl.FIFO:
        return Shape((settings.capacity,), (1,), is_round_robin)
    capacities = places(settings.capacity, settings.capacity_weights)
    return Shape(capacities, settings.multiplexer_weights, is_round_robin)


class _Fifo(Generic[E]):
    """A queue whose elements leave in the order of arrival. Removing any element takes constant time."""

    __slots__ = ("_elements",)

    def __init__(self) -> None:
        self._elements: OrderedDict[E, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._elements)

    def append(self, element: E) -> None:
        self._elements[element] = None

    def peek(self) -> E:
        return next(iter(self._elements))

    def pop(self) -> E:
        return self._elements.popitem(last=False)[0]

    def discard(self, element: E) -> bool:
        if element in self._elements:
            del self._elements[element]
            return True
        return False


class _RoundRobin(Generic[E]):
    """A queue whose identities take turns: one element of each identity leaves, then the next element of each."""

    __slots__ = ("_by_identity",)

    def __init__(self) -> None:
        # Most identities have one element, which needs no queue of its own. Creating a queue is slow.
        self._by_identity: OrderedDict[str, E | _Fifo[E]] = OrderedDict()

    def append(self, element: E) -> None:
        own = self._by_identity.setdefault(element.identity, element)
        if own is element:
            return
        if not isinstance(own, _Fifo):
            first, own = own, _Fifo[E]()
            own.append(first)
            self._by_identity[element.identity] = own
        own.append(element)

    def pop(self) -> E:
        identity, own = self._by_identity.popitem(last=False)
        if not isinstance(own, _Fifo):
            return own
        element = own.pop()
        if own:
            self._by_identity[identity] = own
        return element

    def discard(self, element: E) -> bool:
        own = self._by_identity.get(element.identity)
        if isinstance(own, _Fifo):
            is_in = own.discard(element)
            is_last = not own
        else:
            is_in = is_last = own is element
        if is_in and is_last:
            del self._by_identity[element.identity]
        return is_in


class CallQueue(Generic[E]):
    """A queue with several levels, each of limited size. It also holds the elements for which no level has room yet.

    Attributes:
        shape: The size of the queue, and how its levels are served.
        capacities: How many elements each level can hold.
        overflowed: For each level, how often an element found it full.
        size: The number of elements in all levels, without the elements that wait for room.
    """

    __slots__ = (
        "_arrivals",
        "_last",
        "_levels",
        "_multiplexer",
        "_sizes",
        "_waiting",
        "_waiting_since",
        "capacities",
        "overflowed",
        "shape",
        "size",
    )

    def __init__(self, shape: Shape) -> None:
        levels = len(shape.capacities)
        self.shape = shape
        self.capacities = shape.capacities
        self._multiplexer = WeightedRoundRobinMultiplexer(shape.weights)
        self._last = levels - 1
        self._levels: list[_Fifo[E] | _RoundRobin[E]] = [
            _RoundRobin() if shape.is_round_robin else _Fifo() for _ in range(levels)
        ]
        self._sizes = [0] * levels
        self.size = 0
        self.overflowed = [0] * levels
        # Elements that wait for room, by their own level.
        self._waiting: list[_Fifo[E]] = [_Fifo() for _ in range(levels)]
        self._waiting_since: dict[E, int] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """Return the number of elements, including the elements that wait for room."""
        return self.size + len(self._waiting_since)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements in each level."""
        return tuple(self._sizes)

    @property
    def waiting_for_room(self) -> int:
        """The number of elements that wait for room in a level."""
        return len(self._waiting_since)

    def add(self, element: E) -> bool:
        """Put ``element`` into its own level or, if that is full, into the next lower level with room.

        Returns False if no level has room. Then ``element`` is not in the queue.
        """
        for level in range(min(element.level, self._last), self._last + 1):
            if self._fits(element, level):
                return True
            self.overflowed[level] += 1
        return False

    def put(self, element: E) -> None:
        """Put ``element`` into its own level or, if that is full, into the next lower level with room.

        If no level has room, the element waits until one has.
        """
        own = element.level
        if own > self._last:
            own = self._last
        if self._sizes[own] < self.capacities[own]:  # _fits inlined: this runs for each waiting request
            self._levels[own].append(element)
            self._sizes[own] += 1
            self.size += 1
            return
        for level in range(own, self._last):  # as in Hadoop, a full last level is not counted
            self.overflowed[level] += 1
            if self._fits(element, level + 1):
                return
        self._arrivals += 1
        self._waiting_since[element] = self._arrivals
        self._waiting[own].append(element)

    def poll(self) -> E | None:
        """Remove the element whose turn is next, and return it. Returns None if all levels are empty."""
        if not self.size:
            return None
        level = self._multiplexer.next()
        sizes = self._sizes
        if not sizes[level]:
            level = self._highest()
        element = self._levels[level].pop()
        sizes[level] -= 1
        self.size -= 1
        if self._waiting_since:
            self._let_in(level)
        return element

    def remove(self, element: E) -> bool:
        """Remove ``element``, without using a turn of its level. Returns False if ``element`` was not in the queue."""
        if element in self._waiting_since:
            self._stop_waiting(element)
            return True
        for level in range(min(element.level, self._last), self._last + 1):
            if self._levels[level].discard(element):
                self._sizes[level] -= 1
                self.size -= 1
                if self._waiting_since:
                    self._let_in(level)
                return True
        return False

    def drain(self) -> list[E]:
        """Remove all elements and return them, those of level 0 first."""
        drained: list[E] = []
        for level, queue in enumerate(self._levels):
            while self._sizes[level]:
                drained.append(queue.pop())
                self._sizes[level] -= 1
                self.size -= 1
                if self._waiting_since:
                    self._let_in(level)
        return drained

    def take_over(self, other: "CallQueue[E]") -> None:
        """Move the elements of ``other`` into this new queue, in their order, and copy the counts in ``overflowed``."""
        for element in other.drain():
            self.put(element)
        kept = other.overflowed[: self._last + 1]
        self.overflowed = [*kept, *[0] * (self._last + 1 - len(kept))]

    def _fits(self, element: E, level: int) -> bool:
        if self._sizes[level] >= self.capacities[level]:
            return False
        self._levels[level].append(element)
        self._sizes[level] += 1
        self.size += 1
        return True

    def _highest(self) -> int:
        level = 0
        while not self._sizes[level]:
            level += 1
        return level

    def _stop_waiting(self, element: E) -> None:
        del self._waiting_since[element]
        self._waiting[min(element.level, self._last)].discard(element)

    def _let_in(self, level: int) -> None:
        """Fill a free place in ``level`` with the element that has waited longest of those that may enter it."""
        heads = [queue.peek() for queue in self._waiting[: level + 1] if queue]
        if heads:
            element = min(heads, key=self._waiting_since.__getitem__)
            self._stop_waiting(element)
            self._fits(element, level)
