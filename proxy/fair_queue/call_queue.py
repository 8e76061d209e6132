"""A bounded queue for each level (``FairCallQueue`` and ``CallQueueManager`` in Hadoop). Its operations are decisions.

Nothing blocks: what in Hadoop stops a thread is an answer here, and whoever waits for room is remembered. An element
that does not fit into its level goes to those below it, never above. A level that is empty when its turn comes gives
the turn to the highest that is not.

Elements are told apart by what they are, not by what they equal; one is in a queue at most once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


class Element(Protocol):
    """What can be queued. Its hash must be that of the object. Both may change only while it is in no queue."""

    @property
    def level(self) -> int:
        """Its level; one that is below the lowest of a queue counts as the lowest."""

    @property
    def identity(self) -> str:
        """Whose it is, for round robin."""


E = TypeVar("E", bound=Element)


class Remainder(Enum):
    """Who gets what is left when the capacity is divided by weights."""

    FIRST = "first"  # all of it level 0, as in Hadoop: 199 by 50,50 is 149 and 50
    LARGEST_FRACTION = "largest-fraction"  # one each, those first whose share was cut most


class WithinLevel(Enum):
    """In which order elements leave a level."""

    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"  # of identities; FIFO within each


class Overflow(Enum):
    """Why an element was refused, and so what its client is told (``CallQueueOverflowException`` in Hadoop)."""

    KEEP_ALIVE = "Server too busy"
    DISCONNECT = "Server too busy - disconnecting"
    FAILOVER = "Server too busy - disconnect and failover"


class Put(Enum):
    """Where an element that is not refused waits."""

    QUEUED = auto()
    WAITS_FOR_ROOM = auto()


# Looked up once: a member of an Enum is found through its class, for each request.
_QUEUED: Final = Put.QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The shape of a queue. The defaults are Hadoop's but for the capacity, which it takes from its handlers.

    Attributes:
        levels: how many; 1 makes a plain FIFO queue.
        capacity: how many elements, over all levels.
        capacity_weights: what of it each level gets; None: all the same.
        multiplexer_weights: how many turns of a cycle each level gets; None: each twice as many as the next.
        remainder: who gets what division leaves.
        within_level: in which order elements leave a level.
        is_failover: an element that fits nowhere is told to fail over, whatever its level.
        waits_for_last: who waits for room waits for the lowest level, as in Hadoop; else it takes the first place
            that comes free in its own level or one below it.
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
    """Return how many elements each level holds; their sum is ``capacity``.

    Raises:
        ValueError: a weight below 1, or a level that would hold nothing.
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
    """Elements in the order of their coming; any can leave at any time, at the same price."""

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
    """One element of each identity in turn. Who comes anew waits for the others' turns once.

    Most identities have one element, which stands for itself: a queue for each took half of the time.
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

    def peek(self) -> E:
        own = next(iter(self._by_identity.values()))
        return own.peek() if isinstance(own, _Fifo) else own

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
    """The queues of all levels, and who waits for room in them.

    Attributes:
        options: its shape.
        capacities: how many elements each level holds.
        overflowed: how often each level was found full by an element that was to go into it, counted as Hadoop does.

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
        # By level, so that a place that comes free finds the oldest of those it is good for without a search.
        self._waiting: list[_Fifo[E]] = [_Fifo() for _ in range(levels)]
        self._waiting_since: dict[E, int] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """Return how many there are, those that wait for room included."""
        return self.size + len(self._waiting_since)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many elements each level has."""
        return tuple(self._sizes)

    @property
    def waiting_for_room(self) -> int:
        """How many have no place yet."""
        return len(self._waiting_since)

    @property
    def remaining_capacity(self) -> int:
        """How many places are free, over all levels."""
        return sum(self.capacities) - self.size

    def offer(self, element: E) -> bool:
        """Put ``element`` into its own level, if there is room; say whether."""
        return self._fits(element, min(element.level, self._last))

    def add(self, element: E) -> Overflow | None:
        """Put ``element`` into the first level with room, from its own down; else say how it is refused."""
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

        As in Hadoop, the last level is no overflow: that is where an element waits that fits nowhere.
        """
        own = element.level
        if own > self._last:
            own = self._last
        if self._sizes[own] < self.capacities[own]:  # _fits, written out: each request that waits pays for it
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
        """Take the element whose turn it is; None, and no turn used, if there is none."""
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

    def peek(self) -> E | None:
        """Return the first element of the highest level that has any, whoever's turn it is."""
        return self._levels[self._highest()].peek() if self.size else None

    def remove(self, element: E) -> bool:
        """Take out an element whose connection is gone, wherever it is; nobody's turn is used. Say whether it was in.

        If it was waiting for room, those behind it move up.
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
        """Take out up to ``most`` elements, level 0 first; who waits for room gets the places that come free."""
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
        """Move all that ``other`` has into this queue, which is new, level by level in their order.

        What finds no place waits for room. Where this queue has the same levels, overflow goes on being counted.
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
        """Give the place that came free in ``level`` to who waited longest of those that may have it."""
        heads = [queue.peek() for queue in self._waiting[: level + 1] if queue]
        if heads:
            element = min(heads, key=self._waiting_since.__getitem__)
            self._stop_waiting(element)
            self._fits(element, level)
