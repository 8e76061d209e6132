"""Runs the fair call queue of one broker on the event loop.

A broker has a limited number of slots: each is the permission for one request to be at the broker. Each client
connection has a ticket, an object that waits in the queue in its place. When the ticket receives a slot, this module
wakes the connection, which forwards its request. If a request keeps its slot for too long, the slot is taken back.
"""

import asyncio
from time import monotonic_ns
from typing import cast

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ListenerQueue
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from kafka_quota_proxy.proxy.fair_queue.queue_stats import QueueStats
from kafka_quota_proxy.proxy.fair_queue.settings import cost, identities, limit
from kafka_quota_proxy.proxy.fair_queue.slot_timeouts import SlotTimeouts
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.runtime.isolation import attempt, repeated


class ListenerPriorities:
    """Assigns a listener's users to priority levels of the fair call queue, by the cost of recent requests."""

    def __init__(self, settings: FairCallQueue) -> None:
        self.settings = settings
        self.scheduler = DecayScheduler(settings, now_ms=_now_ms())
        self.identity = identities(settings)
        self.stats = QueueStats()

    def update(self, settings: FairCallQueue) -> None:
        """Apply the queue settings of a reloaded configuration file. The costs counted for each user are kept."""
        if settings != self.settings:
            before = self.scheduler
            self.identity = identities(settings)
            self.settings = settings
            self.scheduler = DecayScheduler(settings, now_ms=_now_ms())
            self.scheduler.take_over(before)


class BrokerQueue:
    """The fair call queue and the slots of one broker, which all listeners in front of the broker share."""

    def __init__(self, settings: FairCallQueue) -> None:
        self._settings = settings
        self._limit = limit(settings)
        self.dispatcher = Dispatcher(settings, self._limit)
        self._timeouts = SlotTimeouts()
        self._is_waking = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0  # when the timer fires

    def listener_queue(self, priorities: ListenerPriorities, before: ListenerQueue | None) -> ListenerQueue:
        """Return the part of the queue that one listener's connections share, with the listener's settings.

        If ``before`` is not None, it is updated and returned.
        """
        settings = priorities.settings
        if settings != self._settings:
            if settings.max_in_flight != self._settings.max_in_flight:
                self._limit = limit(settings)  # otherwise keep the limit that was measured
            self._settings = settings
            now_us = monotonic_ns() // 1_000
            self.dispatcher.update(settings, self._limit, now_us)
            self.wake()
        if before is None:
            return ListenerQueue(
                priorities.scheduler,
                self.dispatcher,
                cost(settings),
                identity=priorities.identity,
                stats=priorities.stats,
                timeouts=self._timeouts,
                wake=self.wake,
            )
        before.scheduler, before.cost, before.identity = priorities.scheduler, cost(settings), priorities.identity
        return before

    def wake(self) -> None:
        """Arrange that the connections which have received a slot are woken once the running callback has ended."""
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def close(self) -> None:
        """Stop looking for requests that are past their deadline."""
        if self._timer is not None:
            self._timer.cancel()

    @repeated
    def _wake(self) -> None:
        self._is_waking = False
        for ticket in self.dispatcher.granted():
            attempt(cast(Waiter, ticket.owner).take_turn)
        soonest_us = self._timeouts.soonest_us
        if soonest_us is not None and (self._timer is None or soonest_us < self._timer_us):
            self._arm(soonest_us, monotonic_ns() // 1_000)

    @repeated
    def _look(self) -> None:
        """Take back the slots of requests that are past their deadline, and set the timer for the next deadline."""
        self._timer = None
        now_us = monotonic_ns() // 1_000
        at_us = self._timeouts.park_due(now_us)
        if at_us is not None:
            self._arm(at_us, now_us)
        self.wake()

    def _arm(self, at_us: int, now_us: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = at_us
        # Round up to whole milliseconds and add one. uvloop's timers are no finer, and would fire too early otherwise.
        wait_ms = max(0, at_us - now_us) // 1_000 + 2
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._look)


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
