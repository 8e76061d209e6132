"""Queues a connection's requests in front of a broker that gets a limited number of requests at a time.

A slot is the permission to have a request at the broker. A broker works on one request of a connection at a time, so
only the oldest unanswered request of a connection is queued. Later requests use the same slot as long as no other
connection waits for a slot. Otherwise the connection queues again when its oldest request has been answered.

A request asks for a slot when it has arrived as a whole, or ``ASKS_FROM_BYTES`` of it. Before a login it gets no slot
where clients log in: the broker answers it with the end of the connection.

A request gives its slot back before it is answered in these cases, because the broker then probably just waits:

* JoinGroup and SyncGroup give the slot back at once, because the broker waits for the other members of the group.
* A fetch gives the slot back after ``POLL_GRACE_US``. If the fetch took longer and its response had hardly any data,
  the connection's next fetches are forwarded without a slot. This ends when a fetch is answered sooner or returns data.
* A Produce with acks=-1, and a control request whose records followers copy, give the slot back after four times the
  usual time, if the broker has answered a later request meanwhile. The broker then waits for a follower. Without such
  an answer the broker may be busy, and they keep their slots for longer. ``UsualTime`` has both times.
* A request that arrives in parts gives the slot back after ``UPLOAD_GRACE_US``, and pays for the time until then. It
  counts again when it is whole.

A Produce with acks=0 has no answer that could end its turn. Its slot is held for the time that an answered Produce
takes at that moment.

Source: ``Server``, ``CallQueueManager`` of Hadoop's ipc; ``SocketServer`` and ``DelayedFetch`` of Apache Kafka.
"""

from collections.abc import Callable
from typing import Final

from kafka_quota_proxy.proxy.fair_queue.cost import CompletedRequest, CostModel, upload_cost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher, State, Ticket, Turn
from kafka_quota_proxy.proxy.fair_queue.queue_stats import CONTROL_LEVEL, QueueStats
from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind
from kafka_quota_proxy.proxy.fair_queue.slot_timeouts import SlotHolder, SlotTimeouts
from kafka_quota_proxy.proxy.fair_queue.usual_time import LEAST_PATIENCE_US
from kafka_quota_proxy.proxy.quota.request_time import ServiceTime

# How long a fetch keeps its slot.
POLL_GRACE_US: Final = 20_000
# A response to a fetch has hardly any data if its records have no more bytes than this.
EMPTY_BYTES: Final = 1_024
# A longer request asks for its slot before it is whole. It is as much as is read at once.
ASKS_FROM_BYTES: Final = 256 * 1024
# For how long a request keeps its slot while its rest arrives.
UPLOAD_GRACE_US: Final = 20_000

# Returns the identity that pays for a request, from the client's principal (``ANONYMOUS`` without a login), client-id
# and host.
Identify = Callable[[str, str, str], str]


# Looked up once: each access to a member of an Enum goes through its class.
_PASSES: Final = Turn.PASSES
_WAITS: Final = Turn.WAITS
_IDLE: Final = State.IDLE
_WAITING: Final = State.WAITING
_RUNNING: Final = State.RUNNING
_PARKED: Final = State.PARKED


class ListenerQueue:
    """Holds the parts of the fair call queue that all connections of one listener to one broker share.

    ``wake`` is a function of the server. It is called when waiting connections have received slots, and when the
    soonest deadline in ``timeouts`` has changed. ``has_logins`` says whether the broker makes these clients log in. It
    is known from the first login on.
    """

    __slots__ = ("cost", "dispatcher", "has_logins", "identity", "scheduler", "stats", "timeouts", "wake")

    def __init__(
        self,
        scheduler: DecayScheduler,
        dispatcher: Dispatcher,
        cost: CostModel,
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
        self.has_logins = False

    def is_awaited(self, *, is_control: bool) -> bool:
        """Return whether any connection waits for a slot.

        Control requests, such as heartbeats, have slots of their own. ``is_control`` says which slots are meant.
        """
        return (self.dispatcher.control_waiting if is_control else len(self.dispatcher.queue)) > 0

    def watch(self, holder: SlotHolder, at_us: int) -> None:
        """Take the slot of ``holder`` back at ``at_us``, if it still has the slot at that time."""
        if self.timeouts.add(holder, at_us):
            self.wake()


class HeldSlot:
    """The slot of a Produce with acks=0, which the broker probably works on."""

    __slots__ = ("_line",)

    def __init__(self, line: ListenerQueue) -> None:
        self._line = line

    def time_out(self, now_us: int) -> None:
        """Give the slot back, because the broker has had the time for the request."""
        if self._line.dispatcher.release(now_us):
            self._line.wake()


class QueuedConnection:
    """One connection's place in the fair call queue, which is used for one request after another."""

    __slots__ = (
        "_api_key", "_awaits_data", "_is_overtaken", "_is_upload", "_keeps_until_us", "_refusal", "_sample",
        "_since_us", "_upload_us", "is_watched", "line", "ticket",
    )  # fmt: skip

    def __init__(self, line: ListenerQueue, owner: object) -> None:
        self.line = line
        self._api_key = 0  # of the oldest unanswered request
        self._awaits_data = False  # whether the last fetch waited for data
        self._refusal = 0, ""  # API key and identity of the last refusal
        self._is_upload = False  # whether the rest of a request is arriving that had the slot, or still has it
        self._upload_us = 0  # since when such a request has the slot; 0 if it has none
        self._since_us = 0  # since when the broker has had a request that may wait for followers
        self._keeps_until_us = 0  # until when this request keeps the slot in any case; 0 if it is no such request
        self._is_overtaken = False  # whether it has lost the slot because the broker answered a later one
        self.is_watched = False  # whether the slot has a deadline
        # It is 1 if the slot has served one request that measures the broker's speed. Otherwise there is no sample.
        self._sample = 0
        self.ticket = Ticket(owner)

    def ask(
        self,
        kind: RequestKind,
        identity: str,
        *,
        is_alone: bool,
        may_refuse: bool,
        now_us: int,
        is_known: bool = True,
    ) -> Turn:
        """Decide whether a request may be forwarded now, has to wait, or is refused.

        If the request has to wait, its connection is woken when its turn comes. ``is_alone`` says that the connection
        has no unanswered request. ``may_refuse`` says that the proxy can refuse the request. ``is_known`` says that the
        client has logged in, or need not.
        """
        ticket, line = self.ticket, self.line
        state = ticket.state
        if state is _WAITING:
            return _WAITS
        if not is_alone:
            is_served = state is _RUNNING and not kind.is_poll and kind.has_answer
            is_control = kind.is_control
            if not is_served or is_control is not ticket.is_control or line.is_awaited(is_control=is_control):
                return _WAITS
        else:
            self._api_key = kind.api_key
            if state is _IDLE:
                if kind.is_free or not is_known or (self._awaits_data and kind.waits_for_data):
                    line.stats.pass_by(kind.api_key)
                elif (turn := self._begin(kind, identity, may_refuse, now_us)) is not _PASSES:
                    return turn
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
        due_us = line.timeouts.soonest_us
        if lane.in_flight >= lane.limit.limit and due_us is not None and now_us >= due_us:
            line.timeouts.park_due(now_us)  # the timer of the server is up to 2 ms late
        ticket.level = level = scheduler.level(identity, lane.in_flight, lane.limit.limit)
        self._sample = 0
        is_slow = may_refuse and scheduler.backs_off(level)
        turn = dispatcher.ask(ticket, now_us, is_slow=is_slow, may_refuse=may_refuse)
        if turn is Turn.REFUSED:
            self._refusal = kind.api_key, identity
        return turn

    def refuse_behind(self, kind: RequestKind, identity: str) -> Turn:
        """Refuse a request because an earlier request of the same connection was refused."""
        self._refusal = kind.api_key, identity
        return Turn.REFUSED

    def refused(self) -> None:
        """Charge and count the last refused request. Call this after the response that refuses it was sent."""
        line, (api_key, identity) = self.line, self._refusal
        line.scheduler.charge(identity, line.cost.on_refusal)
        line.stats.refuse(self.ticket.level, api_key)

    def passed(self, kind: RequestKind, *, is_whole: bool, now_us: int) -> None:
        """Note which request is now the oldest unanswered one, and whether it has been forwarded as a whole.

        Depending on its kind, it keeps its slot, keeps the slot until a deadline, or gives the slot back at once. If
        the request is whole and no other is unanswered, the call is needed only if the request's kind ``may_park``, or
        if the connection ``is_watched``.
        """
        self._api_key = kind.api_key
        if is_whole and self._is_upload:
            self._end_upload(now_us)
            self.line.dispatcher.recall(self.ticket)
        self._keeps_until_us, self._is_overtaken = 0, False
        if self.ticket.state is not _RUNNING:
            return
        if not is_whole:
            self._sample += 1  # no sample: the time in which a request arrives says nothing about the broker
            self._is_upload, self._upload_us = True, now_us
            self._watch(now_us + UPLOAD_GRACE_US)
        elif kind.is_gathering:
            self.park(now_us)
        elif kind.waits_for_data:
            self._watch(now_us + POLL_GRACE_US)
        elif kind.awaits_followers:
            grace_us = self.line.dispatcher.lane(self.ticket).usual_time.grace_us(now_us)
            self._since_us, self._keeps_until_us = now_us, now_us + max(LEAST_PATIENCE_US, grace_us)
            self._watch(now_us + grace_us)
        elif self.is_watched:
            self._unwatch()

    def answered(
        self,
        kind: RequestKind,
        identity: str,
        service: ServiceTime,
        brought_bytes: int,
        now_us: int,
    ) -> None:
        """Charge the cost of a request to ``identity``, and count the request. Call this when its response begins.

        ``brought_bytes`` is the part of a fetch's response that may be records.
        """
        line, ticket = self.line, self.ticket
        # `_queue_us` inlined: this runs for each request.
        queue_us = ticket.started_us - ticket.arrived_us
        if queue_us < 0 or ticket.state is _IDLE:
            queue_us = 0
        elapsed_us = service.elapsed_ns // 1_000
        cost = line.cost.flat
        if cost is None:
            cost = self._cost(kind, queue_us, service)
        if kind.is_poll:
            # A late response with much data does not show that the fetch waited: a busy broker is late with all data.
            self._awaits_data = brought_bytes <= EMPTY_BYTES and elapsed_us >= POLL_GRACE_US
        # Other requests count with all of their time, not only with the work: an overloaded broker is slow with each.
        waits = kind.waits_for_data or kind.is_gathering or (kind.awaits_followers and ticket.state is _PARKED)
        taken_us = service.worked_ns // 1_000 if waits else elapsed_us
        if (
            elapsed_us
            and (kind.is_produce or (kind.is_control and not kind.is_gathering))
            and not (self._is_overtaken and ticket.state is _PARKED)
        ):
            (line.dispatcher.control if kind.is_control else line.dispatcher.normal).usual_time.note(elapsed_us, now_us)
        level = ticket.level
        line.scheduler.charge(identity, cost)
        line.scheduler.add_response_time(level, queue_us=queue_us, taken_us=taken_us)
        line.stats.serve(CONTROL_LEVEL if ticket.is_control else level, queue_us, taken_us)

    def unanswered(self, kind: RequestKind, identity: str, service: ServiceTime) -> None:
        """Charge the cost of a request that was forwarded, at least in part, and will have no response."""
        self.line.scheduler.charge(identity, self._cost(kind, self._queue_us(), service))

    def _queue_us(self) -> int:
        """Return how long the request that got the slot was queued, in microseconds."""
        ticket = self.ticket
        return 0 if ticket.state is _IDLE else max(0, ticket.started_us - ticket.arrived_us)

    def _cost(self, kind: RequestKind, queue_us: int, service: ServiceTime) -> int:
        elapsed_us, service_us = service.elapsed_ns // 1_000, service.worked_ns // 1_000
        return self.line.cost.on_completion(CompletedRequest(kind.api_key, queue_us, elapsed_us, service_us))

    def time_out(self, now_us: int) -> None:
        """Give the slot back at its deadline, or keep it for now if the broker may be busy with the request."""
        if now_us < self._keeps_until_us:
            self._is_overtaken = self.line.dispatcher.lane(self.ticket).newest_us > self._since_us
            if not self._is_overtaken:
                self._watch(self._keeps_until_us)
                return
        self.park(now_us)

    def park(self, now_us: int) -> None:
        """Give the slot back before the response arrives, because the request waits at the broker."""
        if self.ticket.state is _RUNNING:
            line = self.line
            line.stats.park(self._api_key)
            self._pay_upload(now_us)
            if line.dispatcher.park(self.ticket, now_us):
                line.wake()

    def pause(self, *, is_used: bool, now_us: int) -> None:
        """Give the slot back, because the broker's responses are not read for now.

        ``is_used`` says whether any request was sent with the slot.
        """
        self._end_upload(now_us)
        if self.ticket.state is _RUNNING:
            if is_used:
                self._unwatch()
                self.park(now_us)
            else:
                self.leave(now_us)

    def end(self, now_us: int) -> None:
        """Give the slot back after all requests that were sent with it have been answered."""
        if self.is_watched:
            self._unwatch()
            self._end_upload(now_us)
        line = self.line
        if line.dispatcher.done(self.ticket, now_us, is_sample=self._sample == 1):
            line.wake()

    def end_unanswered(self, now_us: int) -> None:
        """End a request that was sent with the slot and has no answer. The slot is held while the broker may work."""
        if self._is_upload:
            self._end_upload(now_us)
            self.line.dispatcher.recall(self.ticket)
        line = self.line
        usual_us = int(line.dispatcher.normal.usual_time.mean_us(now_us))
        if not usual_us or self.ticket.state is not _RUNNING:
            self.end(now_us)
            return
        if self.is_watched:
            self._unwatch()
        line.dispatcher.hold(self.ticket)
        line.watch(HeldSlot(line), now_us + usual_us)

    def leave_unused(self, now_us: int) -> None:
        """Give an unused slot back. Call this only if no request was sent with the slot."""
        if self.ticket.state is _RUNNING:
            self.leave(now_us)

    def leave(self, now_us: int) -> None:
        """Leave the queue, and give back the slot if there is one."""
        if self.is_watched:
            self._unwatch()
            self._end_upload(now_us)
        line = self.line
        if line.dispatcher.leave(self.ticket, now_us):
            line.wake()

    def _end_upload(self, now_us: int) -> None:
        self._pay_upload(now_us)
        self._is_upload = False

    def _pay_upload(self, now_us: int) -> None:
        """Charge the time for which a request had the slot while its rest arrived."""
        since_us, self._upload_us = self._upload_us, 0
        if since_us:
            line = self.line
            usual_us = line.dispatcher.normal.usual_time.mean_us(now_us)
            cost = upload_cost(line.cost, self._api_key, now_us - since_us, usual_us)
            line.scheduler.charge(self.ticket.identity, cost)

    def _watch(self, at_us: int) -> None:
        self.is_watched = True
        self.line.watch(self, at_us)

    def _unwatch(self) -> None:
        self.is_watched = False
        self.line.timeouts.discard(self)
