"""What one broker has: requests that wait for it, slots for those it works on, and a lane apart for control requests.

    ask ──┬─> RUN ───────────────────┬─> done
          ├─> WAIT ──> granted() ────┤
          └─> a refusal              └─> park ──> done

Each client connection has one ticket and asks with it for the request at its head; order inside a connection is not
touched by what happens here. No slot is idle while something waits in its lane: whatever frees a slot gives it to the
next ticket at once, and ``granted`` tells whose connections are to be woken.

Heartbeats, commits and the like have a lane of their own, with slots of its own and a turn for each identity: they
neither wait behind other requests nor can they be sent in numbers to get ahead of those.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, Overflow, QueueOptions, WithinLevel
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit

# One ticket a connection: as many as there are connections may wait here.
_NO_BOUND: Final = 2**31 - 1


class State(Enum):
    """Where a ticket is."""

    IDLE = auto()  # nothing asked, or all done
    WAITING = auto()  # queued, or waiting for room in the queue
    RUNNING = auto()  # has a slot
    PARKED = auto()  # at the broker, but without a slot: the broker waits for something else


# Looked up once: a member of an Enum is found through its class, for each request.
_IDLE: Final = State.IDLE
_RUNNING: Final = State.RUNNING
_WAITING: Final = State.WAITING


class Ticket:
    """One connection's place at one broker, used again for each of its requests.

    ``owner`` is whatever the caller wants to find again. ``identity``, ``level`` and ``is_control`` are set by the
    caller and only while the ticket is idle; the rest is the dispatcher's. Times are in microseconds: ``asked_us``
    of the last ``ask``, ``ran_us`` of the slot it got.
    """

    __slots__ = ("asked_us", "identity", "is_control", "level", "owner", "ran_us", "state")

    def __init__(self, owner: object, *, identity: str = "", level: int = 0, is_control: bool = False) -> None:
        self.owner = owner
        self.identity = identity
        self.level = level
        self.is_control = is_control
        self.asked_us = 0
        self.ran_us = 0
        self.state = _IDLE


class Answer(Enum):
    """What becomes of a request. What a refusal is in Kafka's terms depends on its API."""

    RUN = auto()  # now: it has a slot
    WAIT = auto()  # until `granted` names it; the connection is not read meanwhile
    KEEP_ALIVE = auto()  # refused
    DISCONNECT = auto()  # refused, and the connection may be closed
    FAILOVER = auto()  # the same, and another broker is to be tried


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
        queue: its shape.
        is_backoff_enabled: who finds no room is refused; else it waits.
        disconnects_when_slow: who is refused because responses are slow is told to disconnect, in whatever level, as
            in Hadoop; else it is kept alive.
        control_slots: how many control requests the broker is given at a time.
    """

    queue: QueueOptions = field(default_factory=QueueOptions)
    is_backoff_enabled: bool = False
    disconnects_when_slow: bool = True
    control_slots: int = 64


class Lane:
    """Slots, how many of them are in use, and who waits for them."""

    __slots__ = ("in_flight", "limit", "queue")

    def __init__(self, queue: CallQueue[Ticket], limit: Limit) -> None:
        self.queue = queue
        self.limit = limit
        self.in_flight = 0


class Dispatcher:
    """The queue and the slots of one broker.

    Attributes:
        options: how requests wait.
        is_refusing: whether anybody is refused at all.
        normal: the slots, and who waits for them, of all but control requests; to be read.
        refused: how many were, by answer.
    """

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
        """The queue of the normal lane; to be read."""
        return self.normal.queue

    @property
    def control_queue(self) -> CallQueue[Ticket]:
        """The queue of the control lane; to be read."""
        return self._control.queue

    @property
    def in_flight(self) -> int:
        """How many slots are in use."""
        return self.normal.in_flight

    @property
    def control_in_flight(self) -> int:
        """How many slots of the control lane are in use."""
        return self._control.in_flight

    @property
    def limit(self) -> int:
        """How many slots there are."""
        return self.normal.limit.limit

    def ask(self, ticket: Ticket, now_us: int, *, is_slow: bool = False, may_refuse: bool = True) -> Answer:
        """Ask for a slot for an idle ticket.

        Args:
            ticket: whose request it is; its identity and level are those of this request.
            now_us: the time.
            is_slow: the scheduler says that its level backs off. Heeded where backing off is enabled, and never for
                a control request: those are held, whatever happens.
            may_refuse: its client can be told in a way that it understands; else it is held, as if nobody backed off.

        Raises:
            ValueError: the ticket is not idle: it has one place only.
        """
        if ticket.state is not _IDLE:
            raise ValueError(f"a ticket that is {ticket.state.name} cannot ask")
        ticket.asked_us = now_us
        lane = self._control if ticket.is_control else self.normal
        is_refusing = self.is_refusing and may_refuse and not ticket.is_control
        if is_refusing and is_slow:
            return self._refuse(self._overflow_when_slow())
        if lane.in_flight < lane.limit.limit:
            # Nobody waits: else the slot would have been given away.
            lane.in_flight += 1
            ticket.state = _RUNNING
            ticket.ran_us = now_us
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
        """Take it that the request of a running or parked ticket is over; its slot goes to the next.

        Args:
            ticket: whose request it was.
            now_us: the time.
            is_sample: the time it ran was the broker's time, and says how busy that is. Not for a parked one.

        Returns:
            Whether ``granted`` has somebody to tell.
        """
        if ticket.state is not _RUNNING:
            return self.leave(ticket, now_us)
        lane = self._control if ticket.is_control else self.normal
        if is_sample and lane.limit.learns:
            rtt_us = now_us - ticket.ran_us
            lane.limit.observe(rtt_us if rtt_us > 0 else 1, lane.in_flight, now_us // 1_000)
        ticket.state = _IDLE
        if lane.queue.size or self._granted:
            return self._free(lane, ticket, now_us)
        lane.in_flight -= 1
        return False

    def park(self, ticket: Ticket, now_us: int) -> bool:
        """Give the slot of a running ticket to the next: its request waits, at the broker or for its own client.

        Returns as ``done``.
        """
        if ticket.state is not _RUNNING:
            return bool(self._granted)
        ticket.state = State.PARKED
        return self._free(self._lane(ticket), ticket, now_us)

    def leave(self, ticket: Ticket, now_us: int) -> bool:
        """Forget the request of a ticket, wherever it is; an idle one stays idle.

        Whoever waited leaves without using a turn. A slot goes to the next: if the broker still works on the request,
        call this when it no longer does. Returns as ``done``.
        """
        state, ticket.state = ticket.state, _IDLE
        if state is _RUNNING:
            return self._free(self._lane(ticket), ticket, now_us)
        if state is _WAITING:
            self._lane(ticket).queue.remove(ticket)
        return bool(self._granted)

    def granted(self) -> list[Ticket]:
        """Return the tickets that got a slot while they waited, in their order; each once. They run from now on."""
        if not self._granted:
            return []
        granted = list(self._granted)
        self._granted.clear()
        return granted

    def update(self, options: DispatcherOptions, limit: Limit, now_us: int) -> None:
        """Put the queue and the slots under other options; who waits and who runs goes on doing so."""
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
        """Give all free slots to those that wait."""
        poll, granted, slots = lane.queue.poll, self._granted, lane.limit.limit
        while lane.in_flight < slots and (ticket := poll()) is not None:
            lane.in_flight += 1
            ticket.state = _RUNNING
            ticket.ran_us = now_us
            granted[ticket] = None
