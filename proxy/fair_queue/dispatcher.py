"""The queue and the slots of one broker, with separate ones for control requests.

A ticket is a connection's place in the queue. A lane is a queue with its own slots. The methods of ``Dispatcher`` move
a ticket through these states:

    ask ──┬─> RUN ───────────────────┬─> done
          ├─> WAIT ──> granted() ────┤
          └─> a refusal              └─> park ──> done

Each connection has one ticket, with which it asks for a slot for its oldest unanswered request. A freed slot goes to
the next waiting ticket at once. ``granted`` returns the tickets that got a slot, so that the caller can wake their
connections.

Control requests are heartbeats, commits and the like. They have a lane of their own, so that they do not wait behind
other requests. Users take turns in this lane.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, Overflow, QueueOptions, WithinLevel
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit

# The control lane needs no bound: each connection has one ticket, so the number of connections is the bound.
_NO_BOUND: Final = 2**31 - 1


class State(Enum):
    """The state of a ticket."""

    IDLE = auto()  # it has no request
    WAITING = auto()  # it is queued, or waits for room in the queue
    RUNNING = auto()  # it has a slot
    PARKED = auto()  # its request is at the broker without a slot


# Looked up once: each access to a member of an Enum goes through its class.
_IDLE: Final = State.IDLE
_RUNNING: Final = State.RUNNING
_WAITING: Final = State.WAITING


class Ticket:
    """A connection's place in the queue of one broker, used for each of the connection's requests in turn.

    The caller sets ``owner``, ``identity``, ``level`` and ``is_control``, but only while the ticket is idle. The
    dispatcher sets the time of the last ``ask`` (``arrived_us``), the time at which the ticket got its slot
    (``started_us``), and ``state``.
    """

    __slots__ = ("arrived_us", "identity", "is_control", "level", "owner", "started_us", "state")

    def __init__(self, owner: object, *, identity: str = "", level: int = 0, is_control: bool = False) -> None:
        self.owner = owner
        self.identity = identity
        self.level = level
        self.is_control = is_control
        self.arrived_us = 0
        self.started_us = 0
        self.state = _IDLE


class Answer(Enum):
    """The decision about a request that asks for a slot."""

    RUN = auto()  # the request has a slot
    WAIT = auto()  # the request waits until `granted` returns its ticket; the connection is not read meanwhile
    KEEP_ALIVE = auto()  # the request is refused
    DISCONNECT = auto()  # the request is refused, and the connection may be closed
    FAILOVER = auto()  # the request is refused, and the client should try another broker


_RUN: Final = Answer.RUN
_WAIT: Final = Answer.WAIT
_REFUSALS: Final = {
    Overflow.KEEP_ALIVE: Answer.KEEP_ALIVE,
    Overflow.DISCONNECT: Answer.DISCONNECT,
    Overflow.FAILOVER: Answer.FAILOVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """How requests wait for one broker.

    Attributes:
        queue: The shape of the queue.
        is_backoff_enabled: Whether a request that finds no room in the queue is refused. Otherwise it waits.
        disconnects_when_slow: Whether a refusal because of slow responses also closes the connection, as in Hadoop.
        control_slots: How many control requests the broker gets at a time.
    """

    queue: QueueOptions = field(default_factory=QueueOptions)
    is_backoff_enabled: bool = False
    disconnects_when_slow: bool = True
    control_slots: int = 64


class Lane:
    """A queue of tickets with its own slots. ``in_flight`` is the number of slots in use."""

    __slots__ = ("in_flight", "limit", "queue")

    def __init__(self, queue: CallQueue[Ticket], limit: Limit) -> None:
        self.queue = queue
        self.limit = limit
        self.in_flight = 0


class Dispatcher:
    """The two lanes of one broker. ``normal`` is the lane of all requests that are not control requests."""

    __slots__ = ("_control", "_granted", "is_refusing", "normal", "options", "refused")

    def __init__(self, options: DispatcherOptions, limit: Limit) -> None:
        self.options = options
        self.is_refusing = options.is_backoff_enabled
        self.normal = Lane(CallQueue(options.queue), limit)
        control = QueueOptions(levels=1, capacity=_NO_BOUND, within_level=WithinLevel.ROUND_ROBIN)
        self._control = Lane(CallQueue(control), FixedLimit(options.control_slots))
        self._granted: dict[Ticket, None] = {}
        self.refused = dict.fromkeys(_REFUSALS.values(), 0)

    @property
    def queue(self) -> CallQueue[Ticket]:
        """The queue of the normal lane. Callers must not change it."""
        return self.normal.queue

    @property
    def control_queue(self) -> CallQueue[Ticket]:
        """The queue of the control lane. Callers must not change it."""
        return self._control.queue

    @property
    def in_flight(self) -> int:
        """The number of slots in use in the normal lane."""
        return self.normal.in_flight

    @property
    def control_in_flight(self) -> int:
        """The number of slots in use in the control lane."""
        return self._control.in_flight

    @property
    def limit(self) -> int:
        """The number of slots of the normal lane."""
        return self.normal.limit.limit

    def ask(self, ticket: Ticket, now_us: int, *, is_slow: bool = False, may_refuse: bool = True) -> Answer:
        """Ask for a slot for an idle ticket.

        The request is refused if it finds no room in the queue, or if ``is_slow`` says that responses of its level are
        slow. It waits instead if it is a control request, if ``may_refuse`` is False, or if backoff is disabled.

        Raises:
            ValueError: If the ticket is not idle.
        """
        if ticket.state is not _IDLE:
            raise ValueError(f"a ticket in state {ticket.state.name} cannot enter the queue")
        ticket.arrived_us = now_us
        lane = self._control if ticket.is_control else self.normal
        is_refusing = self.is_refusing and may_refuse and not ticket.is_control
        if is_refusing and is_slow:
            return self._refuse(self._overflow_when_slow())
        if lane.in_flight < lane.limit.limit:
            # A waiting ticket would have got this slot already, so no ticket waits.
            lane.in_flight += 1
            ticket.state = _RUNNING
            ticket.started_us = now_us
            return _RUN
        if is_refusing:
            overflow = lane.queue.add(ticket)
            if overflow is not None:
                return self._refuse(overflow)
        else:
            lane.queue.put(ticket)
        ticket.state = _WAITING
        return _WAIT

    def done(self, ticket: Ticket, now_us: int, *, is_sample: bool = True) -> bool:
        """End the request of a running or parked ticket. If the ticket has a slot, the next ticket gets the slot.

        Returns True if ``granted`` has to be called. ``is_sample`` says whether the limit may learn from the time since
        the ticket got its slot.
        """
        if ticket.state is not _RUNNING:
            return self.leave(ticket, now_us)
        lane = self._control if ticket.is_control else self.normal
        if is_sample and lane.limit.learns:
            rtt_us = now_us - ticket.started_us
            lane.limit.observe(rtt_us if rtt_us > 0 else 1, lane.in_flight, now_us // 1_000)
        ticket.state = _IDLE
        if lane.queue.size or self._granted:
            return self._free(lane, ticket, now_us)
        lane.in_flight -= 1
        return False

    def park(self, ticket: Ticket, now_us: int) -> bool:
        """Give the slot of a running ticket to the next ticket, while its request stays at the broker.

        Returns as ``done`` does.
        """
        if ticket.state is not _RUNNING:
            return bool(self._granted)
        ticket.state = State.PARKED
        return self._free(self._lane(ticket), ticket, now_us)

    def leave(self, ticket: Ticket, now_us: int) -> bool:
        """Drop the request of a ticket in any state. Returns as ``done`` does.

        Do not call this while the broker works on the request, because the next ticket gets the slot.
        """
        state, ticket.state = ticket.state, _IDLE
        if state is _RUNNING:
            return self._free(self._lane(ticket), ticket, now_us)
        if state is _WAITING:
            self._lane(ticket).queue.remove(ticket)
        return bool(self._granted)

    def granted(self) -> list[Ticket]:
        """Return the tickets that waited and have got a slot since the last call, in the order of their slots."""
        if not self._granted:
            return []
        granted = list(self._granted)
        self._granted.clear()
        return granted

    def update(self, options: DispatcherOptions, limit: Limit, now_us: int) -> None:
        """Change the options and the limit on slots. Waiting and running tickets keep their state."""
        if options.queue != self.options.queue:
            queue = CallQueue[Ticket](options.queue)
            queue.take_over(self.normal.queue)
            self.normal.queue = queue
        self.options = options
        self.is_refusing = options.is_backoff_enabled
        self.normal.limit = limit
        self._control.limit = FixedLimit(options.control_slots)
        self._fill(self.normal, now_us)
        self._fill(self._control, now_us)

    def _lane(self, ticket: Ticket) -> Lane:
        return self._control if ticket.is_control else self.normal

    def _overflow_when_slow(self) -> Overflow:
        if not self.options.disconnects_when_slow:
            return Overflow.KEEP_ALIVE
        return Overflow.FAILOVER if self.options.queue.is_failover else Overflow.DISCONNECT

    def _refuse(self, overflow: Overflow) -> Answer:
        answer = _REFUSALS[overflow]
        self.refused[answer] += 1
        return answer

    def _free(self, lane: Lane, ticket: Ticket, now_us: int) -> bool:
        lane.in_flight -= 1
        if self._granted:
            self._granted.pop(ticket, None)
        if lane.queue.size:
            self._fill(lane, now_us)
        return bool(self._granted)

    def _fill(self, lane: Lane, now_us: int) -> None:
        """Give the free slots of a lane to its waiting tickets."""
        poll, granted, slots = lane.queue.poll, self._granted, lane.limit.limit
        while lane.in_flight < slots and (ticket := poll()) is not None:
            lane.in_flight += 1
            ticket.state = _RUNNING
            ticket.started_us = now_us
            granted[ticket] = None
