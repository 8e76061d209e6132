"""A bounded queue for each level (``FairCallQueue`` and ``CallQueueManager`` in Hadoop).

Nothing blocks: Hadoop stops a thread where this queue returns an answer and remembers the element that waits for room.
An element that does not fit into its level goes to the levels below, never above. A level that is empty at its turn
gives the turn to the highest level that is not.

Elements are compared by identity; one is in a queue at most once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


class Element(Protocol):
    """An element of the queue, hashed by identity. Level and identity may change only while it is in no queue."""

    @property
    def level(self) -> int:
        """Its level; one below the lowest of a queue counts as the lowest."""

    @property
    def identity(self) -> str:
        """The user that it belongs to, for round robin."""


E = TypeVar("E", bound=Element)


class Remainder(Enum):
    """The levels that get the remainder when the capacity is divided by weights."""

    FIRST = "first"  # level 0 gets all of it, as in Hadoop: 199 by 50,50 is 149 and 50
    LARGEST_FRACTION = "largest-fraction"  # one place each, in the order of the fractions that division cut off


class WithinLevel(Enum):
    """The order in which elements leave a level."""

    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"  # of identities; FIFO within each


class Overflow(Enum):
    """The kind of a refusal, with Hadoop's message to the client (``CallQueueOverflowException``)."""

    KEEP_ALIVE = "Server too busy"
    DISCONNECT = "Server too busy - disconnecting"
    FAILOVER = "Server too busy - disconnect and failover"


class Put(Enum):
    """The place of an element that was not refused."""

    QUEUED = auto()
    WAITS_FOR_ROOM = auto()


# Looked up once: each access to a member of an Enum goes through its class.
_QUEUED: Final = Put.QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The shape of a queue. The defaults are Hadoop's, except that its capacity depends on its handlers.

    Attributes:
        levels: the number of levels; 1 makes a plain FIFO queue.
        capacity: the number of places, over all levels.
        capacity_weights: the share of the capacity for each level; None: equal shares.
        multiplexer_weights: the turns of each level in a cycle; None: each level has twice the turns of the next.
        remainder: the levels that get the remainder of the division.
        within_level: the order in which elements leave a level.
        is_failover: an element that fits nowhere is refused with ``FAILOVER``, whatever its level.
        waits_for_last: an element without a place waits for the lowest level, as in Hadoop; otherwise it takes the
            first free place in its own level or one below it.
    """

    levels: int = 4
    capacity: int = 1_024
    capacity_weights: Sequence[int] | None = None
    multiplexer_weights: Sequence[int] | None = None
    remainder: Remainder = Remainder.FIRST
    within_level: WithinLevel = WithinLevel.FIFO
    is_failover: bool = False
    waits_for_last: bool = True


def divide(capacity: int, weights: Sequence[int], remainder: Remainder = Remainder.FIRST) -> tuple[int, ...]:
    """Return the number of places of each level; their sum is ``capacity``.

    Raises:
        ValueError: a weight below 1, or a level without a place.
    """
    if not weights or min(weights) < 1:
        raise ValueError(f"capacity weights must be at least 1: {tuple(weights)}")
    total = sum(weights)
    if remainder is Remainder.FIRST:
        unit, rest = divmod(capacity, total)
        sizes = [unit * weight for weight in weights]
        sizes[0] += rest
    else:
        sizes = [capacity * weight // total for weight in weights]
        cut_most = sorted(range(len(weights)), key=lambda level: -(capacity * weights[level] % total))
        for level in cut_most[: capacity - sum(sizes)]:
            sizes[level] += 1
    if min(sizes) < 1:
        raise ValueError(f"a capacity of {capacity}, divided by {tuple(weights)}, leaves a level without a place")
    return tuple(sizes)


class _Fifo(Generic[E]):
    """Elements in the order of arrival; removal of any of them takes constant time."""

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
    """One element of each identity in turn. A new identity waits for one turn of each of the others.

    Most identities have one element, which is stored without a queue: queues took half of the time.
    """

    __slots__ = ("_by_identity",)

    def __init__(self) -> None:
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
    """The queues of all levels, and the elements that wait for room in them.

    Attributes:
        options: its shape.
        capacities: the places of each level.
        overflowed: how often an element found each level full, counted as Hadoop does.

    Raises:
        ValueError: weights that do not fit the levels, or a level without a place.
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
        "options",
        "overflowed",
        "size",
    )

    def __init__(self, options: QueueOptions) -> None:
        levels = options.levels
        self.options = options
        self._multiplexer = WeightedRoundRobinMultiplexer(levels, options.multiplexer_weights)
        weights = (1,) * levels if options.capacity_weights is None else tuple(options.capacity_weights)
        if len(weights) != levels:
            raise ValueError(f"{levels} levels need {levels} capacity weights, not {len(weights)}")
        self.capacities = divide(options.capacity, weights, options.remainder)
        self._last = levels - 1
        self._levels: list[_Fifo[E] | _RoundRobin[E]] = [
            _RoundRobin() if options.within_level is WithinLevel.ROUND_ROBIN else _Fifo() for _ in range(levels)
        ]
        self._sizes = [0] * levels
        self.size = 0
        self.overflowed = [0] * levels
        # By level, so that the oldest element that may have a free place is found without a search.
        self._waiting: list[_Fifo[E]] = [_Fifo() for _ in range(levels)]
        self._waiting_since: dict[E, int] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """Return the number of elements, those that wait for room included."""
        return self.size + len(self._waiting_since)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements in each level."""
        return tuple(self._sizes)

    @property
    def waiting_for_room(self) -> int:
        """The number of elements without a place."""
        return len(self._waiting_since)

    def offer(self, element: E) -> bool:
        """Put ``element`` into its own level if there is room; return whether there was."""
        return self._fits(element, min(element.level, self._last))

    def add(self, element: E) -> Overflow | None:
        """Put ``element`` into the first level with room, from its own down; else return how it is refused."""
        own = min(element.level, self._last)
        for level in range(own, self._last + 1):
            if self._fits(element, level):
                return None
            self.overflowed[level] += 1
        if self.options.is_failover:
            return Overflow.FAILOVER
        return Overflow.DISCONNECT if own == self._last else Overflow.KEEP_ALIVE

    def put(self, element: E) -> Put:
        """Put ``element`` into the first level with room, from its own down; else let it wait for room.

        As in Hadoop, a full last level counts as no overflow, since the element waits there.
        """
        own = element.level
        if own > self._last:
            own = self._last
        if self._sizes[own] < self.capacities[own]:  # _fits inlined: this runs for each waiting request
            self._levels[own].append(element)
            self._sizes[own] += 1
            self.size += 1
            return _QUEUED
        for level in range(own, self._last):
            self.overflowed[level] += 1
            if self._fits(element, level + 1):
                return _QUEUED
        self._wait(element, own)
        return Put.WAITS_FOR_ROOM

    def poll(self) -> E | None:
        """Take the next element; return None, and use no turn, if there is none."""
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
        """Remove an element whose connection is gone, without using a turn; return whether it was in the queue.

        The elements behind it move up.
        """
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

    def drain(self, most: int | None = None) -> list[E]:
        """Remove up to ``most`` elements, level 0 first; elements that wait for room get the free places."""
        drained: list[E] = []
        for level, queue in enumerate(self._levels):
            while self._sizes[level] and (most is None or len(drained) < most):
                drained.append(queue.pop())
                self._sizes[level] -= 1
                self.size -= 1
                if self._waiting_since:
                    self._let_in(level)
        return drained

    def take_over(self, other: "CallQueue[E]") -> None:
        """Move all elements of ``other`` into this new queue, level by level in their order.

        Elements without a place wait for room. The overflow counts of common levels are kept.
        """
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

    def _wait(self, element: E, own: int) -> None:
        self._arrivals += 1
        self._waiting_since[element] = self._arrivals
        self._waiting[self._last if self.options.waits_for_last else own].append(element)

    def _stop_waiting(self, element: E) -> None:
        del self._waiting_since[element]
        level = self._last if self.options.waits_for_last else min(element.level, self._last)
        self._waiting[level].discard(element)

    def _let_in(self, level: int) -> None:
        """Give the free place in ``level`` to the element that waited longest among those that may have it."""
        heads = [queue.peek() for queue in self._waiting[: level + 1] if queue]
        if heads:
            element = min(heads, key=self._waiting_since.__getitem__)
            self._stop_waiting(element)
            self._fits(element, level)
