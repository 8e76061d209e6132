"""Decides which requests one broker gets now, which wait in a queue, and which are refused.

A slot is the right to have one request at the broker. A ticket is a connection's place in the queue. Each connection
has one ticket, with which it asks for a slot for its oldest unanswered request. The methods of ``Dispatcher`` change
the state of a ticket:

    ask ──┬─> PASSES ────────────────┬─> done
          ├─> WAITS ──> granted() ───┤
          └─> REFUSED                └─> park ──> done, or recall ──> done

A freed slot goes to the first waiting ticket at once. ``granted`` returns the tickets that received a slot after
waiting, so that the caller can wake their connections.

Control requests are heartbeats, offset commits and the like. They have a queue and slots of their own, so that they do
not wait behind other requests. In their queue, users take turns, and no user gets more than three quarters of the
slots. So a heartbeat of one user does not wait for the offset commits of another.
"""

from enum import Enum, auto
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, Shape, shape_of
from kafka_quota_proxy.proxy.fair_queue.concurrency import Limit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.user_bound import UserBound
from kafka_quota_proxy.proxy.fair_queue.usual_time import UsualTime

# The control lane needs no bound: each connection has one ticket, so the number of connections is the bound.
_NO_BOUND: Final = 2**31 - 1


class State(Enum):
    """What a ticket is doing: it has no request, waits for a slot, has a slot, or has given its slot back early."""

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

    The caller sets these attributes, but only while the ticket is idle: ``owner`` (whatever the caller needs to find
    the connection again), ``identity`` (the user or client that takes turns with others), ``level`` (the priority
    level) and ``is_control``. The dispatcher sets ``arrived_us`` (the time of the last ``ask``), ``started_us`` (the
    time at which the ticket received its slot) and ``state``.
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


class Turn(Enum):
    """The decision about a request: it is forwarded now, waits in the queue, or is refused."""

    PASSES = auto()
    WAITS = auto()  # until `granted` returns its ticket; the connection is not read meanwhile
    REFUSED = auto()


_PASSES: Final = Turn.PASSES
_WAITS: Final = Turn.WAITS


class Lane:
    """A queue of tickets with its own slots.

    ``limit`` says how many slots there are, and ``in_flight`` how many are in use. ``usual_time`` is the time that the
    broker takes: in the lane of control requests for each, in the other for a Produce. ``newest_us`` is the latest time
    at which a ticket received its slot whose request has been answered.
    """

    __slots__ = ("in_flight", "limit", "newest_us", "queue", "usual_time")

    def __init__(self, queue: CallQueue[Ticket], limit: Limit) -> None:
        self.queue = queue
        self.limit = limit
        self.in_flight = 0
        self.newest_us = 0
        self.usual_time = UsualTime()


class Dispatcher:
    """Gives the slots of one broker to tickets.

    ``control`` is the lane of control requests, whose limit is ``control_limit``. ``normal`` is the lane of all other
    requests, whose limit is ``limit``. ``is_refusing`` says whether a request that finds no room in the queue is
    refused. Otherwise it waits.
    """

    __slots__ = ("_granted", "_users", "control", "is_refusing", "normal")

    def __init__(self, settings: FairCallQueue, limit: Limit, control_limit: Limit | None = None) -> None:
        self.is_refusing = settings.backoff_enable
        self.normal = Lane(CallQueue(shape_of(settings)), limit)
        control = Shape(capacities=(_NO_BOUND,), weights=(1,), is_round_robin=True)
        self.control = Lane(CallQueue(control), control_limit or VegasLimit())
        self._users: UserBound[Ticket] = UserBound()  # of the control lane
        self._granted: dict[Ticket, None] = {}

    @property
    def queue(self) -> CallQueue[Ticket]:
        """The queue of all requests that are not control requests. Callers must not change it."""
        return self.normal.queue

    @property
    def control_waiting(self) -> int:
        """How many control requests, such as heartbeats and offset commits, wait for a slot."""
        return len(self.control.queue) + self._users.waiting

    @property
    def in_flight(self) -> int:
        """How many requests hold a slot at the broker now, not counting control requests."""
        return self.normal.in_flight

    @property
    def control_in_flight(self) -> int:
        """How many control requests, such as heartbeats and offset commits, hold a slot at the broker now."""
        return self.control.in_flight

    @property
    def limit(self) -> int:
        """How many requests may hold a slot at the broker at a time, not counting control requests."""
        return self.normal.limit.limit

    @property
    def control_limit(self) -> int:
        """How many control requests may hold a slot at the broker at a time."""
        return self.control.limit.limit

    def ask(self, ticket: Ticket, now_us: int, *, is_slow: bool = False, may_refuse: bool = True) -> Turn:
        """Ask for a slot for an idle ticket.

        If ``is_slow`` says that responses to requests of the ticket's level are slow, the request is refused.
        Otherwise, the ticket receives a free slot at once. If no slot is free, the ticket waits in the queue, or its
        request is refused if the queue has no room. No request is refused if backoff is disabled, if ``may_refuse`` is
        False, or if it is a control request: such a request receives a slot or waits.

        Raises:
            ValueError: If the ticket is not idle.
        """
        if ticket.state is not _IDLE:
            raise ValueError(f"a ticket in state {ticket.state.name} cannot enter the queue")
        ticket.arrived_us = now_us
        lane = self.control if ticket.is_control else self.normal
        is_refusing = self.is_refusing and may_refuse and not ticket.is_control
        if is_refusing and is_slow:
            return Turn.REFUSED
        if ticket.is_control and not self._users.enter(ticket, self._share()):
            ticket.state = _WAITING
            return _WAITS
        if lane.in_flight < lane.limit.limit:
            # A waiting ticket would have got this slot already, so no ticket waits.
            lane.in_flight += 1
            ticket.state = _RUNNING
            ticket.started_us = now_us
            return _PASSES
        if not is_refusing:
            lane.queue.put(ticket)
        elif not lane.queue.add(ticket):
            return Turn.REFUSED
        ticket.state = _WAITING
        return _WAITS

    def done(self, ticket: Ticket, now_us: int, *, is_sample: bool = True) -> bool:
        """End the request of a running or parked ticket. If the ticket has a slot, the next ticket receives the slot.

        Returns True if the caller must call ``granted``. ``is_sample`` says whether an adaptive limit may learn from
        the time for which the ticket had its slot.
        """
        if ticket.state is not _RUNNING:
            return self.leave(ticket, now_us)
        lane = self.control if ticket.is_control else self.normal
        if is_sample and lane.limit.learns:
            rtt_us = now_us - ticket.started_us
            lane.limit.observe(rtt_us if rtt_us > 0 else 1, lane.in_flight, now_us // 1_000)
        ticket.state = _IDLE
        if ticket.started_us > lane.newest_us:
            lane.newest_us = ticket.started_us
        if ticket.is_control or lane.queue.size or self._granted:
            return self._free(lane, ticket, now_us)
        lane.in_flight -= 1
        return False

    def hold(self, ticket: Ticket) -> None:
        """End the request of a running ticket, and keep its slot in use until ``release`` is called."""
        ticket.state = _IDLE
        self._granted.pop(ticket, None)

    def release(self, now_us: int) -> bool:
        """Free a slot that ``hold`` has kept in use. Returns True if the caller must call ``granted``."""
        self.normal.in_flight -= 1
        self._fill(self.normal, now_us)
        return bool(self._granted)

    def park(self, ticket: Ticket, now_us: int) -> bool:
        """Give the slot of a running ticket to the next waiting ticket before the broker has answered the request.

        Returns True if the caller must call ``granted``.
        """
        if ticket.state is not _RUNNING:
            return bool(self._granted)
        ticket.state = State.PARKED
        return self._free(self.lane(ticket), ticket, now_us)

    def recall(self, ticket: Ticket) -> None:
        """Count a parked ticket as one with a slot again, even beyond the limit, because its broker works on it now."""
        if ticket.state is State.PARKED:
            ticket.state = _RUNNING
            self.lane(ticket).in_flight += 1
            if ticket.is_control:
                self._users.force(ticket)

    def leave(self, ticket: Ticket, now_us: int) -> bool:
        """Drop the request of a ticket (a connection's place in the queue), whether it waits or holds a slot.

        If the ticket holds a slot, the first waiting ticket receives the slot. Do not call this while the broker works
        on the request, because the broker would then have more requests than slots. Return True if waiting tickets have
        received slots: the caller must then call ``granted`` and wake their connections.
        """
        state, ticket.state = ticket.state, _IDLE
        if state is _RUNNING:
            return self._free(self.lane(ticket), ticket, now_us)
        if state is _WAITING and not (ticket.is_control and self._users.discard(ticket)):
            self.lane(ticket).queue.remove(ticket)
            if ticket.is_control:
                self._admit_next(ticket)
                self._fill(self.control, now_us)
        return bool(self._granted)

    def granted(self) -> list[Ticket]:
        """Return the tickets that waited and have received a slot since the last call, in order of receipt."""
        if not self._granted:
            return []
        granted = list(self._granted)
        self._granted.clear()
        return granted

    def update(self, settings: FairCallQueue, limit: Limit, now_us: int) -> None:
        """Apply new settings, and a new limit on how many requests may be at the broker at a time.

        Waiting requests stay queued, except those that the new limit allows to be at the broker now.
        """
        shape = shape_of(settings)
        if shape != self.normal.queue.shape:
            queue = CallQueue[Ticket](shape)
            queue.take_over(self.normal.queue)
            self.normal.queue = queue
        self.is_refusing = settings.backoff_enable
        self.normal.limit = limit
        self._fill(self.normal, now_us)
        self._fill(self.control, now_us)

    def _share(self) -> int:
        """Return how many places of the control lane a user may have."""
        slots = self.control.limit.limit
        return slots - slots // 4

    def _admit_next(self, ticket: Ticket) -> None:
        """Let tickets into the control lane in the place of ``ticket``, which has left it, if its user has others."""
        for entered in self._users.leave(ticket.identity, self._share()):
            self.control.queue.put(entered)

    def lane(self, ticket: Ticket) -> Lane:
        """Return the queue of a ticket, with its slots."""
        return self.control if ticket.is_control else self.normal

    def _free(self, lane: Lane, ticket: Ticket, now_us: int) -> bool:
        lane.in_flight -= 1
        if self._granted:
            self._granted.pop(ticket, None)
        if ticket.is_control:
            self._admit_next(ticket)
        if lane.queue.size:
            self._fill(lane, now_us)
        return bool(self._granted)

    def _fill(self, lane: Lane, now_us: int) -> None:
        """Give the free slots of a lane to its waiting tickets, in the order of the lane's queue."""
        poll, granted, slots = lane.queue.poll, self._granted, lane.limit.limit
        while lane.in_flight < slots and (ticket := poll()) is not None:
            lane.in_flight += 1
            ticket.state = _RUNNING
            ticket.started_us = now_us
            granted[ticket] = None
