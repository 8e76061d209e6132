"""What the scheduler decides, each decision by itself: what becomes of a request, and who is next at the end of one.

On arrival: the level of its user, and a slot or a place in the queue. At the end: the charge, the response time of its
level, and whose turn the slot is. For 10,000 users in random order, so that what is known of them is as cold in the
caches as a real load finds it; the loop is counted in. A sweep is what the loop stands still for, once in a period.
"""

import random
import time
from collections import deque

from bench.figures import Sample
from bench.rows import Row
from kafka_quota_proxy.proxy.fair_queue.call_queue import QueueOptions, WithinLevel
from kafka_quota_proxy.proxy.fair_queue.concurrency import VegasLimit
from kafka_quota_proxy.proxy.fair_queue.decay import DecayOptions, DecayScheduler, Pause
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Answer, Dispatcher, DispatcherOptions, Ticket

USERS = 10_000
ROUNDS = 600
# So many arrive, then so many end: one kind of decision at a time can be timed, and none finds in the caches what the
# other has just touched.
TURNS = 500
SLOTS = 32
WAITING = 500
# As large as it gets, so that nobody waits for room; that is another decision, and who backs off never makes it.
_CAPACITY = 8_192
_COST, _RESPONSE_US = 50_100, 700


def measure(row: Row) -> Sample:
    """Decide on each of many requests."""
    match row.key:
        case "scheduling-arrival":
            seconds = _Load(slots=TURNS, waiting=0).seconds()[0]
        case "scheduling-end":
            seconds = _Load(slots=TURNS, waiting=0).seconds()[1]
        case "scheduling-arrival-busy":
            seconds = _Load(slots=SLOTS, waiting=WAITING).seconds()[0]
        case "scheduling-end-busy":
            seconds = _Load(slots=SLOTS, waiting=WAITING).seconds()[1]
        case _:
            seconds = _sweep()
    return {"decision_us": seconds * 1e6}


def _scheduler() -> DecayScheduler:
    scheduler = DecayScheduler(DecayOptions(max_identities=USERS, pause=Pause.ONCE), now_ms=0)
    for n in range(USERS):
        scheduler.charge(f"user-{n}", 1_000 + n)
    scheduler.sweep()
    return scheduler


class _Load:
    """Requests that arrive and end in turns; users take turns in each level, and the limit learns from each end."""

    def __init__(self, *, slots: int, waiting: int) -> None:
        options = DispatcherOptions(queue=QueueOptions(capacity=_CAPACITY, within_level=WithinLevel.ROUND_ROBIN))
        # It learns all the same, and whether a slot is free is as the row says.
        self._dispatcher = Dispatcher(options, VegasLimit(minimum=slots, maximum=slots))
        self._scheduler = _scheduler()
        self._chance = random.Random(1)  # noqa: S311  the same order in each run
        self._idle = deque(Ticket(None) for _ in range(2 * TURNS + waiting))
        self._running: deque[Ticket] = deque()
        self._now_us = 0
        if waiting:
            self._arrive(waiting + slots)

    def seconds(self) -> tuple[float, float]:
        """Return what a decision takes on one that arrives, and at the end of one."""
        turns = [(self._arrive(TURNS), self._end(TURNS)) for _ in range(ROUNDS)]
        arrivals, ends = (sum(taken) for taken in zip(*turns, strict=True))
        return arrivals / (ROUNDS * TURNS), ends / (ROUNDS * TURNS)

    def _arrive(self, count: int) -> float:
        scheduler, dispatcher, running, now_us = self._scheduler, self._dispatcher, self._running, self._now_us
        lane = dispatcher.normal
        tickets = [self._idle.popleft() for _ in range(count)]
        for ticket in tickets:
            # Equal to the name that the scheduler knows, not the same object: each connection has its own.
            ticket.identity = f"user-{self._chance.randrange(USERS)}"
        start = time.process_time()
        for ticket in tickets:
            ticket.level = scheduler.level(ticket.identity, lane.in_flight, lane.limit.limit)
            if dispatcher.ask(ticket, now_us) is Answer.RUN:
                running.append(ticket)
        return time.process_time() - start

    def _end(self, count: int) -> float:
        scheduler, dispatcher, running = self._scheduler, self._dispatcher, self._running
        now_us = self._now_us = self._now_us + _RESPONSE_US
        ended = []
        start = time.process_time()
        for _ in range(count):
            ticket = running.popleft()
            scheduler.charge(ticket.identity, _COST)
            scheduler.add_response_time(ticket.level, _RESPONSE_US)
            if dispatcher.done(ticket, now_us):
                running.extend(dispatcher.granted())
            ended.append(ticket)
        seconds = time.process_time() - start
        self._idle.extend(ended)
        return seconds


def _sweep() -> float:
    scheduler = _scheduler()
    start = time.process_time()
    scheduler.sweep()
    return time.process_time() - start
