"""A connection's requests in front of a broker that cannot take all at once: the fair call queue, seen from a session.

A slot is a connection that its broker works for; a broker works on one request of a connection at a time. So only the
request at the head of a connection is queued, and what its client has sent ahead passes on the same slot as long as
nobody waits for one; else it goes to the back of the queue when the head is answered.

What waits at the broker without being worked on has no slot. A group's members that gather give theirs back at once. A
fetch may be answered now or in half a second, which nobody knows beforehand: it keeps its slot for ``POLL_GRACE_US``,
and a connection whose last fetch took longer and brought hardly anything goes past the queue with the next, until one
is answered sooner or brings data. A request of which the rest does not come gives its slot back after
``UPLOAD_GRACE_US``.

Source: ``Server``, ``CallQueueManager`` of Hadoop's ipc; ``SocketServer`` and ``DelayedFetch`` of Apache Kafka.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Answer, Dispatcher, State, Ticket
from kafka_quota_proxy.proxy.fair_queue.request_kind import CONTROL, RequestKind
from kafka_quota_proxy.proxy.quota.request_time import ServiceTime

# How long a fetch without data is taken to be worked on.
POLL_GRACE_US: Final = 20_000
# What a fetch without data may be answered with. For each partition that it names the answer has less than twice the
# bytes (of v11, 42 for 28; of v4, 30 for 16), and around them a session and tags. Some records are not told from that:
# to wait for one is to wait, too.
_EMPTY_PER_BYTE: Final = 2
_EMPTY_BYTES: Final = 1_024
# How long the rest of a request may take to come.
UPLOAD_GRACE_US: Final = 1_000_000

# In place of a level, in what is counted of them: those that follow have a queue of their own.
CONTROL_LEVEL: Final = -1

# Whether a broker reads or changes something for it: which lock Hadoop's name node would take.
EXCLUSIVE: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        *CONTROL,
    }
)
SHARED: Final = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH})

# The identity whose cost a request adds to: of its principal (``ANONYMOUS`` without a login), client-id and host.
Identify = Callable[[str, str, str], str]


class Cost(Protocol):
    """What is charged to a user for a request, in two parts, or for one that is refused."""

    @property
    def on_refusal(self) -> int:
        """What is charged for one that is refused."""

    @property
    def on_arrival(self) -> Callable[[int], int] | None:
        """What is charged for its bytes when it is let in; None: nothing."""

    @property
    def flat(self) -> int | None:
        """What is charged for each when it is over; None: ``on_completion`` says."""

    def on_completion(self, done: "Done") -> int:
        """Return what is charged when it is over."""


class Done(NamedTuple):
    """A request that is over. Times in microseconds."""

    api_key: int
    queue_us: int
    elapsed_us: int  # from when the broker could begin until the answer began
    service_us: int  # what of it was work
    response_bytes: int


class QueueStats:
    """What has become of a listener's requests; counted from its start on, to be read as metrics.

    Attributes:
        served: By level, how many were answered; how long these were queued, and then at the broker, without what polls
            and groups wait there, in microseconds.
        refused: How many were refused, by level, API and how.
        passed_by: How many went past the queue, by API: no slot was theirs.
        parked: How many gave their slot back before they were answered, by API.
    """

    __slots__ = ("parked", "passed_by", "refused", "served")

    def __init__(self) -> None:
        self.served: dict[int, list[int]] = {}
        self.refused: dict[tuple[int, int, Answer], int] = {}
        self.passed_by: dict[int, int] = {}
        self.parked: dict[int, int] = {}

    def serve(self, level: int, queue_us: int, taken_us: int) -> None:
        """Count a request that was answered."""
        served = self.served.get(level)
        if served is None:
            served = self.served[level] = [0, 0, 0]
        served[0] += 1
        served[1] += queue_us
        served[2] += taken_us

    def refuse(self, level: int, api_key: int, answer: Answer) -> None:
        """Count a request that was refused."""
        key = level, api_key, answer
        self.refused[key] = self.refused.get(key, 0) + 1

    def pass_by(self, api_key: int) -> None:
        """Count a request that goes past the queue."""
        self.passed_by[api_key] = self.passed_by.get(api_key, 0) + 1

    def park(self, api_key: int) -> None:
        """Count a request that gives its slot back before it is answered."""
        self.parked[api_key] = self.parked.get(api_key, 0) + 1


class Turn(Enum):
    """What becomes of a request."""

    PASSES = auto()
    WAITS = auto()
    REFUSED = auto()


# Looked up once: a member of an Enum is found through its class, for each request.
_PASSES: Final = Turn.PASSES
_WAITS: Final = Turn.WAITS
_RUN: Final = Answer.RUN
_WAIT: Final = Answer.WAIT
_IDLE: Final = State.IDLE
_WAITING: Final = State.WAITING
_RUNNING: Final = State.RUNNING


class SlotTimeouts:
    """Who may have to give a slot back before the answer comes, and when. Times in microseconds.

    Attributes:
        soonest_us: Nobody's time comes before; whose it was may be gone by now. None: there is nobody.
    """

    __slots__ = ("_at_us", "soonest_us")

    def __init__(self) -> None:
        self._at_us: dict[QueuedConnection, int] = {}
        self.soonest_us: int | None = None

    def __len__(self) -> int:
        """Return how many are timeouts."""
        return len(self._at_us)

    def add(self, call: "QueuedConnection", at_us: int) -> bool:
        """Watch ``call`` until ``at_us``, and no longer until when it was; return whether that is the soonest now."""
        self._at_us[call] = at_us
        is_soonest = self.soonest_us is None or at_us < self.soonest_us
        if is_soonest:
            self.soonest_us = at_us
        return is_soonest

    def discard(self, call: "QueuedConnection") -> None:
        """Watch ``call`` no longer."""
        self._at_us.pop(call, None)

    def park_due(self, now_us: int) -> int | None:
        """Take the slots of those whose grace is over; return when to call this again, None for never."""
        for call in [call for call, at_us in self._at_us.items() if at_us <= now_us]:
            del self._at_us[call]
            call.park(now_us)
        self.soonest_us = min(self._at_us.values(), default=None)
        return self.soonest_us


class ListenerQueue:
    """What the connections of one listener to one broker share.

    Attributes:
        scheduler: The listener's: who is in which level.
        dispatcher: The broker's: its queue and its slots.
        cost: What is charged to a user.
        identity: Whose cost a request adds to.
        stats: The listener's: what has become of its requests.
        timeouts: The broker's: who may have to give its slot back.
        wake: Called when connections may go on that waited, and when somebody is to be looked at sooner.
    """

    __slots__ = ("cost", "dispatcher", "identity", "scheduler", "stats", "timeouts", "wake")

    def __init__(
        self,
        scheduler: DecayScheduler,
        dispatcher: Dispatcher,
        cost: Cost,
        *,
        identity: Identify,
        stats: QueueStats,
        timeouts: SlotTimeouts,
        wake: Callable[[], None],
    ) -> None:
        self.scheduler = scheduler
        self.dispatcher = dispatcher
        self.cost = cost
        self.identity = identity
        self.stats = stats
        self.wake = wake
        self.timeouts = timeouts

    def is_awaited(self, *, is_control: bool) -> bool:
        """Whether anybody waits for a slot."""
        queue = self.dispatcher.control_queue if is_control else self.dispatcher.queue
        return len(queue) > 0

    def watch(self, call: "QueuedConnection", at_us: int) -> None:
        """See to it that a slot is given back at ``at_us`` if it still is had."""
        if self.timeouts.add(call, at_us):
            self.wake()


class QueuedConnection:
    """The request at the head of one connection, again and again.

    Attributes:
        line: Where it waits.
        ticket: With what.
        is_watched: It may have to give its slot back before the answer comes.
    """

    __slots__ = ("_api_key", "_awaits_data", "_refusal", "_sample", "is_watched", "line", "ticket")

    def __init__(self, line: ListenerQueue, owner: object) -> None:
        self.line = line
        self._api_key = 0  # of the oldest request without an answer
        self._awaits_data = False  # the last fetch did
        self._refusal = 0, "", Answer.KEEP_ALIVE  # of which API, whose, and how
        self.is_watched = False
        self._sample = 0  # 1: one request of this slot that says how fast the broker is; more: others with it, or none
        self.ticket = Ticket(owner)

    def ask(
        self, kind: RequestKind, identity: str, size_bytes: int, *, is_alone: bool, may_refuse: bool, now_us: int
    ) -> Turn:
        """Ask for a request whether it may pass now. Where it waits its connection is woken when it is its turn.

        Args:
            kind: The request.
            identity: Whose it is.
            size_bytes: Its size.
            is_alone: Whether nothing of the connection is unanswered.
            may_refuse: Whether there is an answer for a refusal, and it can be given.
            now_us: The time.
        """
        ticket, line = self.ticket, self.line
        state = ticket.state
        if state is _WAITING:
            return _WAITS
        if not is_alone:
            is_served = state is _RUNNING and not kind.is_poll
            is_control = kind.is_control
            if not is_served or is_control is not ticket.is_control or line.is_awaited(is_control=is_control):
                return _WAITS
        else:
            self._api_key = kind.api_key
            if state is _IDLE:
                if kind.is_free or (self._awaits_data and kind.waits_for_data):
                    line.stats.pass_by(kind.api_key)
                elif (turn := self._begin(kind, identity, may_refuse, now_us)) is not _PASSES:
                    return turn
        on_arrival = line.cost.on_arrival
        if on_arrival is not None:
            line.scheduler.charge(identity, on_arrival(size_bytes))
        self._sample += 1 if kind.has_answer and not kind.waits_for_data else 2
        return _PASSES

    def _begin(self, kind: RequestKind, identity: str, may_refuse: bool, now_us: int) -> Turn:
        ticket, line = self.ticket, self.line
        scheduler, dispatcher = line.scheduler, line.dispatcher
        if now_us >= scheduler.next_sweep_ms * 1_000:
            scheduler.sweep_if_due(now_ms=now_us // 1_000)
        ticket.identity = identity
        ticket.is_control = kind.is_control
        lane = dispatcher.normal
        ticket.level = level = scheduler.level(identity, lane.in_flight, lane.limit.limit)
        self._sample = 0
        is_slow = may_refuse and scheduler.backs_off(level)
        answer = dispatcher.ask(ticket, now_us, is_slow=is_slow, may_refuse=may_refuse)
        if answer is _RUN:
            return _PASSES
        if answer is _WAIT:
            return _WAITS
        return self._refuse(kind, identity, answer)

    def refuse_behind(self, kind: RequestKind, identity: str) -> Turn:
        """Refuse a request because one of the connection was refused that has to come before it."""
        return self._refuse(kind, identity, Answer.KEEP_ALIVE)

    def _refuse(self, kind: RequestKind, identity: str, answer: Answer) -> Turn:
        self._refusal = kind.api_key, identity, answer
        return Turn.REFUSED

    def refused(self) -> None:
        """Take it that the client is told so. Else, for there turned out to be no answer, nobody was refused."""
        line, (api_key, identity, answer) = self.line, self._refusal
        line.scheduler.charge(identity, line.cost.on_refusal)
        line.stats.refuse(self.ticket.level, api_key, answer)

    def passed(self, kind: RequestKind, *, is_whole: bool, now_us: int) -> None:
        """Take it that a request is the oldest without an answer now; its last bytes may be still to come.

        Those behind it do not matter: the broker works on them later. It need not be told of one that asked alone and
        passed whole, unless it ``may_park`` or ``is_watched``.
        """
        self._api_key = kind.api_key
        if self.ticket.state is not _RUNNING:
            return
        if not is_whole:
            self._sample += 1  # how long it takes to come says nothing of the broker
            self._watch(now_us + UPLOAD_GRACE_US)
        elif kind.is_gathering:
            self.park(now_us)
        elif kind.waits_for_data:
            self._watch(now_us + POLL_GRACE_US)
        elif self.is_watched:
            self._unwatch()

    def answered(
        self, kind: RequestKind, identity: str, service: ServiceTime, request_bytes: int, response_bytes: int
    ) -> None:
        """Take it that the answer of a request begins.

        Args:
            kind: The request.
            identity: Whose it was.
            service: How long the broker had it, and what of that was work.
            request_bytes: Its size.
            response_bytes: The answer's size.
        """
        line, ticket = self.line, self.ticket
        # What `_queue_us` does, written out: each request pays for it.
        queue_us = ticket.ran_us - ticket.asked_us
        if queue_us < 0 or ticket.state is _IDLE:
            queue_us = 0
        elapsed_us = service.elapsed_ns // 1_000
        cost = line.cost.flat
        if cost is None:
            cost = self._cost(kind, queue_us, service, response_bytes)
        if kind.is_poll:
            # A broker that is busy may be late with data that is there.
            is_empty = response_bytes <= _EMPTY_PER_BYTE * request_bytes + _EMPTY_BYTES
            self._awaits_data = is_empty and elapsed_us >= POLL_GRACE_US
        # A broker that has too many requests at once is slow with each of them, and works on it no longer.
        taken_us = service.worked_ns // 1_000 if kind.waits_for_data or kind.is_gathering else elapsed_us
        level = ticket.level
        line.scheduler.charge(identity, cost)
        line.scheduler.add_response_time(level, queue_us + taken_us)
        line.stats.serve(CONTROL_LEVEL if ticket.is_control else level, queue_us, taken_us)

    def unanswered(self, kind: RequestKind, identity: str, service: ServiceTime) -> None:
        """Take it that a request of which the broker had something, if not all, will have no answer.

        Args:
            kind: The request.
            identity: Whose it was.
            service: How long the broker had it, as far as that is known.
        """
        self.line.scheduler.charge(identity, self._cost(kind, self._queue_us(), service, 0))

    def _queue_us(self) -> int:
        """Return how long the request was queued whose slot it is."""
        ticket = self.ticket
        return 0 if ticket.state is _IDLE else max(0, ticket.ran_us - ticket.asked_us)

    def _cost(self, kind: RequestKind, queue_us: int, service: ServiceTime, response_bytes: int) -> int:
        elapsed_us, service_us = service.elapsed_ns // 1_000, service.worked_ns // 1_000
        return self.line.cost.on_completion(Done(kind.api_key, queue_us, elapsed_us, service_us, response_bytes))

    def park(self, now_us: int) -> None:
        """Give the slot back before the answer comes."""
        if self.ticket.state is _RUNNING:
            line = self.line
            line.stats.park(self._api_key)
            if line.dispatcher.park(self.ticket, now_us):
                line.wake()

    def pause(self, *, is_used: bool, now_us: int) -> None:
        """Take it that no answer is read for now: give the slot back, whether something was begun with it or not."""
        if self.ticket.state is _RUNNING:
            if is_used:
                self._unwatch()
                self.park(now_us)
            else:
                self.leave(now_us)

    def end(self, now_us: int) -> None:
        """Take it that nothing more is under way that needs a slot: it is another's."""
        if self.is_watched:
            self._unwatch()
        line = self.line
        if line.dispatcher.done(self.ticket, now_us, is_sample=self._sample == 1):
            line.wake()

    def leave_unused(self, now_us: int) -> None:
        """Give a slot back with which nothing was begun."""
        if self.ticket.state is _RUNNING:
            self.leave(now_us)

    def leave(self, now_us: int) -> None:
        """Wait no longer, and give back what there is."""
        if self.is_watched:
            self._unwatch()
        line = self.line
        if line.dispatcher.leave(self.ticket, now_us):
            line.wake()

    def _watch(self, at_us: int) -> None:
        self.is_watched = True
        self.line.watch(self, at_us)

    def _unwatch(self) -> None:
        self.is_watched = False
        self.line.timeouts.discard(self)
