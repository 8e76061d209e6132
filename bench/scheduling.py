"""What one decision of the scheduler costs: the level of a request on arrival, a place or a slot, and the end of it.

For 10,000 users in random order, so that what is known of them is as cold in the caches as a real load finds it; the
loop is counted in. A sweep is what the loop stands still for, once in a period.
"""

import random
import time

from bench.figures import Sample
from bench.rows import Row
from proxy.scheduling.call_queue import QueueOptions, WithinLevel
from proxy.scheduling.concurrency import FixedLimit, Limit, VegasLimit
from proxy.scheduling.cost import TrafficCost
from proxy.scheduling.decay import DecayOptions, DecayScheduler, Pause
from proxy.scheduling.dispatcher import Answer, Dispatcher, DispatcherOptions, Ticket

USERS = 10_000
REQUESTS = 300_000
SLOTS = 32
WAITING = 500


def measure(row: Row) -> Sample:
    """Decide on each of many requests."""
    match row.key:
        case "scheduling-free":
            seconds = _free(FixedLimit(SLOTS))
        case "scheduling-adaptive":
            seconds = _free(VegasLimit(minimum=SLOTS, maximum=1_000))
        case "scheduling-fifo":
            seconds = _saturated(WithinLevel.FIFO, is_charged=False)
        case "scheduling-round-robin":
            seconds = _saturated(WithinLevel.ROUND_ROBIN, is_charged=False)
        case "scheduling-charged":
            seconds = _saturated(WithinLevel.ROUND_ROBIN, is_charged=True)
        case _:
            seconds = _sweep()
    return {"decision_us": seconds * 1e6}


def _scheduler() -> DecayScheduler:
    options = DecayOptions(max_identities=USERS, pause=Pause.ONCE, utilisation_floor=0.5)
    scheduler = DecayScheduler(options, now_ms=0)
    for n in range(USERS):
        scheduler.charge(f"user-{n}", 1_000 + n)
    scheduler.sweep()
    return scheduler


def _tickets(count: int) -> list[Ticket]:
    return [Ticket(None) for _ in range(count)]


def _names(count: int) -> list[str]:
    chance = random.Random(1)  # noqa: S311  the same order in each run
    # Equal to the names that the scheduler knows, not the same objects: each connection has its own.
    return [f"user-{chance.randrange(USERS)}" for _ in range(count)]


def _free(limit: Limit) -> float:
    scheduler, dispatcher = _scheduler(), Dispatcher(DispatcherOptions(), limit)
    tickets = _tickets(USERS)
    for ticket, name in zip(tickets, _names(USERS), strict=True):
        ticket.identity = name
    start = time.process_time()
    for n in range(REQUESTS):
        ticket = tickets[n * 7_919 % USERS]
        ticket.level = scheduler.level(ticket.identity, dispatcher.in_flight, dispatcher.limit)
        dispatcher.ask(ticket, n)
        dispatcher.done(ticket, n + 500)
    return (time.process_time() - start) / REQUESTS


def _saturated(within_level: WithinLevel, *, is_charged: bool) -> float:
    """Each request that is done lets the next in, and its connection asks again under another name."""
    scheduler, cost = _scheduler(), TrafficCost()
    options = DispatcherOptions(queue=QueueOptions(within_level=within_level))
    dispatcher = Dispatcher(options, FixedLimit(SLOTS))
    names = _names(REQUESTS + WAITING + SLOTS)
    running = []
    for ticket in _tickets(WAITING + SLOTS):
        ticket.identity = names.pop()
        ticket.level = scheduler.level(ticket.identity)
        if dispatcher.ask(ticket, 0) is Answer.RUN:
            running.append(ticket)
    ticket = running[0]
    start = time.process_time()
    for n, name in enumerate(names):
        if is_charged:
            scheduler.charge(ticket.identity, cost.on_completion(response_bytes=100, service_us=500))
            scheduler.add_response_time(ticket.level, 700)
        dispatcher.done(ticket, n)
        ticket.identity = name
        if is_charged:
            scheduler.charge(name, cost.on_arrival(1_000))
        ticket.level = scheduler.level(name, dispatcher.in_flight, dispatcher.limit)
        dispatcher.ask(ticket, n)
        (ticket,) = dispatcher.granted()
    return (time.process_time() - start) / REQUESTS


def _sweep() -> float:
    scheduler = _scheduler()
    start = time.process_time()
    scheduler.sweep()
    return time.process_time() - start
