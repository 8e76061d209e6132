"""A bounded queue for each level (``FairCallQueue`` and ``CallQueueManager`` in Hadoop). Level 0 is the highest level.

An element that finds its level full enters the next lower level with room. If no level has room, the element is
refused, or waits outside the levels until one has room. If a level is empty when it has the turn, the highest level
that is not empty gets the turn instead.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

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


class Remainder(Enum):
    """Which levels of a queue get the places that remain when its capacity is divided among them by weights."""

    FIRST = "first"  # level 0 gets all of the remainder, as in Hadoop
    LARGEST_FRACTION = "largest-fraction"  # one place each for the levels that lost the largest fractions by rounding


class WithinLevel(Enum):
    """The order in which elements leave one level of a queue."""

    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"  # one element of each identity in turn; FIFO within an identity


class Overflow(Enum):
    """How an element is refused if the queue is full.

    The value is Hadoop's message to the client (``CallQueueOverflowException``).
    """

    KEEP_ALIVE = "Server too busy"
    DISCONNECT = "Server too busy - disconnecting"
    FAILOVER = "Server too busy - disconnect and failover"


class Put(Enum):
    """The result of ``CallQueue.put``: the element has entered a level, or waits until there is room for it."""

    QUEUED = auto()
    WAITS_FOR_ROOM = auto()


# Looked up once: each access to a member of an Enum goes through its class.
_QUEUED: Final = Put.QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The size of a queue, and how its levels are served. The defaults are Hadoop's, except for ``capacity``.

    Attributes:
        levels: The number of levels.
        capacity: The number of places in all levels together.
        capacity_weights: The weights by which the capacity is divided among the levels. None gives equal shares.
        multiplexer_weights: How many turns each level has in a cycle. None gives each level twice the turns of the
            next.
        remainder: Which levels get the places that remain when the capacity is divided.
        within_level: The order in which elements leave a level.
        is_failover: Whether an element that finds no room is always refused with ``FAILOVER``. Otherwise its level
            determines how it is refused.
        waits_for_last: Whether an element without room waits for a place in the last level only, as in Hadoop.
            Otherwise it takes the first free place in its own level or in a lower one.
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
    """Divide ``capacity`` in proportion to ``weights``, and return the number of places of each level.

    Raises:
        ValueError: If there is no weight, if a weight is below 1, or if a level would have no place.
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
        options: The size of the queue, and how its levels are served.
        capacities: How many elements each level can hold.
        overflowed: For each level, how often an element found it full.
        size: The number of elements in all levels, without the elements that wait for room.

    Raises:
        ValueError: If there are not as many weights as levels, or a level could hold no element.
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
        # Elements that wait for room, by the highest level that they may enter.
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

    def offer(self, element: E) -> bool:
        """Put ``element`` into its own level, and into no other. Returns False if this level has no room."""
        return self._fits(element, min(element.level, self._last))

    def add(self, element: E) -> Overflow | None:
        """Put ``element`` into its own level or, if that is full, into the next lower level with room.

        Returns None, or how ``element`` is refused if no level has room.
        """
        own = min(element.level, self._last)
        for level in range(own, self._last + 1):
            if self._fits(element, level):
                return None
            self.overflowed[level] += 1
        if self.options.is_failover:
            return Overflow.FAILOVER
        return Overflow.DISCONNECT if own == self._last else Overflow.KEEP_ALIVE

    def put(self, element: E) -> Put:
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
            return _QUEUED
        for level in range(own, self._last):  # as in Hadoop, a full last level is not counted
            self.overflowed[level] += 1
            if self._fits(element, level + 1):
                return _QUEUED
        self._wait(element, own)
        return Put.WAITS_FOR_ROOM

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

    def drain(self, most: int | None = None) -> list[E]:
        """Remove up to ``most`` elements and return them, those of level 0 first. If ``most`` is None, remove all."""
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

    def _wait(self, element: E, own: int) -> None:
        self._arrivals += 1
        self._waiting_since[element] = self._arrivals
        self._waiting[self._last if self.options.waits_for_last else own].append(element)

    def _stop_waiting(self, element: E) -> None:
        del self._waiting_since[element]
        level = self._last if self.options.waits_for_last else min(element.level, self._last)
        self._waiting[level].discard(element)

    def _let_in(self, level: int) -> None:
        """Fill a free place in ``level`` with the element that has waited longest of those that may enter it."""
        heads = [queue.peek() for queue in self._waiting[: level + 1] if queue]
        if heads:
            element = min(heads, key=self._waiting_since.__getitem__)
            self._stop_waiting(element)
            self._fits(element, level)
