"""Measures the decisions of the scheduler of the fair call queue.

On arrival, it finds the level of the user, and a slot or a place in the queue. At the end of a request, it charges the
user and gives the slot to the next request. 10,000 users come in random order, so that their state is in no CPU cache.
A sweep is the decay of all costs, which blocks the event loop once a period.
"""

import random
import time
from collections import deque

from bench.figures import Sample
from bench.rows import Row
from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.proxy.fair_queue.concurrency import VegasLimit
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher, Ticket, Turn

USERS = 10_000
ROUNDS = 600
# This many requests arrive, and then this many end. So each kind of decision is measured alone.
TURNS = 500
SLOTS = 32
WAITING = 500
# The largest capacity, because waiting for room in the queue would be another decision.
_CAPACITY = 8_192
_COST, _RESPONSE_US = 50_100, 700


def measure(row: Row) -> Sample:
    """Measure the decisions of this row."""
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
    # Without a floor, because below it the level of a user is not looked for.
    scheduler = DecayScheduler(FairCallQueue(max_identities=USERS, utilisation_floor=0.0), now_ms=0)
    for n in range(USERS):
        scheduler.charge(f"user-{n}", 1_000 + n)
    scheduler.sweep()
    return scheduler


class _Load:
    """Many requests that arrive, and then as many that end."""

    def __init__(self, *, slots: int, waiting: int) -> None:
        # The limit still learns, but the number of slots stays that of the row.
        self._dispatcher = Dispatcher(FairCallQueue(capacity=_CAPACITY), VegasLimit(minimum=slots, maximum=slots))
        self._scheduler = _scheduler()
        self._chance = random.Random(1)  # noqa: S311  the same order in each run
        self._idle = deque(Ticket(None) for _ in range(2 * TURNS + waiting))
        self._running: deque[Ticket] = deque()
        self._now_us = 0
        if waiting:
            self._arrive(waiting + slots)

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of a decision on arrival, and of a decision at the end of a request."""
        turns = [(self._arrive(TURNS), self._end(TURNS)) for _ in range(ROUNDS)]
        arrivals, ends = (sum(taken) for taken in zip(*turns, strict=True))
        return arrivals / (ROUNDS * TURNS), ends / (ROUNDS * TURNS)

    def _arrive(self, count: int) -> float:
        scheduler, dispatcher, running, now_us = self._scheduler, self._dispatcher, self._running, self._now_us
        lane = dispatcher.normal
        tickets = [self._idle.popleft() for _ in range(count)]
        for ticket in tickets:
            # A copy, because each connection has its own string object.
            ticket.identity = f"user-{self._chance.randrange(USERS)}"
        start = time.process_time()
        for ticket in tickets:
            ticket.level = scheduler.level(ticket.identity, lane.in_flight, lane.limit.limit)
            if dispatcher.ask(ticket, now_us) is Turn.PASSES:
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
            scheduler.add_response_time(ticket.level, queue_us=0, taken_us=_RESPONSE_US)
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
